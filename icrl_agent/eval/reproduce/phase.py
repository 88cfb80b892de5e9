"""Beyond the assumption: where the layers converge although it fails, and where they diverge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from icrl_agent.eval.reproduce.chains import (
    Layer,
    as_context,
    count_kernels,
    generator,
    theorem_layer,
    walk_complete,
)
from icrl_agent.eval.reproduce.claim import Check, Outcome, exactly
from icrl_agent.figures import new_figure

__all__ = ["FULL", "QUICK", "Measurements", "Sizes", "claim", "judge", "measure"]

FloatArray = NDArray[np.float64]

GAMMAS = (0.5, 0.9, 0.99)
#: Growth is measured between these layers.
FIRST_LAYER, LAST_LAYER = 256, 1024


@dataclass(frozen=True)
class Sizes:
    """How much is tested."""

    n_chains: int
    n_sharpness: int
    n_step_sizes: int
    n_transitions: int = 500
    n_states: int = 10
    feature_dim: int = 16

    @property
    def sharpness(self) -> FloatArray:
        """The grid's sharpness, 0.25 to 32."""
        return np.geomspace(0.25, 32.0, self.n_sharpness)

    @property
    def step_sizes(self) -> FloatArray:
        """The grid's step sizes, 0.5 to 2.5."""
        return np.linspace(0.5, 2.5, self.n_step_sizes)


QUICK, FULL = Sizes(8, 12, 9), Sizes(32, 29, 21)


class Measurements(NamedTuple):
    """Axes: gamma, sharpness, step size, chain."""

    sharpness: FloatArray
    step_sizes: FloatArray
    radius: FloatArray
    """Predicted: spectral radius of the map of TD errors."""
    growth: FloatArray
    """Measured: factor per layer by which the change of the values grows."""
    tolerance: FloatArray
    """How far the logarithm of the growth over finitely many layers may be from that of the radius."""
    margin: FloatArray
    """Margin of Assumption 5.1 on the context, without the axis of step sizes: (gamma, sharpness, chain)."""


def measure(sizes: Sizes, layer: Layer = theorem_layer, seed: int = 0) -> Measurements:
    """Predict in NumPy, measure with the transformer's layers."""
    rng = generator(5, seed)
    chains, successors = walk_complete(rng, sizes.n_chains, sizes.n_states, sizes.n_transitions)
    x = rng.standard_normal((sizes.n_chains, sizes.n_states, sizes.feature_dim))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    counts = successors.sum(axis=2)
    transition = successors / counts[:, :, None]
    shape = (len(GAMMAS), sizes.n_sharpness, sizes.n_step_sizes, sizes.n_chains)
    radius, growth, tolerance = np.empty(shape), np.empty(shape), np.empty(shape)
    margin = np.empty((len(GAMMAS), sizes.n_sharpness, sizes.n_chains))
    steps = sizes.step_sizes[:, None, None, None]
    for at, sharpness in enumerate(sizes.sharpness):
        features = np.sqrt(sharpness) * x
        kernel = count_kernels(features, counts)
        for g, gamma in enumerate(GAMMAS):
            backup = (np.eye(sizes.n_states) - gamma * transition) @ kernel
            eigenvalues = 1.0 - steps[..., 0] * np.linalg.eigvals(backup)
            radius[g, at] = np.abs(eigenvalues).max(axis=2)
            gammas = torch.full((sizes.n_chains,), gamma, dtype=torch.float64)
            T, b = (np.asarray(part) for part in layer(as_context(features, successors, chains.reward), gammas))
            full = np.eye(sizes.n_states) + steps * (T - np.eye(sizes.n_states))
            growth[g, at] = _growth(full, np.broadcast_to(b[..., None], (*full.shape[:-1], 1)))
            tolerance[g, at] = _tolerance(T, b, sizes.step_sizes)
            margin[g, at] = kernel.diagonal(axis1=1, axis2=2).min(axis=1) - (1 + gamma) / 2
    return Measurements(sizes.sharpness, sizes.step_sizes, radius, growth, tolerance, margin)


def judge(measured: Measurements) -> list[Check]:
    """Growth is the radius everywhere; beyond the assumption there are both regimes."""
    predicted, found = np.log(measured.radius), np.log(measured.growth)
    decided = np.abs(predicted) > measured.tolerance
    wrong = decided & ~((found > 0) == (predicted > 0))
    beyond = np.broadcast_to((measured.margin <= 0)[:, :, None, :], found.shape)
    return [
        exactly(
            "largest |log growth - log radius| over what a finite number of layers allows",
            float((np.abs(found - predicted) / measured.tolerance).max()),
            "at most",
            1.0,
        ),
        exactly(
            f"wrong verdicts among {decided.sum():,} contexts that are decided", float(wrong.sum()), "at most", 0.0
        ),
        exactly(
            "contexts where the assumption fails and the layers converge", (beyond & (found < 0)).sum(), "at least", 1
        ),
        exactly(
            "contexts where the assumption fails and the layers diverge", (beyond & (found > 0)).sum(), "at least", 1
        ),
    ]


def claim(quick: bool) -> Outcome:
    """Measure, judge, draw."""
    measured = measure(QUICK if quick else FULL)
    converges = measured.growth < 1
    table = []
    for g, gamma in enumerate(GAMMAS):
        lowest = measured.sharpness[(measured.margin[g] > 0).all(axis=1)].min(initial=np.inf)
        row = {"gamma": f"{gamma:g}", "assumption met by all chains from sharpness": f"{lowest:.3g}"}
        for step in (0.5, 1.0, 1.5, 2.0, 2.5):
            at = int(np.abs(measured.step_sizes - step).argmin())
            row[f"converging at step size {step:g}"] = f"{100 * converges[g, :, at].mean():.0f} %"
        table.append(row)
    caption = (
        f"Growth of the values' change per layer, geometric mean over {measured.growth.shape[3]} contexts of random"
        " Boyan chains with random unit features: purple converges, orange diverges. Black line: predicted spectral"
        " radius 1; crosses: cells with measured growth above 1; right of the dashed line every context meets"
        " Assumption 5.1 (which speaks of step size 1; where there is no such line, none on the grid does)."
    )
    return Outcome(judge(measured), {"diagram": (_draw(measured), caption)}, table)


def _growth(F: FloatArray, change: FloatArray) -> FloatArray:
    """Factor per layer of ||change|| under change <- F change, between the two layers; (..., S, S) and (..., S, 1)."""
    logarithm = np.zeros(F.shape[:-2])
    for layer in range(LAST_LAYER):
        change = F @ change
        size = np.linalg.norm(change, axis=(-2, -1), keepdims=True)
        change = change / size
        if layer >= FIRST_LAYER:
            logarithm += np.log(size[..., 0, 0])
    return np.asarray(np.exp(logarithm / (LAST_LAYER - FIRST_LAYER)))


def _tolerance(T: FloatArray, b: FloatArray, step_sizes: FloatArray) -> FloatArray:
    """Largest difference of the logarithms of growth and radius, (step sizes, B).

    With F = X diag(l) X^-1, b = X c and k the dominant eigenvalue, ||F^m b|| lies between radius^m |c_k| / ||X^-1|| and
    radius^m ||c|| ||X||; the factor between these, spread over the layers measured, is the tolerance.
    """
    eigenvalues, X = np.linalg.eig(T - np.eye(T.shape[1]))
    c = np.linalg.solve(X, b[..., None].astype(X.dtype))[..., 0]
    dominant = np.abs(1.0 + step_sizes[:, None, None] * eigenvalues).argmax(axis=2)  # (step sizes, B)
    part = np.abs(np.take_along_axis(np.broadcast_to(c, (len(step_sizes), *c.shape)), dominant[..., None], axis=2))[
        ..., 0
    ]
    spread = np.log(np.linalg.cond(X)) + np.log(np.linalg.norm(c, axis=1) / part)
    return np.asarray(spread / (LAST_LAYER - FIRST_LAYER))


def _draw(measured: Measurements) -> Figure:
    figure, axis = new_figure(10.5, 3.7)
    figure.delaxes(axis)
    panels = figure.subplots(1, len(GAMMAS), sharey=True)
    growth = np.exp(np.log(measured.growth).mean(axis=3))
    radius = np.exp(np.log(measured.radius).mean(axis=3))
    x, y = np.meshgrid(measured.sharpness, measured.step_sizes, indexing="ij")
    for g, panel in enumerate(panels):
        colours = panel.pcolormesh(
            x, y, growth[g], cmap="PuOr_r", vmin=0.5, vmax=1.5, shading="nearest", rasterized=True
        )
        panel.contour(x, y, radius[g], levels=[1.0], colors="#000000", linewidths=1.6)
        above = growth[g] > 1
        panel.plot(x[above], y[above], "x", color="#000000", markersize=2.5, markeredgewidth=0.6, alpha=0.6)
        met = (measured.margin[g] > 0).all(axis=1)
        if met.any():
            panel.axvline(measured.sharpness[met].min(), color="#009E73", linestyle="--", linewidth=1.6)
        panel.set_xscale("log")
        panel.set_xlabel("sharpness")
        panel.set_title(f"gamma {GAMMAS[g]:g}", fontsize=10)
    panels[0].set_ylabel("step size")
    handles = [
        Line2D([], [], color="#000000", linewidth=1.6, label="predicted: spectral radius 1"),
        Line2D([], [], color="#000000", marker="x", linestyle="", markersize=4, label="measured: diverges"),
        Line2D([], [], color="#009E73", linestyle="--", linewidth=1.6, label="Assumption 5.1 met from here"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    figure.colorbar(colours, ax=panels, label="growth per layer", shrink=0.9, extend="both")
    return figure
