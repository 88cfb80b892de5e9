"""Theorem 2 in depth: errors shrink geometrically, at least as fast as the bound says, to the context's floor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from icrl_agent.algorithms.batched import batched_certainty_equivalence
from icrl_agent.algorithms.convergence import depth_for_error, one_hot_sharpness, sup_norm_bound
from icrl_agent.eval.reproduce.chains import (
    Layer,
    as_context,
    count_kernels,
    draw_chains,
    generator,
    theorem_layer,
    walk,
)
from icrl_agent.eval.reproduce.claim import Check, Outcome, exactly
from icrl_agent.figures import COLOURS, new_figure
from icrl_agent.model.merged import iterate_affine

__all__ = ["FULL", "QUICK", "Measurements", "Sizes", "claim", "judge", "measure"]

FloatArray = NDArray[np.float64]

GAMMA = 0.9
#: C of Assumption 5.1, half of the most there can be.
MARGIN = (1.0 - GAMMA) / 4.0
#: Changes below this part of the first are left out of contraction factors: rounding would show in them.
SMALLEST_CHANGE = 1e-9


@dataclass(frozen=True)
class Sizes:
    """How much is tested."""

    n_chains: int
    n_short: int
    """Contexts of ``short_lengths`` transitions each, at any sharpness."""
    long_length: int
    n_states: int = 10
    short_lengths: tuple[int, ...] = (5, 20, 100, 1000)
    n_layers: int = 400


QUICK, FULL = Sizes(n_chains=20, n_short=200, long_length=100_000), Sizes(200, 2000, long_length=100_000)


class Measurements(NamedTuple):
    """On contexts that are long and meet the assumption (B chains), and on short ones (any)."""

    errors: FloatArray
    """||v_L - v||_inf, (L + 1, B)."""
    distances: FloatArray
    """||v_L - v*_n||_inf to certainty equivalence on the context, (L + 1, B)."""
    floors: FloatArray
    """||v*_n - v||_inf, (B,)."""
    bounds: FloatArray
    """2 (1 - min diag M_n) + gamma of the long contexts, (B,)."""
    contractions: FloatArray
    """Largest change of the values in a layer over that in the layer before, (B,)."""
    short_contractions: FloatArray
    short_bounds: FloatArray
    sharpness: FloatArray
    """(B,)."""


def measure(sizes: Sizes, layer: Layer = theorem_layer, seed: int = 0) -> Measurements:
    """Run the layers on long contexts that meet the assumption, and on short contexts that need not."""
    rng = generator(3, seed)
    chains = draw_chains(rng, sizes.n_chains, sizes.n_states, GAMMA)
    sharpness = one_hot_sharpness(chains.mu, GAMMA, MARGIN)
    features = np.sqrt(sharpness)[:, None, None] * np.eye(sizes.n_states)
    (successors,) = walk(rng, chains, (sizes.long_length,))
    values, contractions, bounds = _run(layer, features, successors, chains.reward, sizes.n_layers)
    gammas = np.full(sizes.n_chains, GAMMA)
    counts = successors.sum(axis=2)
    limit = batched_certainty_equivalence(counts, counts * chains.reward, successors, gammas)

    short = draw_chains(rng, sizes.n_short, sizes.n_states, GAMMA)
    x = rng.standard_normal((sizes.n_short, sizes.n_states, 16))
    x *= np.sqrt(rng.uniform(0, 8, (sizes.n_short, 1, 1))) / np.linalg.norm(x, axis=2, keepdims=True)
    brief = [_run(layer, x, s, short.reward, sizes.n_layers)[1:] for s in walk(rng, short, sizes.short_lengths)]
    return Measurements(
        errors=np.abs(values - chains.values).max(axis=2),
        distances=np.abs(values - limit).max(axis=2),
        floors=np.abs(limit - chains.values).max(axis=1),
        bounds=bounds,
        contractions=contractions,
        short_contractions=np.concatenate([found for found, _ in brief]),
        short_bounds=np.concatenate([bound for _, bound in brief]),
        sharpness=sharpness,
    )


def judge(measured: Measurements) -> list[Check]:
    """Contraction below both bounds; every error below (1 - C)^L (start + floor) + floor."""
    start, floor, rate = measured.errors[0], measured.floors, 1.0 - MARGIN
    layers = np.arange(len(measured.errors))[:, None]
    # ||v_L - v|| <= ||v_L - v*|| + ||v* - v|| and ||v_0 - v*|| <= ||v_0 - v|| + floor
    theorem = rate**layers * (start + floor) + floor
    slack = 1e-9  # relative: the rounding of 400 layers, far below what is compared
    short = float((measured.short_contractions / measured.short_bounds).max())
    return [
        exactly(
            "largest error over (1 - C)^L (||v_0 - v|| + floor) + floor, any chain and depth",
            float((measured.errors / theorem).max()),
            "at most",
            1.0 + slack,
        ),
        exactly(
            "largest contraction factor on long contexts, against 1 - C",
            float(measured.contractions.max()),
            "at most",
            rate + slack,
        ),
        exactly(
            "largest contraction factor over 2 (1 - min diag M_n) + gamma, long contexts",
            float((measured.contractions / measured.bounds).max()),
            "at most",
            1.0 + slack,
        ),
        exactly("the same on short contexts of any sharpness", short, "at most", 1.0 + slack),
        exactly(
            "distance to the context's own limit after the last layer, over the start's",
            float((measured.distances[-1] / measured.distances[0]).max()),
            "at most",
            rate ** (len(measured.errors) - 1),
        ),
    ]


def claim(quick: bool) -> Outcome:
    """Measure, judge, draw."""
    measured = measure(QUICK if quick else FULL)
    errors, n_chains = measured.errors, measured.errors.shape[1]
    table = []
    for share in (0.1, 0.01, 0.001):
        predicted = [depth_for_error(float(bound), 1.0, share) for bound in measured.bounds]
        needed = (measured.distances > share * measured.distances[0]).sum(axis=0)
        table.append(
            {
                "error left of the start's": f"{share:g}",
                "layers needed (median)": f"{np.median(needed):.0f}",
                "layers needed (most)": int(needed.max()),
                "layers the bound asks for (median)": f"{np.median(predicted):.0f}",
                "1 - C asks for": depth_for_error(1.0 - MARGIN, 1.0, share),
            }
        )
    median = np.median(errors, axis=1)
    caption = (
        f"Sup-norm error against depth on {n_chains} random Boyan chains with one-hot features at the sharpness that"
        f" meets Assumption 5.1 with C = {MARGIN:g} (gamma {GAMMA:g}, {FULL.long_length:,} transitions; median"
        f" sharpness {np.median(measured.sharpness):.1f}). Left: errors to the true values go down to the floor of"
        " the context. Right: the contraction of every layer against the bound of its context, contexts of 5 to 1000"
        " transitions and any sharpness included."
    )
    curves = {"sup error, median chain": [(layer, float(value)) for layer, value in enumerate(median)]}
    return Outcome(judge(measured), {"depth": (_draw(measured), caption)}, table, curves)


def _run(
    layer: Layer, features: FloatArray, successors: FloatArray, reward: FloatArray, n_layers: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Values (L + 1, B, S), the largest ratio of successive changes (B,), the bound of the kernel (B,)."""
    T, b = layer(as_context(features, successors, reward), torch.full((len(reward),), GAMMA, dtype=torch.float64))
    values = np.asarray(iterate_affine(T, b, n_layers))
    # A state that was neither left nor entered changes nothing, so it may not count.
    present = (successors.sum(axis=1) + successors.sum(axis=2)) > 0
    change = (np.abs(np.diff(values, axis=0)) * present).max(axis=2)
    before, after = change[:-1], change[1:]
    ratio = np.where(before > SMALLEST_CHANGE * change[0], after / np.maximum(before, 1e-300), 0.0)
    kernel = count_kernels(features, successors.sum(axis=2))
    diagonal = kernel.diagonal(axis1=1, axis2=2)
    kernel[:, np.arange(kernel.shape[1]), np.arange(kernel.shape[1])] = np.where(present, diagonal, 1.0)
    return values, ratio.max(axis=0), sup_norm_bound(kernel, GAMMA)


def _draw(measured: Measurements) -> Figure:
    figure, axis = new_figure(9.6, 4.0)
    figure.delaxes(axis)
    left, right = figure.subplots(1, 2)
    for panel in (left, right):
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(visible=True, color="#E4E4E4", linewidth=0.8)
        panel.set_axisbelow(True)
    layers = np.arange(len(measured.errors))
    shown = measured.errors[:, :50]
    left.plot(layers, shown, color=COLOURS[0], linewidth=0.6, alpha=0.35)
    left.plot(layers, np.median(measured.errors, axis=1), color=COLOURS[0], linewidth=2.2, label="median error")
    start, floor = np.median(measured.errors[0]), np.median(measured.floors)
    theorem = (1 - MARGIN) ** layers * (start + floor) + floor
    left.plot(layers, theorem, "--", color="#000000", linewidth=1.4, label="Theorem 2: (1 - C)$^L$, down to the floor")
    left.axhline(floor, color=COLOURS[1], linestyle=":", linewidth=1.6, label="floor of the context (median)")
    left.set_yscale("log")
    left.set_xlabel("layers")
    left.set_ylabel(r"$\|v_L - v\|_\infty$")
    left.legend(frameon=False, fontsize=8)
    right.scatter(
        measured.short_bounds, measured.short_contractions, s=6, alpha=0.35, color=COLOURS[2], linewidths=0,
        label="short contexts, any sharpness", rasterized=True,
    )  # fmt: skip
    right.scatter(
        measured.bounds,
        measured.contractions,
        s=10,
        color=COLOURS[0],
        linewidths=0,
        label="long contexts",
        rasterized=True,
    )
    ends = np.array([GAMMA, float(measured.short_bounds.max())])
    right.plot(ends, ends, color="#000000", linewidth=1.2, label="bound")
    right.set_xlabel(r"$2(1 - \min_s M_n(s, s)) + \gamma$")
    right.set_ylabel("largest contraction factor of a layer")
    right.legend(frameon=False, fontsize=8)
    return figure
