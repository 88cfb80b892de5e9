"""How sure is an estimate? The bootstrap through the layers: the same context with its transitions weighted anew.

A replicate gives every transition (or every episode, where there are many) an independent weight from Exp(1), which the
attention counts as so many visits: Rubin's Bayesian bootstrap, in which no state loses all of its data as under
multinomial weights. The standard error is half the distance between the two quantiles of the replicates that lie one
standard deviation from the middle of a normal distribution: a replicate whose layers diverge, as those of a few may
where kernels are blunt, does not move it. It covers the luck of the transitions, not the bias of a kernel that is too
blunt or of states that were hardly visited.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl_agent.context import Context
from icrl_agent.depth import FIXED_POINT, Depth
from icrl_agent.model import SoftmaxICTD, affine_layer, iterate_affine, merge_transitions
from icrl_agent.transitions import Transitions

__all__ = ["bootstrap_stderr", "resampled_units"]

FloatArray = NDArray[np.float64]

REPLICATES = 100
#: Probabilities of a normal distribution one standard deviation below and above its mean.
NORMAL_SPREAD = (0.15865525393145707, 0.8413447460685429)
#: From this many episodes on, episodes are weighted instead of transitions.
FEWEST_EPISODES = 50
#: Replicates that are evaluated at once hold at most this many numbers.
LARGEST_BATCH = 4_000_000
#: Contexts with more states share one attention matrix among all replicates.
LARGEST_MERGED = 512


def bootstrap_stderr(
    model: SoftmaxICTD,
    context: Context,
    units: NDArray[np.intp],
    gamma: float,
    n_layers: Depth,
    n_replicates: int = REPLICATES,
    seed: int = 0,
) -> FloatArray:
    """Standard error of every state's value, float64 (S,), reward units.

    Args:
        model: the transformer.
        context: n transitions between S states.
        units: (n,), transitions of one unit share their weight, see ``resampled_units``.
        gamma: discount factor.
        n_layers: depth; infinite depth is taken as 14 / (1 - gamma) layers, at most 10,000.
        n_replicates: of the bootstrap, at least 2.
        seed: of the weights.

    Source: Rubin (1981), "The Bayesian Bootstrap".
    """
    depth = min(10_000, math.ceil(14 / max(1 - gamma, 1e-4))) if n_layers == FIXED_POINT else int(n_layers)
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=(n_replicates, int(units.max()) + 1))[:, units]
    largest = float(np.abs(context.rewards).max()) or 1.0
    context = dataclasses.replace(context, rewards=context.rewards / largest)
    few = len(context.features) <= LARGEST_MERGED
    with torch.no_grad():
        values = (_merged_replicates if few else _shared_replicates)(model, context, weights, gamma, depth)
    low, high = np.nanquantile(values.double().cpu().numpy(), NORMAL_SPREAD, axis=0)
    return np.asarray(largest * (high - low) / 2)


def resampled_units(transitions: Transitions) -> NDArray[np.intp]:
    """Unit of every transition, (n,): its episode where at least 50 were recorded, else itself."""
    episodes = transitions.episodes()
    return episodes if episodes.max() + 1 >= FEWEST_EPISODES else np.arange(len(episodes))


def _merged_replicates(model: SoftmaxICTD, context: Context, weights: FloatArray, gamma: float, depth: int) -> Tensor:
    """Values (B, S) of every replicate: a batch of contexts in the merged engine."""
    device = model.attention_weight.device
    size = max(1, LARGEST_BATCH // len(context.features) ** 2)
    values = []
    for some in np.array_split(weights, -(-len(weights) // size)):

        def repeated(array: NDArray[np.generic], n: int = len(some)) -> Tensor:
            return torch.as_tensor(array, device=device).expand(n, *array.shape)

        merged = merge_transitions(
            repeated(context.features),
            repeated(context.source_state),
            repeated(context.next_state),
            repeated(context.rewards),
            repeated(context.continues),
            torch.as_tensor(some, device=device),
        )
        merged = merged._replace(features=merged.features[:1])
        gammas = torch.full((len(some),), gamma, dtype=torch.float64, device=device)
        v = torch.zeros_like(merged.counts)
        for index in range(1 if model.shared else depth):
            T, b = affine_layer(
                merged, model.attention_block(index).double(), model.value_entries(index).double(), gammas
            )
            v = iterate_affine(T, b, depth)[-1] if model.shared else (T @ v[..., None])[..., 0] + b
        values.append(v)
    return torch.cat(values)


def _shared_replicates(model: SoftmaxICTD, context: Context, weights: FloatArray, gamma: float, depth: int) -> Tensor:
    """Values (B, S) in single precision: all replicates' TD errors through one matrix of attention."""
    device = model.attention_weight.device

    def single(array: NDArray[np.generic]) -> Tensor:
        return torch.as_tensor(array, dtype=torch.float32, device=device)

    x, w = single(context.features), single(weights.T)
    left, source = (torch.as_tensor(a, device=device) for a in np.unique(context.source_state, return_inverse=True))
    following = torch.as_tensor(context.next_state, device=device)
    rewards, continues = single(context.rewards)[:, None], single(context.continues)[:, None]
    v = torch.zeros(len(x), w.shape[1], device=device)

    def by_source(rows: Tensor) -> Tensor:
        return torch.zeros(len(left), w.shape[1], device=device).index_add_(0, source, rows)

    counts = by_source(w)
    for index in range(depth):
        if index == 0 or not model.shared:
            scores = x @ (x[left] @ model.attention_block(index).float()).T
            attention = scores.sub_(scores.amax(dim=1, keepdim=True)).exp_()
            normaliser = attention @ counts
        w_reward, w_target, w_current = model.value_entries(index).float()
        delta = w_reward * rewards + w_target * gamma * continues * v[following] + w_current * v[left][source]
        v = v + attention @ by_source(w * delta) / normaliser
    return v.T
