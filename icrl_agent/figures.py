"""Figures of an evaluation, drawn without touching matplotlib's global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from icrl_agent.results import Evaluation

__all__ = ["COLOURS", "new_figure", "plot_bands", "plot_error_curves", "plot_matrix", "plot_values", "value_limits"]

#: Okabe and Ito's palette: told apart by colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
_MARKERS = "osD^vPX*"

#: Up to this many states each gets a place of its own on the axis.
_LARGEST_LISTED = 60


def new_figure(width: float = 6.4, height: float = 4.0) -> tuple[Figure, Any]:
    """Return a figure with one axis in the package's style."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(visible=True, color="#E4E4E4", linewidth=0.8)
    axis.set_axisbelow(True)
    return figure, axis


def plot_values(evaluation: Evaluation) -> Figure:
    """Draw estimated and true values: by state up to 60 states, else estimate against truth (or sorted)."""
    figure, axis = new_figure()
    seen = evaluation.visits > 0
    truth = evaluation.true_values
    listed = len(evaluation.values) <= _LARGEST_LISTED
    if listed or truth is None:
        x: Any = np.arange(len(evaluation.values))
        y = evaluation.values
        if listed and evaluation.states.ndim == 1:
            axis.set_xlabel("state")
            ticks = x if len(x) <= 20 else x[:: -(-len(x) // 20)]
            axis.set_xticks(ticks, [str(evaluation.states[t]) for t in ticks])
        else:
            order = np.argsort(y)
            y, seen = y[order], seen[order]
            truth = None if truth is None else truth[order]
            axis.set_xlabel("states, sorted by estimated value")
        axis.set_ylabel("value")
        if truth is not None:
            axis.hlines(truth, x - 0.32, x + 0.32, color="#000000", linewidth=2.2, label="true value")
            axis.vlines(x, np.minimum(y, truth), np.maximum(y, truth), color=COLOURS[0], linewidth=1.0, alpha=0.5)
    else:
        x, y = truth, evaluation.values
        ends = [min(x.min(), y.min()), max(x.max(), y.max())]
        axis.plot(ends, ends, color="#000000", linewidth=1.0, label="estimate = truth")
        axis.set_xlabel("true value")
        axis.set_ylabel("estimated value")
    low, high = value_limits(evaluation.values)
    if truth is None and low < evaluation.values.min():
        axis.set_ylim(low, high)
    size = 42 if listed else 14
    axis.scatter(x[seen], y[seen], s=size, color=COLOURS[0], zorder=3, label="frozen agent")
    if not seen.all():
        axis.scatter(
            x[~seen], y[~seen], s=size, facecolors="white", edgecolors=COLOURS[0], zorder=3, label="never left: fill-in"
        )
    title = f"{evaluation.n_steps} steps of context, {evaluation.n_layers} layers, γ = {evaluation.gamma:g}"
    if evaluation.normalized_msve is not None:
        title += f", normalised error {evaluation.normalized_msve:.3g}"
    axis.set_title(title, fontsize=10)
    axis.legend(frameon=False, fontsize=9)
    return figure


def value_limits(values: np.ndarray) -> tuple[float, float]:
    """Limits of a scale of values that shows no rounding: they are at least 1 % of the largest value apart.

    >>> value_limits(np.array([-20.0, -20.0 + 1e-13]))
    (-20.1, -19.9)
    """
    low, high = float(values.min()), float(values.max())
    missing = max(0.01 * max(abs(low), abs(high)), 1e-12) - (high - low)
    return (low, high) if missing <= 0 else (round(low - missing / 2, 12), round(high + missing / 2, 12))


def plot_error_curves(curves: Mapping[str, tuple[Sequence[int], Sequence[float]]], ylabel: str) -> Figure:
    """Draw errors against context length on logarithmic axes; one (lengths, errors) pair per method.

    The first method is drawn as a broad band below the others, which may well lie on it; a method known at one
    length only is a dotted level.
    """
    figure, axis = new_figure(7.6, 4.0)
    for number, (method, (lengths, errors)) in enumerate(curves.items()):
        colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
        if len(lengths) == 1 and len(curves) > 1 and number > 0:
            axis.axhline(errors[0], color=colour, linestyle=":", linewidth=1.6, label=f"{method} ({errors[0]:.3g})")
        elif number == 0:
            axis.plot(lengths, errors, color=colour, marker="o", markersize=10, linewidth=6, alpha=0.45, label=method)
        else:
            axis.plot(lengths, errors, color=colour, marker=marker, markersize=4.5, linewidth=1.3, label=method)
    axis.set_xscale("log")
    axis.set_yscale("log")
    ticks = sorted({length for lengths, _ in curves.values() for length in lengths})
    axis.set_xticks(ticks, [str(tick) for tick in ticks], fontsize=8)
    axis.set_xticks([], minor=True)
    axis.set_xlabel("context length (steps)")
    axis.set_ylabel(ylabel)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def plot_matrix(matrix: np.ndarray, title: str) -> Figure:
    """Draw a matrix as an image, blue positive, orange negative, the scale symmetric about 0."""
    figure, axis = new_figure(4.2, 3.6)
    axis.grid(visible=False)
    reach = max(float(np.abs(matrix).max()), 1e-12)
    for direction in (axis.xaxis, axis.yaxis):
        direction.set_major_locator(MaxNLocator(integer=True))
    image = axis.imshow(matrix, cmap="PuOr", vmin=-reach, vmax=reach)
    axis.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axis, shrink=0.8)
    return figure


def plot_bands(
    x: Sequence[float], panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], xlabel: str
) -> Figure:
    """Draw curves with intervals, a panel per title; each curve is (mean, low, high)."""
    figure = Figure(figsize=(4.2 * len(panels), 3.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for axis, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(visible=True, color="#E4E4E4", linewidth=0.8)
        for number, (name, (mean, low, high)) in enumerate(curves.items()):
            colour = COLOURS[number % len(COLOURS)]
            axis.plot(x, mean, color=colour, linewidth=1.8, label=name.replace("_", " "))
            axis.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(xlabel)
        axis.legend(frameon=False, fontsize=8)
    return figure
