"""Random tasks in batches: Markov reward processes drawn and solved for many tasks at once.

The same families as ``icrl_agent.envs.tasks``, vectorised over tasks of different sizes: a task with fewer states than
the widest is padded with states that are never entered.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FamilyName", "TaskBatch", "draw_features", "draw_tasks", "represent", "solve_tasks"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

#: Families of tasks: random Boyan chains, the same with v linear in random features, Garnet processes under random
#: policies, rings of states with random drift.
FamilyName = Literal["boyan", "representable", "garnet", "loop"]
#: Features of states; "random_fourier" are those of a state's index (lengthscale 1), where neighbours resemble.
FeatureKind = Literal["random_unit", "random_uniform", "one_hot", "random_fourier"]

#: Actions and successors per state-action pair of the Garnet family.
GARNET_ACTIONS, GARNET_BRANCHING = 4, 3


class TaskBatch(NamedTuple):
    """T Markov reward processes with up to S states each."""

    transition: FloatArray
    """P, (T, S, S); padding states loop on themselves."""
    reward: FloatArray
    """r, (T, S); 0 for padding."""
    initial: FloatArray
    """(T, S)."""
    n_states: IntArray
    """States that are real, (T,)."""


def draw_tasks(rng: np.random.Generator, family: FamilyName, n_states: IntArray) -> TaskBatch:
    """Draw one task per entry of ``n_states`` (each at least 2) from a family.

    Tasks of the family "representable" are Boyan chains whose rewards ``represent`` makes from the features.

    >>> draw_tasks(np.random.default_rng(0), "loop", np.array([3, 5])).transition.shape
    (2, 5, 5)
    """
    n_tasks, width = len(n_states), int(n_states.max())
    real = np.arange(width) < n_states[:, None]
    if family in ("boyan", "representable"):
        transition = _boyan_transitions(rng, n_states, width)
    elif family == "garnet":
        transition = _garnet_transitions(rng, real)
    else:
        transition = _loop_transitions(rng, n_states, width)
    transition = np.where(real[:, :, None], transition, np.eye(width))
    reward = rng.uniform(-1.0, 1.0, (n_tasks, width)) * real
    initial = rng.uniform(0.01, 0.99, (n_tasks, width)) * real
    initial /= initial.sum(axis=1, keepdims=True)
    return TaskBatch(transition, reward, initial, n_states)


def represent(rng: np.random.Generator, tasks: TaskBatch, features: FloatArray, gamma: FloatArray) -> TaskBatch:
    """The same tasks with rewards that make v linear in their features: v = X w, w ~ N(0, I), r = (I - gamma P) v.

    Args:
        rng: draws w.
        tasks: T tasks.
        features: X, (T, S, d).
        gamma: discount factor at which v is linear, (T,).
    """
    real = np.arange(features.shape[1]) < tasks.n_states[:, None]
    values = (features @ rng.standard_normal((len(features), features.shape[2], 1)))[..., 0] * real
    reward = values - gamma[:, None] * (tasks.transition @ values[..., None])[..., 0]
    return tasks._replace(reward=reward * real)


def solve_tasks(tasks: TaskBatch, gamma: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Exact values and stationary distributions, each (T, S); padding states get 0.

    Where a task has several closed classes, mu is the long-run distribution from ``initial``.

    >>> tasks = draw_tasks(np.random.default_rng(0), "loop", np.array([4]))
    >>> values, mu = solve_tasks(tasks, np.array([0.9]))
    >>> bool(np.allclose(values[0], tasks.reward[0] + 0.9 * tasks.transition[0] @ values[0]))
    True
    """
    identity = np.eye(tasks.transition.shape[1])
    values = np.linalg.solve(identity - gamma[:, None, None] * tasks.transition, tasks.reward[..., None])[..., 0]
    # Powers of the lazy chain, which has the same stationary distribution and no period.
    lazy = 0.5 * (identity + tasks.transition)
    for _ in range(20):
        lazy = lazy @ lazy
    mu = (tasks.initial[:, None, :] @ lazy)[:, 0]
    return np.asarray(values), np.asarray(mu / mu.sum(axis=1, keepdims=True))


def draw_features(rng: np.random.Generator, kind: FeatureKind, n_tasks: int, n_states: int, dim: int) -> FloatArray:
    """Features of every state, redrawn per task, (T, S, dim).

    Raises:
        ValueError: for one-hot features with fewer dimensions than states.
    """
    if kind == "one_hot":
        if dim < n_states:
            raise ValueError(f"one_hot features of {n_states} states need feature_dim of at least that, got {dim}")
        return np.broadcast_to(np.eye(n_states, dim), (n_tasks, n_states, dim)).copy()
    if kind == "random_fourier":
        frequencies = rng.standard_normal((n_tasks, 1, (dim + 1) // 2))
        phase = np.arange(n_states)[:, None] * frequencies
        pairs = np.stack([np.cos(phase), np.sin(phase)], axis=3).reshape(n_tasks, n_states, -1)[:, :, :dim]
        return np.asarray(pairs / np.linalg.norm(pairs, axis=2, keepdims=True))
    if kind == "random_uniform":
        return rng.uniform(-1.0, 1.0, (n_tasks, n_states, dim))
    features = rng.standard_normal((n_tasks, n_states, dim))
    return np.asarray(features / np.linalg.norm(features, axis=2, keepdims=True))


def _boyan_transitions(rng: np.random.Generator, n_states: IntArray, width: int) -> FloatArray:
    n_tasks = len(n_states)
    transition = np.zeros((n_tasks, width, width))
    state = np.arange(width)
    one_step = rng.uniform(0.01, 0.99, (n_tasks, width))
    inner = state < n_states[:, None] - 2
    transition[:, state[:-1], state[:-1] + 1] = np.where(inner, one_step, 0.0)[:, :-1]
    transition[:, state[:-2], state[:-2] + 2] = np.where(inner, 1.0 - one_step, 0.0)[:, :-2]
    task = np.arange(n_tasks)
    transition[task, n_states - 2] = np.eye(width)[n_states - 1]
    jump = rng.uniform(0.01, 0.99, (n_tasks, width)) * (state < n_states[:, None])
    transition[task, n_states - 1] = jump / jump.sum(axis=1, keepdims=True)
    return transition


def _garnet_transitions(rng: np.random.Generator, real: NDArray[np.bool_]) -> FloatArray:
    n_tasks, width = real.shape
    shape = (n_tasks, width, GARNET_ACTIONS)
    # A random order of the real states; its head are the successors.
    order = np.argsort(np.where(real[:, None, None, :], rng.random((*shape, width)), 2.0), axis=3)
    branching = min(GARNET_BRANCHING, int(real.sum(axis=1).min()))
    cuts = np.sort(rng.random((*shape, branching - 1)), axis=3)
    probabilities = np.diff(cuts, axis=3, prepend=0.0, append=1.0)
    by_action = np.zeros((*shape, width))
    np.put_along_axis(by_action, order[..., :branching], probabilities, axis=3)
    policy = rng.exponential(size=shape)
    policy /= policy.sum(axis=2, keepdims=True)
    return np.asarray(np.einsum("tsa,tsau->tsu", policy, by_action))


def _loop_transitions(rng: np.random.Generator, n_states: IntArray, width: int) -> FloatArray:
    n_tasks = len(n_states)
    transition = np.zeros((n_tasks, width, width))
    task, state = np.arange(n_tasks)[:, None], np.arange(width)[None, :]
    forward = rng.uniform(0.01, 0.99, (n_tasks, width))
    size = n_states[:, None]
    np.add.at(transition, (task, state, (state + 1) % size), forward)
    np.add.at(transition, (task, state, (state - 1) % size), 1.0 - forward)
    return transition
