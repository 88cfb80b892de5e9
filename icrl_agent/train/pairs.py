"""Decision processes in batches, and the Markov reward processes that policies make of their state-action pairs.

Under a policy pi the pairs u = (s, a) of a decision process are the states of a Markov reward process with

    P((s, a), (s', a')) = p(s' | s, a) pi(a' | s'),        r(s, a),

so whatever evaluates states evaluates pairs. Pair (s, a) has the index s * A + a. Features are those of
``icrl_agent.features.PairFeatures``: the state's, turned by an orthogonal matrix of the action.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["garnet_tables", "pair_chain", "random_policies", "turn_features"]

FloatArray = NDArray[np.float64]

#: Bounds of a random policy's softmax sharpness, drawn evenly in the logarithm, and its largest epsilon.
LEAST_SHARPNESS, MOST_SHARPNESS, MOST_EPSILON = 0.3, 30.0, 0.5


def garnet_tables(rng: np.random.Generator, real: NDArray[np.bool_], n_actions: int, branching: int) -> FloatArray:
    """Draw transition tables of Garnet decision processes, p(s' | s, a) as (T, S, A, S).

    Every pair leads to ``branching`` different real states (fewer where the smallest task has fewer), with the gaps
    between sorted uniform cut points as probabilities, see ``icrl_agent.envs.garnet_mdp``.

    Args:
        rng: source of randomness.
        real: which states a task has, (T, S); rows of the others are drawn too.
        n_actions: A.
        branching: successors of a pair.
    """
    n_tasks, width = real.shape
    shape = (n_tasks, width, n_actions)
    # A random order of the real states; its head are the successors.
    order = np.argsort(np.where(real[:, None, None, :], rng.random((*shape, width)), 2.0), axis=3)
    branching = min(branching, int(real.sum(axis=1).min()))
    cuts = np.sort(rng.random((*shape, branching - 1)), axis=3)
    probabilities = np.diff(cuts, axis=3, prepend=0.0, append=1.0)
    by_action = np.zeros((*shape, width))
    np.put_along_axis(by_action, order[..., :branching], probabilities, axis=3)
    return by_action


def random_policies(
    rng: np.random.Generator, n_policies: int, n_tasks: int, n_states: int, n_actions: int
) -> FloatArray:
    """Draw policies from nearly uniform to nearly greedy, pi(a | s) as (n_policies, T, S, A).

        pi(a | s) = epsilon / A + (1 - epsilon) softmax_a(sharpness z(s, a)),        z ~ N(0, 1),

    sharpness log-uniform in [``LEAST_SHARPNESS``, ``MOST_SHARPNESS``], epsilon uniform in [0, ``MOST_EPSILON``], one of
    each per policy and task. Source: ours.

    >>> random_policies(np.random.default_rng(0), 3, 2, 5, 4).sum(axis=3).round(12).min()
    np.float64(1.0)
    """
    each = (n_policies, n_tasks, 1, 1)
    sharpness = np.exp(rng.uniform(math.log(LEAST_SHARPNESS), math.log(MOST_SHARPNESS), each))
    epsilon = rng.uniform(0.0, MOST_EPSILON, each)
    scores = sharpness * rng.standard_normal((n_policies, n_tasks, n_states, n_actions))
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    return np.asarray(epsilon / n_actions + (1.0 - epsilon) * weights / weights.sum(axis=3, keepdims=True))


def pair_chain(by_action: FloatArray, policy: FloatArray) -> FloatArray:
    """Transition tables of the pairs under a policy, (..., S A, S A).

    Args:
        by_action: p(s' | s, a), (..., S, A, S).
        policy: pi(a | s), (..., S, A).

    >>> by_action = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])  # action a leads to state a
    >>> pair_chain(by_action, np.array([[0.9, 0.1], [0.2, 0.8]]))[0]
    array([0.9, 0.1, 0. , 0. ])
    """
    size = by_action.shape[-3] * by_action.shape[-2]
    return np.asarray((by_action[..., None] * policy[..., None, None, :, :]).reshape(*by_action.shape[:-3], size, size))


def turn_features(features: FloatArray, rotations: FloatArray) -> FloatArray:
    """Features of all pairs, x(s, a) = Q_a x(s): (T, S, d) and (A, d, d) -> (T, S A, d).

    >>> turn_features(np.array([[[1.0, 0.0]]]), np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, -1.0], [1.0, 0.0]]]))
    array([[[1., 0.],
            [0., 1.]]])
    """
    n_tasks, n_states, dim = features.shape
    stacked = rotations.reshape(-1, dim)
    return np.asarray((features @ stacked.T).reshape(n_tasks, n_states * len(rotations), dim))
