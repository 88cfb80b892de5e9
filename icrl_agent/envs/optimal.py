"""Exact solution of a decision process: optimal action values, and what a policy is worth beside them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icrl_agent.envs.solve import check_gamma, state_values
from icrl_agent.envs.tables import TabularMDP

__all__ = ["expected_return", "normalised_return", "optimal_values", "uniform_is_optimal"]

FloatArray = NDArray[np.float64]

#: An action replaces another only if it is better by more than this part of the largest value: rounding makes no loops.
_BETTER = 1e-12


def optimal_values(mdp: TabularMDP, gamma: float) -> FloatArray:
    """q*(s, a) = r(s, a) + gamma sum_s' p(s'|s, a) max_a' q*(s', a'), by policy iteration (Howard, 1960).

    Args:
        mdp: the process.
        gamma: discount factor in [0, 1).

    Returns:
        float64 (S, A), in units of reward; 0 at terminal states.

    Raises:
        ValueError: for gamma outside [0, 1).

    >>> stay_or_go = TabularMDP([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0]] * 2], [[0.0, 0.0], [1.0, 1.0]], [1.0, 0.0])
    >>> optimal_values(stay_or_go, 0.5)
    array([[0.5, 1. ],
           [2. , 2. ]])
    """
    if check_gamma(gamma) == 1:
        raise ValueError("optimal values need gamma below 1, got 1")
    states = np.arange(mdp.n_states)
    best = mdp.reward.argmax(axis=1)
    while True:
        v = state_values(mdp.policy_mrp(np.eye(mdp.n_actions)[best]), gamma)
        q = mdp.reward + gamma * mdp.transition @ v
        better = q.max(axis=1) - q[states, best] > _BETTER * max(1.0, float(np.abs(q).max()))
        if not better.any():
            return np.asarray(q)
        best = np.where(better, q.argmax(axis=1), best)


def expected_return(mdp: TabularMDP, policy: ArrayLike | None, gamma: float) -> float:
    """J = sum_s p0(s) v_pi(s) of a policy table (S, A), None = uniformly random; errors as ``state_values``."""
    return float(mdp.initial @ state_values(mdp.policy_mrp(policy), gamma))


def uniform_is_optimal(mdp: TabularMDP, gamma: float) -> bool:
    """Whether no policy has a larger return than the uniformly random one, up to rounding."""
    return not _gap(mdp, gamma) > 0


def normalised_return(mdp: TabularMDP, policy: ArrayLike, gamma: float) -> float:
    """(J(policy) - J(uniformly random)) / (J(optimal) - J(uniformly random)): 0 = random, 1 = optimal; may be negative.

    NaN where the uniformly random policy is optimal.
    """
    gap = _gap(mdp, gamma)
    if not gap > 0:
        return float("nan")
    return (expected_return(mdp, policy, gamma) - expected_return(mdp, None, gamma)) / gap


def _gap(mdp: TabularMDP, gamma: float) -> float:
    """J(optimal) - J(uniformly random), 0 where it is not above rounding."""
    uniform = expected_return(mdp, None, gamma)
    optimal = float(mdp.initial @ optimal_values(mdp, gamma).max(axis=1))
    return optimal - uniform if optimal - uniform > _BETTER * max(1.0, abs(optimal)) else 0.0
