"""Softmax against linear attention: weighted softmax TD beside the predecessor's in-context batch TD."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from icrl_agent.eval.reproduce.chains import Layer, theorem_layer
from icrl_agent.eval.reproduce.claim import Check, Outcome, mean_interval
from icrl_agent.figures import COLOURS, new_figure
from icrl_agent.model.merged import MergedContext, iterate_affine
from icrl_agent.train.tasks import FamilyName, FeatureKind
from icrl_agent.train.validation import Cell, Contexts, draw_contexts, weighted_errors

__all__ = ["FULL", "QUICK", "Family", "Measurements", "Sizes", "claim", "judge", "linear_layer", "measure"]

FloatArray = NDArray[np.float64]

GAMMA, N_STATES = 0.9, 10
STEP_SIZES = tuple(float(a) for a in np.geomspace(0.1, 100.0, 25))
SHARPNESSES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)


class Family(NamedTuple):
    """Tasks and features."""

    name: str
    family: FamilyName
    features: FeatureKind
    feature_dim: int
    softmax_wins: bool
    """Whether the claim speaks of it: not where v is linear in few features, which linear attention alone knows."""


FAMILIES = (
    Family("random unit features, d = 16", "boyan", "random_unit", 16, True),
    Family("U(-1, 1) features, d = 4", "boyan", "random_uniform", 4, True),
    Family("U(-1, 1) features, d = 4, v linear in them", "representable", "random_uniform", 4, False),
)


@dataclass(frozen=True)
class Sizes:
    """How much is tested."""

    n_tasks: int
    lengths: tuple[int, ...] = (16, 64, 256, 1024)
    depths: tuple[int, ...] = (1, 3, 10, 30, 100)


QUICK, FULL = Sizes(256), Sizes(2000)


class Measurements(NamedTuple):
    """Squared error over the mean square of v, per task, by (family, length, depth)."""

    softmax: Mapping[tuple[str, int, int], FloatArray]
    linear: Mapping[tuple[str, int, int], FloatArray]
    settings: Mapping[tuple[str, int, int], Sequence[float]]
    """Sharpness and step size that did best on other tasks."""


def linear_layer(context: MergedContext, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """One layer of linear attention with its batch-TD weights: v <- v + (1 / n) X X' sum_k delta_k e_{S_{k-1}}.

    Source: Wang et al. (2024), "Transformers learn temporal difference methods for in-context reinforcement learning".
    """
    x, counts, reward_sum, successors = context
    gram = x @ x.transpose(1, 2) / counts.sum(dim=1)[:, None, None]
    T = torch.eye(x.shape[1], dtype=x.dtype) + gram @ (gamma[:, None, None] * successors - torch.diag_embed(counts))
    return T, (gram @ reward_sum[..., None])[..., 0]


def measure(
    sizes: Sizes, families: Sequence[Family] = FAMILIES, softmax: Layer = theorem_layer, seed: int = 0
) -> Measurements:
    """Tune both on other tasks, for every length and depth of its own, then compare on the same test contexts."""
    found: list[dict[tuple[str, int, int], FloatArray]] = [{}, {}]
    chosen: dict[tuple[str, int, int], list[float]] = {}
    for family, length in itertools.product(families, sizes.lengths):
        others, test = (
            draw_contexts(
                Cell(family.family, N_STATES, GAMMA, length),
                sizes.n_tasks,
                family.feature_dim,
                split=split,
                seed=7_000_000 + 1000 * seed + length,
                features=family.features,
            )
            for split in ("validation", "test")
        )
        scale = weighted_errors(np.zeros_like(test.true_values), test).mean()
        for place, (layer, settings) in enumerate(((softmax, SHARPNESSES), (linear_layer, STEP_SIZES))):
            scores = np.stack([_errors(layer, others, setting, place, sizes.depths) for setting in settings])
            best = np.log(scores).mean(axis=2).argmin(axis=0)  # per depth
            for number, depth in enumerate(sizes.depths):
                key = family.name, length, depth
                chosen.setdefault(key, []).append(settings[best[number]])
                found[place][key] = _errors(layer, test, settings[best[number]], place, (depth,))[0] / scale
    return Measurements(found[0], found[1], chosen)


def judge(measured: Measurements, families: Sequence[Family] = FAMILIES) -> list[Check]:
    """Softmax has the smaller error at the largest length at every depth, and at the largest depth at every length."""
    lengths, depths = sorted({n for _, n, _ in measured.softmax}), sorted({depth for _, _, depth in measured.softmax})
    checks = []
    for family in families:
        if not family.softmax_wins:
            continue
        places = [(lengths[-1], depth) for depth in depths] + [(length, depths[-1]) for length in lengths[:-1]]
        for length, depth in places:
            key = family.name, length, depth
            mean, (low, high) = mean_interval(np.log(measured.softmax[key] / measured.linear[key]))
            what = f"{family.name}, n = {length}, {depth} layers: error ratio, softmax over linear, geometric mean"
            checks.append(Check(what, float(np.exp(mean)), (float(np.exp(low)), float(np.exp(high))), "below", 1.0))
    return checks


def claim(quick: bool) -> Outcome:
    """Measure, judge, draw."""
    sizes = QUICK if quick else FULL
    measured = measure(sizes)
    table = []
    for key in measured.softmax:
        name, length, depth = key
        mean, (low, high) = mean_interval(np.log(measured.softmax[key] / measured.linear[key]))
        sharpness, step_size = measured.settings[key]
        table.append(
            {
                "features": name,
                "n": length,
                "layers": depth,
                "softmax": f"{_geometric(measured.softmax[key]):.3g}",
                "linear": f"{_geometric(measured.linear[key]):.3g}",
                "ratio": f"{np.exp(mean):.3f} [{np.exp(low):.3f}, {np.exp(high):.3f}]",
                "sharpness": f"{sharpness:g}",
                "step size": f"{step_size:.3g}",
            }
        )
    caption = (
        f"Normalised squared error, geometric mean over {sizes.n_tasks} random Boyan chains (gamma {GAMMA:g});"
        " sharpness and linear attention's step size tuned on other tasks, for every length and depth. Top: against"
        f" depth at n = {sizes.lengths[-1]}. Bottom: against length at {sizes.depths[-1]} layers. Where v is linear in"
        " four known features, linear attention is told so and may win; the claim does not speak of it."
    )
    return Outcome(judge(measured), {"errors": (_draw(measured, sizes), caption)}, table)


def _errors(layer: Layer, contexts: Contexts, setting: float, place: int, depths: Sequence[int]) -> FloatArray:
    """Squared errors, (n_depths, B); of sharpness (place 0) or step size (place 1) ``setting``; inf where diverging."""
    x = contexts.features * (np.sqrt(setting) if place == 0 else 1.0)
    merged = MergedContext(
        *(torch.from_numpy(a) for a in (x, contexts.counts, contexts.reward_sum, contexts.successors))
    )
    T, b = layer(merged, torch.from_numpy(contexts.gamma))
    if place == 1:
        identity = torch.eye(T.shape[1], dtype=T.dtype)
        T, b = identity + setting * (T - identity), setting * b
    values = np.asarray(iterate_affine(T, b, max(depths)))
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.stack([weighted_errors(values[depth], contexts) for depth in depths])
    return np.where(np.isfinite(errors), errors, np.inf)


def _geometric(errors: FloatArray) -> float:
    return float(np.exp(np.log(errors).mean()))


def _draw(measured: Measurements, sizes: Sizes) -> Figure:
    figure, axis = new_figure(10.5, 5.6)
    figure.delaxes(axis)
    panels = figure.subplots(2, len(FAMILIES), sharey="col", squeeze=False)
    kinds = ("softmax attention", measured.softmax), ("linear attention", measured.linear)
    for column, family in enumerate(FAMILIES):
        for row, (xs, keys) in enumerate(
            (
                (sizes.depths, [(family.name, sizes.lengths[-1], depth) for depth in sizes.depths]),
                (sizes.lengths, [(family.name, length, sizes.depths[-1]) for length in sizes.lengths]),
            )
        ):
            panel = panels[row, column]
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(visible=True, color="#E4E4E4", linewidth=0.8)
            for number, (label, errors) in enumerate(kinds):
                means = [_geometric(errors[key]) for key in keys]
                panel.plot(xs, means, "o-", color=COLOURS[number], linewidth=1.8, markersize=4, label=label)
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_xlabel("layers" if row == 0 else "context length n")
        panels[0, column].set_title(family.name, fontsize=9)
    for row in range(2):
        panels[row, 0].set_ylabel("normalised error")
    panels[0, 0].legend(frameon=False, fontsize=8)
    return figure
