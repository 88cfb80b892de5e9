"""Random tasks in batches: Markov reward processes drawn and solved for many tasks at once.

The same families as ``icrl_agent.envs.tasks``, vectorised over tasks of different sizes: a task with fewer states than
the widest is padded with states that are never entered.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icrl_agent.features.pairs import random_orthogonal
from icrl_agent.train.pairs import garnet_tables, pair_chain, random_policies, turn_features

__all__ = ["FamilyName", "TaskBatch", "draw_features", "draw_tasks", "represent", "solve_tasks"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

#: Families of tasks: random Boyan chains, the same with v linear in random features, Garnet processes under random
#: policies, rings of states with random drift, state-action pairs of Garnet processes under policies that change.
FamilyName = Literal["boyan", "representable", "garnet", "loop", "pairs"]
#: Features of states; "random_fourier" are those of a state's index (lengthscale 1), where neighbours resemble.
FeatureKind = Literal["random_unit", "random_uniform", "one_hot", "random_fourier"]

#: Actions and successors per state-action pair of the Garnet family.
GARNET_ACTIONS, GARNET_BRANCHING = 4, 3
#: Policies that act one after the other in a trajectory of pairs.
N_POLICIES = 4


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
    earlier: tuple[FloatArray, ...] = ()
    """Tables like ``transition`` that a trajectory follows before it, in turn."""


def draw_tasks(rng: np.random.Generator, family: FamilyName, n_states: IntArray, n_actions: int = 1) -> TaskBatch:
    """Draw one task per entry of ``n_states`` (each at least 2) from a family.

    Tasks of the family "representable" are Boyan chains whose rewards ``represent`` makes from the features. The states
    of the family "pairs" are the state-action pairs of decision processes, (s, a) at s * n_actions + a; values and
    ``transition`` are those of the last of ``N_POLICIES`` policies.

    Args:
        rng: source of randomness.
        family: which.
        n_states: states of each task, or of its decision process.
        n_actions: actions of the decision processes; 1 for the other families.

    >>> draw_tasks(np.random.default_rng(0), "loop", np.array([3, 5])).transition.shape
    (2, 5, 5)
    >>> draw_tasks(np.random.default_rng(0), "pairs", np.array([3, 5]), n_actions=2).transition.shape
    (2, 10, 10)
    """
    earlier: list[FloatArray] = []
    size = n_states * n_actions
    n_tasks, width = len(size), int(size.max())
    real = np.arange(width) < size[:, None]
    if family in ("boyan", "representable"):
        transition = _boyan_transitions(rng, n_states, width)
    elif family == "garnet":
        transition = _garnet_transitions(rng, real)
    elif family == "pairs":
        *earlier, transition = _pair_transitions(rng, n_states, n_actions)
    else:
        transition = _loop_transitions(rng, n_states, width)
    transition, *earlier = (np.where(real[:, :, None], table, np.eye(width)) for table in (transition, *earlier))
    reward = rng.uniform(-1.0, 1.0, (n_tasks, width)) * real
    initial = rng.uniform(0.01, 0.99, (n_tasks, width)) * real
    initial /= initial.sum(axis=1, keepdims=True)
    return TaskBatch(transition, reward, initial, size, tuple(earlier))


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


def draw_features(
    rng: np.random.Generator, kind: FeatureKind, n_tasks: int, n_states: int, dim: int, n_actions: int = 1
) -> FloatArray:
    """Features of every state, redrawn per task, (T, S, dim); with several actions those of every pair, (T, S A, dim).

    Pairs have their state's features, turned by a random orthogonal matrix of the action that all tasks share.

    Raises:
        ValueError: for one-hot features with fewer dimensions than states.
    """
    features = _state_features(rng, kind, n_tasks, n_states, dim)
    if n_actions == 1:
        return features
    return turn_features(features, np.stack([random_orthogonal(rng, dim) for _ in range(n_actions)]))


def _state_features(rng: np.random.Generator, kind: FeatureKind, n_tasks: int, n_states: int, dim: int) -> FloatArray:
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
    by_action = garnet_tables(rng, real, GARNET_ACTIONS, GARNET_BRANCHING)
    policy = rng.exponential(size=by_action.shape[:3])
    policy /= policy.sum(axis=2, keepdims=True)
    return np.asarray(np.einsum("tsa,tsau->tsu", policy, by_action))


def _pair_transitions(rng: np.random.Generator, n_states: IntArray, n_actions: int) -> list[FloatArray]:
    """Tables of the pairs under one policy after the other, (T, S A, S A) each."""
    n_tasks, width = len(n_states), int(n_states.max())
    by_action = garnet_tables(rng, np.arange(width) < n_states[:, None], n_actions, GARNET_BRANCHING)
    policies = random_policies(rng, N_POLICIES, n_tasks, width, n_actions)
    return [pair_chain(by_action, policy) for policy in policies]


def _loop_transitions(rng: np.random.Generator, n_states: IntArray, width: int) -> FloatArray:
    n_tasks = len(n_states)
    transition = np.zeros((n_tasks, width, width))
    task, state = np.arange(n_tasks)[:, None], np.arange(width)[None, :]
    forward = rng.uniform(0.01, 0.99, (n_tasks, width))
    size = n_states[:, None]
    np.add.at(transition, (task, state, (state + 1) % size), forward)
    np.add.at(transition, (task, state, (state - 1) % size), 1.0 - forward)
    return transition
