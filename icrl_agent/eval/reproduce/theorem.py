"""Theorem 1 and Lemma 1: every layer of the transformer is one step of weighted softmax TD, in both forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from icrl_agent.algorithms.weighted_softmax_td import softmax_weights, weighted_softmax_td
from icrl_agent.eval.reproduce.chains import generator
from icrl_agent.eval.reproduce.claim import Check, Outcome, exactly
from icrl_agent.eval.reproduce.rounding import layer_error, propagated
from icrl_agent.figures import COLOURS, new_figure
from icrl_agent.model.transformer import SoftmaxICTD, attention_weights, dual_head_layer, tsm_layer
from icrl_agent.prompt import build_prompt, current_row

__all__ = ["FULL", "QUICK", "Measurements", "Sizes", "claim", "judge", "measure"]

FloatArray = NDArray[np.float64]

#: A layer of the literal transformer: (Z, A, V, gamma, source_mask, continues) -> Z.
Layer = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def _attending(layer: Layer) -> Layer:
    """The layer with its own attention, computed from the prompt as it stands."""

    def run(Z: Tensor, A: Tensor, V: Tensor, gamma: Tensor, source_mask: Tensor, continues: Tensor) -> Tensor:
        return layer(Z, V, attention_weights(Z, A, source_mask), gamma, source_mask, continues)

    return run


LAYERS: dict[str, Layer] = {"dual head": _attending(dual_head_layer), "one head + TSM": _attending(tsm_layer)}
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class Sizes:
    """How much is tested."""

    n_prompts: int
    n_transitions: int = 48
    n_states: int = 8
    feature_dim: int = 8
    n_layers: int = 20


QUICK, FULL = Sizes(n_prompts=64), Sizes(n_prompts=1000)


class Prompts(NamedTuple):
    """B random prompts: random moves, terminations, columns that are no source."""

    features: FloatArray
    """(B, n + 1, d); the sharpness, U(0, 5), is in their norm."""
    rewards: FloatArray
    """(B, n)."""
    source_mask: NDArray[np.bool_]
    """(B, n + 1)."""
    continues: FloatArray
    """(B, n + 1)."""
    gamma: FloatArray
    """(B,), U(0, 0.99)."""


class Measurements(NamedTuple):
    """Per layer, the largest gap over columns, (L, B), and what rounding may do."""

    gaps: Mapping[tuple[str, str], FloatArray]
    """By (layer form, dtype): current memory against weighted softmax TD."""
    bounds: Mapping[str, FloatArray]
    """By dtype."""
    lemma_gap: FloatArray
    """Dual head against one head, float64, random A and V."""
    lemma_bound: FloatArray


def draw_prompts(sizes: Sizes, seed: int = 0) -> Prompts:
    """Draw the prompts."""
    rng = generator(1, seed)
    batch, n = sizes.n_prompts, sizes.n_transitions
    table = rng.standard_normal((batch, sizes.n_states, sizes.feature_dim))
    table *= np.sqrt(rng.uniform(0, 5, (batch, 1, 1))) / np.linalg.norm(table, axis=2, keepdims=True)
    states = rng.integers(sizes.n_states, size=(batch, n + 1))
    source_mask = rng.random((batch, n + 1)) < 0.85
    source_mask[:, -1] = False
    return Prompts(
        features=np.take_along_axis(table, states[:, :, None], axis=1),
        rewards=rng.normal(size=(batch, n)),
        source_mask=source_mask,
        continues=(rng.random((batch, n + 1)) < 0.9).astype(np.float64),
        gamma=rng.uniform(0, 0.99, batch),
    )


def measure(sizes: Sizes, layers: Mapping[str, Layer] = LAYERS, seed: int = 0) -> Measurements:
    """Run both layer forms in both precisions beside the reference."""
    prompts = draw_prompts(sizes, seed)
    depth, d = sizes.n_layers, sizes.feature_dim
    expected = np.stack([_reference(prompts, at, depth) for at in range(sizes.n_prompts)], axis=1)  # (L + 1, B, n + 1)
    model = SoftmaxICTD.from_theory(d, sharpness=1.0, dtype=torch.float64).requires_grad_(False)
    theory = model.layer_weights(0)
    rng = torch.Generator().manual_seed(seed)
    A, V = (
        0.5 * torch.randn(mask.shape, generator=rng, dtype=torch.float64) * mask
        for mask in (model.attention_mask, model.value_mask)
    )
    values = {
        (name, dtype): _run(layer, prompts, *theory, DTYPES[dtype], depth)
        for name, layer in layers.items()
        for dtype in DTYPES
    }
    gaps = {key: np.abs(value - expected[1:]).max(axis=2) for key, value in values.items()}
    exact = _bound(prompts, *theory, torch.float64, expected)
    bounds = {"float64": 2 * exact, "float32": _bound(prompts, *theory, torch.float32, expected) + exact}
    first, second = (_run(layer, prompts, A, V, torch.float64, depth) for layer in layers.values())
    before = np.concatenate([np.zeros_like(first[:1]), first])
    lemma_bound = 2 * _bound(prompts, A, V, torch.float64, before)
    return Measurements(gaps, bounds, np.abs(first - second).max(axis=2), lemma_bound)


def judge(measured: Measurements) -> list[Check]:
    """Every gap is within what rounding may do."""
    checks = [
        exactly(
            f"{name}, {dtype}: largest gap to weighted softmax TD over its rounding bound",
            float((gap / measured.bounds[dtype]).max()),
            "at most",
            1.0,
        )
        for (name, dtype), gap in measured.gaps.items()
    ]
    lemma = float((measured.lemma_gap / measured.lemma_bound).max())
    return [
        *checks,
        exactly("Lemma 1, random A and V: largest gap of the two forms over its bound", lemma, "at most", 1),
    ]


def claim(quick: bool) -> Outcome:
    """Measure, judge, draw."""
    measured = measure(QUICK if quick else FULL)
    table = [
        {
            "layer": name,
            "precision": dtype,
            "largest gap": f"{gap.max():.2g}",
            "rounding bound there": f"{measured.bounds[dtype].flat[gap.argmax()]:.2g}",
        }
        for (name, dtype), gap in measured.gaps.items()
    ]
    curves = {
        f"gap, {name}, {dtype}": [(layer + 1, float(value)) for layer, value in enumerate(gap.max(axis=1))]
        for (name, dtype), gap in measured.gaps.items()
    }
    n_prompts = measured.lemma_gap.shape[1]
    caption = (
        f"Largest difference between the transformer's current memory and weighted softmax TD, over all columns of"
        f" {n_prompts} prompts with terminations and masked columns. Dotted: the rounding bound of the worst prompt."
    )
    return Outcome(judge(measured), {"gap": (_draw(measured), caption)}, table, curves)


def _reference(prompts: Prompts, at: int, n_layers: int) -> FloatArray:
    return weighted_softmax_td(
        prompts.features[at],
        prompts.rewards[at],
        float(prompts.gamma[at]),
        n_layers,
        continues=prompts.continues[at],
        source_mask=prompts.source_mask[at],
    )


def _run(layer: Layer, prompts: Prompts, A: Tensor, V: Tensor, dtype: torch.dtype, n_layers: int) -> FloatArray:
    """Current memory after 1, ..., n_layers layers, (L, B, n + 1)."""
    Z = torch.from_numpy(build_prompt(prompts.features, prompts.rewards)).to(dtype)
    gamma = torch.from_numpy(prompts.gamma).to(dtype)[:, None]
    masks = torch.from_numpy(prompts.source_mask), torch.from_numpy(prompts.continues).to(dtype)
    values = []
    with torch.no_grad():
        for _ in range(n_layers):
            Z = layer(Z, A.to(dtype), V.to(dtype), gamma, *masks)
            values.append(Z[:, current_row(prompts.features.shape[2])].double().numpy())
    return np.stack(values)


def _bound(prompts: Prompts, A: Tensor, V: Tensor, dtype: torch.dtype, values: FloatArray) -> FloatArray:
    """Rounding bound of the values after each layer, (L, B); values (L + 1, B, n + 1) from before the first on."""
    d, n = prompts.features.shape[2], prompts.rewards.shape[1]
    attention = A[:d, :d].numpy()
    w_reward, w_target, w_current = V[-1, d:].tolist()
    scores = prompts.features @ (prompts.features @ attention).transpose(0, 2, 1)
    K = softmax_weights(np.where(prompts.source_mask[:, None, :], scores, -np.inf))  # (B, query, source)
    following = (prompts.gamma[:, None] * prompts.continues)[:, None, :-1] * K[:, :, :-1]
    T = np.eye(n + 1) + w_current * K
    T[:, :, 1:] += w_target * following
    largest = np.abs(values[:-1]).max(axis=2)  # (L, B)
    td_scale = abs(w_reward) * np.abs(prompts.rewards).max(axis=1) + (abs(w_target) + abs(w_current)) * largest
    size = np.abs(prompts.features) @ np.abs(attention) @ np.abs(prompts.features).transpose(0, 2, 1)
    local = layer_error(torch.finfo(dtype).eps / 2, n, d, size.max(axis=(1, 2)), td_scale, largest)
    # The dual head keeps its target memory by a sum of its own, which drifts from the shifted current memory.
    drift = np.cumsum(np.concatenate([np.zeros_like(local[:1]), local[:-1]]), axis=0)
    return propagated(T, local + 2 * abs(w_target) * drift)


def _draw(measured: Measurements) -> Figure:
    figure, axis = new_figure()
    for number, ((name, dtype), gap) in enumerate(measured.gaps.items()):
        layers = np.arange(1, len(gap) + 1)
        style = "-" if number < 2 else "--"
        axis.plot(layers, gap.max(axis=1), style, color=COLOURS[number % 2], label=f"{name}, {dtype}", linewidth=1.8)
    for dtype, bound in measured.bounds.items():
        worst = bound.max(axis=1)
        axis.plot(np.arange(1, len(bound) + 1), worst, ":", color="#000000", linewidth=1.4)
        axis.annotate(
            f"what rounding may do, {dtype}",
            (len(bound), worst[-1]),
            (0, -14),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
    axis.set_yscale("log")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("layer")
    axis.set_ylabel("largest gap to weighted softmax TD")
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure
