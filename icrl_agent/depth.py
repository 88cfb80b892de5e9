"""Values of a context at a given depth, and at infinite depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl_agent.algorithms.kernel import fixed_point, spectral_radius
from icrl_agent.context import Context
from icrl_agent.model import SoftmaxICTD, affine_layer, chunked_layer, merge_transitions, merged_values
from icrl_agent.streaming.layers import (
    FIXED_POINT,
    LARGEST_SOLVED,
    MOST_LAYERS,
    RELATIVE_CHANGE,
    Depth,
    LayerWeights,
    no_limit,
)
from icrl_agent.streaming.observations import finite_values

__all__ = [
    "FIXED_POINT",
    "ContextValues",
    "Depth",
    "batch_values",
    "check_tolerance",
    "context_values",
    "effective_step",
    "layer_weights",
    "resolve_depth",
]

FloatArray = NDArray[np.float64]

#: Above this many distinct states no matrix of their number squared is made.
LARGEST_MERGED = 4096


def resolve_depth(model: SoftmaxICTD, n_layers: Depth | None) -> Depth:
    """Return the depth that is run; None = the model's own.

    Raises:
        ValueError: for a depth the model does not have.
    """
    if isinstance(n_layers, str):
        if n_layers != FIXED_POINT:
            raise ValueError(f"n_layers must be an integer of at least 1 or {FIXED_POINT!r}, got {n_layers!r}")
        if not model.shared:
            raise ValueError(
                f"{FIXED_POINT!r} needs looped weights, this model has {model.n_layers} layers of their own"
            )
        return FIXED_POINT
    return model.resolve_n_layers(n_layers)


def check_tolerance(tolerance: float | None, depth: Depth) -> float | None:
    """Return the largest change by a layer at which the layers stop; None = all run.

    Raises:
        ValueError: for one that is not a finite number of at least 0, or together with infinite depth.
    """
    if tolerance is None:
        return None
    number = isinstance(tolerance, int | float | np.integer | np.floating) and not isinstance(tolerance, bool)
    if not (number and 0 <= tolerance < float("inf")):
        raise ValueError(f"tolerance must be a finite number of at least 0 or None, got {tolerance!r}")
    if depth == FIXED_POINT:
        raise ValueError(f"give tolerance or {FIXED_POINT!r}, not both: the limit has no last layer")
    return float(tolerance)


def layer_weights(model: SoftmaxICTD, depth: Depth) -> LayerWeights:
    """What of the model acts in its first ``depth`` layers, as float64 arrays."""
    layers = range(1) if model.shared else range(int(depth))
    return LayerWeights(
        np.stack([model.attention_block(layer).detach().double().cpu().numpy() for layer in layers]),
        np.stack([model.value_entries(layer).detach().double().cpu().numpy() for layer in layers]),
    )


def effective_step(model: SoftmaxICTD, gamma: float) -> tuple[float, float, float]:
    """Discount factor, step size and reward scale of the first layer as weighted softmax TD.

    V's entries (w_reward, w_target, w_current) act as step size -w_current on the errors
    scale R + gamma' v(S') - v(S), with gamma' = -gamma w_target / w_current and scale = -w_reward / w_current.
    """
    w_reward, w_target, w_current = model.value_entries(0).double().tolist()
    if w_current == 0:
        return float("nan"), 0.0, float("nan")
    return -gamma * w_target / w_current, -w_current, -w_reward / w_current


class ContextValues(NamedTuple):
    """What the layers make of a context."""

    values: FloatArray
    """Of the context's states, (S,)."""
    last_layer_change: float
    """Largest change of any value by the last layer; 0 at infinite depth."""
    n_layers: Depth
    """Layers that ran."""


def context_values(
    model: SoftmaxICTD, context: Context, gamma: float, depth: Depth, tolerance: float | None = None
) -> ContextValues:
    """Run the layers on a context, at most ``depth`` of them, until one changes no value above ``tolerance``.

    Raises:
        ValueError: if the layers do not converge (fixed point; the spectral radius is named), or overflow.
    """
    few = len(context.features) <= LARGEST_MERGED
    with torch.no_grad():
        if depth == FIXED_POINT:
            solve = _solved if len(context.features) <= LARGEST_SOLVED else _iterated
            return ContextValues(solve(model, context, gamma), 0.0, FIXED_POINT)
        if few and tolerance is None:
            by_layer = merged_values(model, context.merged(model.attention_weight.device), gamma, depth)[:, 0]
            values, n_layers = by_layer[-1], depth
            change = float((values - by_layer[-2]).abs().max())
        else:
            layer = _layer(model, context, gamma)
            values, change, n_layers = _no_values(model, context), float("inf"), 0
            while n_layers < depth and not (tolerance is not None and change <= tolerance):
                step = layer(n_layers, values)
                values, change, n_layers = values + step, float(step.abs().max()), n_layers + 1
    return ContextValues(finite_values(np.asarray(values.cpu()), n_layers), change, n_layers)


def batch_values(
    model: SoftmaxICTD, contexts: Sequence[Context], gamma: float, depth: int, tolerance: float | None = None
) -> list[ContextValues]:
    """``context_values`` of contexts that number the same states and have equally many transitions, in one batch.

    Raises:
        ValueError: if the layers overflow on one of them.
    """
    device = model.attention_weight.device

    def stacked(name: str) -> Tensor:
        return torch.as_tensor(np.stack([getattr(context, name) for context in contexts]), device=device)

    features = torch.as_tensor(contexts[0].features, device=device)[None]
    arrays = [stacked(name) for name in ("source_state", "next_state", "rewards", "continues")]
    merged = merge_transitions(features.expand(len(contexts), -1, -1), *arrays)._replace(features=features)
    with torch.no_grad():
        by_layer = merged_values(model, merged, gamma, depth)
        # Each context has states of its own among those of all.
        own = torch.zeros(by_layer.shape[1:], dtype=torch.bool, device=device)
        own.scatter_(1, torch.cat([arrays[0], arrays[1], stacked("query_state")], dim=1), True)
        changes = ((by_layer[1:] - by_layer[:-1]).abs() * own).amax(dim=2).cpu().numpy()
    last = np.full(len(contexts), depth)
    if tolerance is not None:
        below = changes <= tolerance
        last = np.where(below.any(axis=0), below.argmax(axis=0) + 1, depth)
    values = by_layer.cpu().numpy()
    return [ContextValues(finite_values(values[n, i], n), float(changes[n - 1, i]), int(n)) for i, n in enumerate(last)]


def _no_values(model: SoftmaxICTD, context: Context) -> Tensor:
    return torch.zeros(len(context.features), dtype=torch.float64, device=model.attention_weight.device)


def _layer(model: SoftmaxICTD, context: Context, gamma: float) -> Callable[[int, Tensor], Tensor]:
    """Change of the state values (S,) by layer ``index``: an affine map that is kept, or attention in chunks."""
    merged = context.merged(model.attention_weight.device)
    dtype = merged.features.dtype
    gammas = torch.full((1,), gamma, dtype=dtype, device=merged.features.device)

    def weights(index: int) -> tuple[Tensor, Tensor]:
        return model.attention_block(index).to(dtype), model.value_entries(index).to(dtype)

    @lru_cache(maxsize=1)
    def affine(index: int) -> tuple[Tensor, Tensor]:
        return affine_layer(merged, *weights(index), gammas)

    def change(index: int, values: Tensor) -> Tensor:
        if len(context.features) > LARGEST_MERGED:
            return chunked_layer(merged, *weights(index), gamma, values)
        T, b = affine(0 if model.shared else index)
        return T[0] @ values + b[0] - values

    return change


def _solved(model: SoftmaxICTD, context: Context, gamma: float) -> FloatArray:
    layer_map = context.layer_map(model.attention_block(0).double().cpu().numpy())
    layer_gamma, step_size, scale = effective_step(model, gamma)
    if not len(layer_map.left):
        return np.zeros(len(context.features))
    radius = spectral_radius(layer_map, layer_gamma, step_size)
    if not radius < 1:
        raise no_limit(radius, gamma)
    limit = scale * fixed_point(layer_map, layer_gamma)
    values = np.zeros(len(context.features))
    # The layer map's columns are the transitions' two ends in turn, then the queries.
    values[context.column_states()] = limit[layer_map.column_state]
    return values


def _iterated(model: SoftmaxICTD, context: Context, gamma: float) -> FloatArray:
    layer = _layer(model, context, gamma)
    values = _no_values(model, context)
    change, growth = float("inf"), float("nan")
    for _ in range(MOST_LAYERS):
        step = layer(0, values)
        before, change = change, float(step.abs().max())
        values = values + step
        growth = change / before if np.isfinite(change) and before > 0 else growth
        if not np.isfinite(change):
            break
        if change <= RELATIVE_CHANGE * float(values.abs().max()):
            return np.asarray(values.cpu())
    raise no_limit(growth, gamma)
