"""Random Boyan chains, many at once, and long contexts as counts: what most claims are tested on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl_agent.algorithms.weighted_softmax_td import softmax_weights
from icrl_agent.model.merged import MergedContext, affine_layer
from icrl_agent.train.tasks import draw_tasks, solve_tasks

__all__ = [
    "Chains",
    "Layer",
    "as_context",
    "count_kernels",
    "deep_limit",
    "draw_chains",
    "generator",
    "theorem_layer",
    "walk",
    "walk_complete",
]

FloatArray = NDArray[np.float64]

#: One layer on a batch of contexts: (context, gamma (B,)) -> T (B, S, S), b (B, S) with v <- T v + b.
Layer = Callable[[MergedContext, Tensor], tuple[Tensor, Tensor]]

#: First word of the seeds of this package: its tasks are nobody's training or test tasks.
SEED_WORD = 0x7265


class Chains(NamedTuple):
    """B chains of S states, solved."""

    transition: FloatArray
    """P, (B, S, S)."""
    reward: FloatArray
    """r, (B, S)."""
    mu: FloatArray
    """Stationary distributions, (B, S)."""
    values: FloatArray
    """v, (B, S)."""


def generator(*words: int) -> np.random.Generator:
    """The random generator of one purpose."""
    return np.random.default_rng([SEED_WORD, *words])


def draw_chains(rng: np.random.Generator, n_chains: int, n_states: int, gamma: float) -> Chains:
    """Draw random Boyan chains and solve them."""
    tasks = draw_tasks(rng, "boyan", np.full(n_chains, n_states))
    values, mu = solve_tasks(tasks, np.full(n_chains, gamma))
    return Chains(tasks.transition, tasks.reward, mu, values)


def walk(rng: np.random.Generator, chains: Chains, lengths: Sequence[int]) -> FloatArray:
    """Walk every chain from its stationary distribution; successor counts after each of the increasing lengths.

    Returns:
        (len(lengths), B, S, S): transitions from state to state among the first n.
    """
    n_chains, n_states = chains.reward.shape
    chain = np.arange(n_chains)
    cumulative, start = np.cumsum(chains.transition, axis=2), np.cumsum(chains.mu, axis=1)
    for sums in (cumulative, start):  # rounding must not lead past the last state that can be entered
        sums[sums >= sums[..., -1:]] = 1.0
    counts = np.zeros((n_chains, n_states, n_states))
    state = (start <= rng.random((n_chains, 1))).sum(axis=1)
    taken, snapshots = 0, []
    for length in lengths:
        for draws in rng.random((length - taken, n_chains, 1)):
            following = (cumulative[chain, state] <= draws).sum(axis=1)
            counts[chain, state, following] += 1.0
            state = following
        taken = length
        snapshots.append(counts.copy())
    return np.stack(snapshots)


def walk_complete(
    rng: np.random.Generator, n_chains: int, n_states: int, length: int, gamma: float = 0.0
) -> tuple[Chains, FloatArray]:
    """Chains with contexts in which every state was left, and the contexts' successor counts (B, S, S)."""
    chains = draw_chains(rng, 4 * n_chains, n_states, gamma)
    (successors,) = walk(rng, chains, (length,))
    complete = np.flatnonzero((successors.sum(axis=2) > 0).all(axis=1))[:n_chains]
    assert len(complete) == n_chains
    return Chains(*(part[complete] for part in chains)), successors[complete]


def as_context(features: FloatArray, successors: FloatArray, reward: FloatArray) -> MergedContext:
    """Contexts in float64 from features (B, S, d), successor counts (B, S, S) and rewards (B, S)."""
    counts = successors.sum(axis=2)
    return MergedContext(*(torch.from_numpy(part) for part in (features, counts, counts * reward, successors)))


def count_kernels(features: FloatArray, counts: FloatArray) -> FloatArray:
    """M_n from counts, in NumPy: M_n(s, u) proportional to N(u) exp <x(s), x(u)>, (B, S, S)."""
    with np.errstate(divide="ignore"):
        return softmax_weights(features @ features.transpose(0, 2, 1) + np.log(counts)[:, None, :])


def theorem_layer(
    context: MergedContext, gamma: Tensor, entries: Sequence[float] = (1.0, 1.0, -1.0)
) -> tuple[Tensor, Tensor]:
    """The transformer's layer with A = diag(I, 0) (sharpness is in the features) and V's free entries."""
    attention = torch.eye(context.features.shape[-1], dtype=context.features.dtype)
    return affine_layer(context, attention, torch.tensor(entries, dtype=context.features.dtype), gamma)


def deep_limit(T: Tensor, b: Tensor, doublings: int = 16) -> FloatArray:
    """Values after 2^doublings layers from 0, (B, S): applying v -> T v + b twice is v -> T^2 v + (T b + b).

    Infinite or NaN where the layers diverge.

    >>> deep_limit(torch.tensor([[[0.5]]], dtype=torch.float64), torch.tensor([[1.0]], dtype=torch.float64))
    array([[2.]])
    """
    for _ in range(doublings):
        b = (T @ b[..., None])[..., 0] + b
        T = T @ T
    return np.asarray(b)
