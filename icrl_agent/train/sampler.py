"""Batches of prompts for pretraining: fresh tasks, one trajectory each, a window that slides along it.

Everything is vectorised over tasks and windows; time is the only loop. A batch is a pure function of (config, split,
seed, step), so training can stop and go on anywhere without keeping a random generator's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl_agent.model.merged import MergedContext
from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.tasks import TaskBatch, draw_features, draw_tasks, represent, solve_tasks

__all__ = [
    "PromptBatch",
    "Split",
    "Trajectories",
    "draw_changes",
    "roll_out",
    "sample_batch",
    "sample_generator",
    "window_sums",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

Split = Literal["train", "validation", "test"]

#: First word of the seed of each split: their streams never overlap.
_SPLIT_WORD: dict[Split, int] = {"train": 0x7261, "validation": 0x7661, "test": 0x7465}


class Trajectories(NamedTuple):
    """One trajectory per task."""

    states: IntArray
    """S_0 .. S_m, (T, m + 1)."""
    rewards: FloatArray
    """R_1 .. R_m, (T, m)."""


class PromptBatch(NamedTuple):
    """T tasks times W + 1 prompts: the window of n transitions at W + 1 consecutive steps.

    Prompt w has the transitions w .. w + n - 1 and the query S_{w+n}; the step between the queries of prompts w and
    w + 1 is the transition w + n.
    """

    context: MergedContext
    """Contexts of all prompts, batch axes (T, W + 1), features (T, 1, S, d)."""
    query: Tensor
    """State of each query, int64 (T, W + 1)."""
    reward: Tensor
    """Reward on leaving the query of prompt w, (T, W)."""
    gamma: Tensor
    """Discount factor of each task, (T, 1)."""
    features: Tensor
    """(T, S, d)."""
    true_values: Tensor
    """Exact values, (T, S)."""
    n_layers: int
    """Depth drawn for this batch."""

    def query_values(self, values: Tensor) -> Tensor:
        """Pick the queries' values (T, W + 1) from the values of all states (T, W + 1, S)."""
        return values.gather(2, self.query[:, :, None])[:, :, 0]


def sample_generator(split: Split, seed: int, step: int) -> np.random.Generator:
    """The random generator of one step of one split."""
    return np.random.default_rng([_SPLIT_WORD[split], seed, step])


def sample_batch(config: PretrainConfig, split: Split, seed: int, step: int) -> PromptBatch:
    """Draw the batch of one step."""
    rng = sample_generator(split, seed, step)
    n_tasks, n_windows = config.tasks_per_step, config.windows_per_task
    context_length = _log_uniform_integer(rng, config.context_length)
    depth = int(rng.integers(config.n_layers[0], config.n_layers[1] + 1))
    n_states = rng.integers(config.n_states[0], config.n_states[1] + 1, n_tasks)
    gamma = rng.uniform(*config.gamma, n_tasks)
    family = config.families[int(rng.integers(len(config.families)))]
    fewest, most = config.actions_of(family)
    n_actions = int(rng.integers(fewest, most + 1))
    tasks = draw_tasks(rng, family, n_states, n_actions)
    noise = rng.uniform(*config.reward_noise, n_tasks)
    features = draw_features(rng, config.features, n_tasks, int(n_states.max()), config.feature_dim, n_actions)
    if family == "representable":
        tasks = represent(rng, tasks, features, gamma)
    changes = draw_changes(rng, tasks, context_length)
    trajectories = roll_out(rng, tasks, context_length + n_windows, noise, changes)
    values, _ = solve_tasks(tasks, gamma)
    sums = window_sums(trajectories, context_length, n_windows + 1, tasks.reward.shape[1])

    def as_float(array: FloatArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).float()

    x = as_float(features)
    return PromptBatch(
        context=MergedContext(x[:, None], *(as_float(part) for part in sums)),
        query=torch.from_numpy(trajectories.states[:, context_length : context_length + n_windows + 1].copy()),
        reward=as_float(trajectories.rewards[:, context_length:]),
        gamma=as_float(gamma)[:, None],
        features=x,
        true_values=as_float(values),
        n_layers=depth,
    )


def draw_changes(rng: np.random.Generator, tasks: TaskBatch, context_length: int) -> IntArray:
    """Transitions at which trajectories go over to the next table, ascending, (len(tasks.earlier),).

    Uniform over the first window, whose last transition and all later ones follow ``tasks.transition``.
    """
    return np.sort(rng.integers(context_length, size=len(tasks.earlier)))


def roll_out(
    rng: np.random.Generator, tasks: TaskBatch, n_steps: int, noise: FloatArray, changes: Sequence[int] | IntArray = ()
) -> Trajectories:
    """Walk every task for n_steps from its initial distribution.

    Args:
        rng: source of randomness.
        tasks: T tasks.
        n_steps: transitions.
        noise: the rewards' standard deviation, (T,).
        changes: the first transition of each table but the first, ascending, one per table of ``tasks.earlier``.
    """
    n_tasks = len(tasks.reward)
    task = np.arange(n_tasks)
    cumulative = np.cumsum(np.stack([*tasks.earlier, tasks.transition]), axis=3)
    initial = np.cumsum(tasks.initial, axis=1)
    # Rounding must not lead past the last state that can be entered.
    for sums in (cumulative, initial):
        sums[sums >= sums[..., -1:]] = 1.0
    table = np.searchsorted(changes, np.arange(n_steps), side="right")
    draws = rng.random((n_steps + 1, n_tasks, 1))
    states = np.empty((n_steps + 1, n_tasks), np.intp)
    states[0] = (initial <= draws[0]).sum(axis=1)
    for t in range(n_steps):
        states[t + 1] = (cumulative[table[t], task, states[t]] <= draws[t + 1]).sum(axis=1)
    states = states.T
    rewards = np.take_along_axis(tasks.reward, states[:, :-1], axis=1)
    return Trajectories(states, rewards + noise[:, None] * rng.standard_normal(rewards.shape))


def window_sums(
    trajectories: Trajectories, context_length: int, n_windows: int, n_states: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums by state of the windows [w, w + context_length), w = 0 .. n_windows - 1, each in O(1) from the one before.

    Returns:
        Counts (T, W, S), reward sums (T, W, S), successor counts (T, W, S, S).
    """
    states, rewards = trajectories
    n_tasks = len(states)
    task, window = np.arange(n_tasks)[:, None], np.arange(1, n_windows)[None, :]
    enters, leaves = window + context_length - 1, window - 1  # transitions that window w gains and loses

    def slide(cells: IntArray, values: FloatArray, size: int) -> FloatArray:
        change = np.zeros((n_tasks, n_windows, size))
        first = task * size + cells[:, :context_length]
        change[:, 0] = np.bincount(first.reshape(-1), values[:, :context_length].reshape(-1), n_tasks * size).reshape(
            n_tasks, size
        )
        change[task, window, cells[task, enters]] = values[task, enters]
        np.subtract.at(change, (task, window, cells[task, leaves]), values[task, leaves])
        return np.cumsum(change, axis=1)

    ones = np.ones_like(rewards)
    moves = states[:, :-1] * n_states + states[:, 1:]
    counts = np.rint(slide(states[:, :-1], ones, n_states))
    successors = np.rint(slide(moves, ones, n_states * n_states)).reshape(n_tasks, n_windows, n_states, n_states)
    return counts, slide(states[:, :-1], rewards, n_states) * (counts > 0), successors


def _log_uniform_integer(rng: np.random.Generator, bounds: tuple[int, int]) -> int:
    low, high = bounds
    return min(int(np.exp(rng.uniform(np.log(low), np.log(high + 1)))), high)
