"""Theorem 2 in context length: an infinitely deep transformer's error falls as one over the root of the length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from icrl_agent.algorithms.convergence import one_hot_sharpness
from icrl_agent.eval.reproduce.chains import (
    Layer,
    as_context,
    deep_limit,
    draw_chains,
    generator,
    theorem_layer,
    walk,
)
from icrl_agent.eval.reproduce.claim import Check, Outcome, mean_interval
from icrl_agent.figures import COLOURS, new_figure

__all__ = ["FULL", "QUICK", "Measurements", "Sizes", "claim", "judge", "measure"]

FloatArray = NDArray[np.float64]

GAMMA = 0.9
#: C of Assumption 5.1.
MARGIN = (1.0 - GAMMA) / 4.0
#: Target entry over current entry of the control's V.
OFF_RATIO = 1.02


@dataclass(frozen=True)
class Sizes:
    """How much is tested."""

    n_chains: int
    lengths: tuple[int, ...] = (1_000, 3_162, 10_000, 31_623, 100_000)
    n_states: int = 10


QUICK, FULL = Sizes(n_chains=200), Sizes(n_chains=1000)


class Measurements(NamedTuple):
    """Sup-norm errors at infinite depth, (n_lengths, B)."""

    lengths: tuple[int, ...]
    floors: FloatArray
    """With the layer that is tested."""
    off_floors: FloatArray
    """With V's target entry 2 % too large against the current one."""


def off_ratio_layer(context: object, gamma: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The theorem's layer with V's target entry 2 % too large."""
    return theorem_layer(context, gamma, (1.0, OFF_RATIO, -1.0))  # type: ignore[arg-type]


def measure(sizes: Sizes, layer: Layer = theorem_layer, seed: int = 0) -> Measurements:
    """Walk the chains once; at every length run the layers to their limit."""
    rng = generator(4, seed)
    chains = draw_chains(rng, sizes.n_chains, sizes.n_states, GAMMA)
    sharpness = one_hot_sharpness(chains.mu, GAMMA, MARGIN)
    features = np.sqrt(sharpness)[:, None, None] * np.eye(sizes.n_states)
    gamma = torch.full((sizes.n_chains,), GAMMA, dtype=torch.float64)
    snapshots = walk(rng, chains, sizes.lengths)

    def floors(run: Layer) -> FloatArray:
        limits = [deep_limit(*run(as_context(features, s, chains.reward), gamma)) for s in snapshots]
        return np.asarray(np.abs(np.stack(limits) - chains.values).max(axis=2))

    return Measurements(sizes.lengths, floors(layer), floors(off_ratio_layer))


def slopes(lengths: tuple[int, ...], floors: FloatArray) -> FloatArray:
    """Least-squares slope of log error against log n of every chain, (B,)."""
    x = np.log(lengths)
    x -= x.mean()
    with np.errstate(invalid="ignore"):  # layers that diverge have errors that are not finite, and slopes that are not
        return np.asarray(x @ np.log(floors) / (x @ x))


def judge(measured: Measurements) -> list[Check]:
    """The slopes' 99 % interval holds -1/2; that of V with another ratio does not."""
    mean, interval = mean_interval(slopes(measured.lengths, measured.floors))
    off_mean, off_interval = mean_interval(slopes(measured.lengths, measured.off_floors))
    return [
        Check("slope of log error against log n at infinite depth", mean, interval, "contains", -0.5),
        Check("control: the same with V's target entry 2 % off", off_mean, off_interval, "excludes", -0.5),
    ]


def claim(quick: bool) -> Outcome:
    """Measure, judge, draw."""
    measured = measure(QUICK if quick else FULL)
    table = [
        {
            "n": f"{n:,}",
            "error, geometric mean": f"{np.exp(np.log(floor).mean()):.4g}",
            "error, V's ratio 2 % off": f"{np.exp(np.log(off).mean()):.4g}",
        }
        for n, floor, off in zip(measured.lengths, measured.floors, measured.off_floors, strict=True)
    ]
    caption = (
        f"Sup-norm error of an infinitely deep transformer against context length: {measured.floors.shape[1]} random"
        f" Boyan chains that meet Assumption 5.1 (gamma {GAMMA:g}, one-hot features); geometric mean, and the middle"
        " 80 % of chains. With V's target entry 2 % off, the error stops falling: the layers then solve for another"
        " gamma."
    )
    curves = {"sup error": list(zip(measured.lengths, np.exp(np.log(measured.floors).mean(axis=1)), strict=True))}
    return Outcome(judge(measured), {"slope": (_draw(measured), caption)}, table, curves)


def _draw(measured: Measurements) -> Figure:
    figure, axis = new_figure()
    n = np.array(measured.lengths, dtype=np.float64)
    curves = ("theorem's weights", measured.floors), ("V's target entry 2 % off", measured.off_floors)
    for number, (name, floors) in enumerate(curves):
        mean, half = mean_interval(slopes(measured.lengths, floors))
        label = f"{name}: slope {mean:.3f} [{half[0]:.3f}, {half[1]:.3f}]"
        axis.plot(n, np.exp(np.log(floors).mean(axis=1)), "o-", color=COLOURS[number], linewidth=1.8, label=label)
        axis.fill_between(n, *np.quantile(floors, (0.1, 0.9), axis=1), color=COLOURS[number], alpha=0.15, linewidth=0)
    first = np.exp(np.log(measured.floors[0]).mean())
    axis.plot(n, first * np.sqrt(n[0] / n), "--", color="#000000", linewidth=1.2, label="slope -1/2")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("context length n")
    axis.set_ylabel(r"$\|v_\infty - v\|_\infty$")
    axis.legend(frameon=False, fontsize=8)
    return figure
