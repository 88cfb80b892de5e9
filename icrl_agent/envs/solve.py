"""Exact solutions of a Markov reward process: state values and the stationary distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icrl_agent.envs.tables import TabularMRP

__all__ = ["NoUniqueSolution", "check_gamma", "state_values", "stationary_distribution"]

FloatArray = NDArray[np.float64]


class NoUniqueSolution(ValueError):
    """The linear system has no solution, or more than one."""


def check_gamma(gamma: float) -> float:
    """Return the discount factor as a float.

    Raises:
        ValueError: if it is not a number in [0, 1].
    """
    if isinstance(gamma, bool) or not isinstance(gamma, int | float | np.integer | np.floating) or not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be a number in [0, 1], got {gamma!r}")
    return float(gamma)


def state_values(mrp: TabularMRP, gamma: float) -> FloatArray:
    """True values v = (I - gamma P)^{-1} r, with v = 0 at terminal states.

    Args:
        mrp: the process.
        gamma: discount factor in [0, 1]; 1 needs every state to terminate with certainty.

    Returns:
        float64 (S,), in units of reward.

    Raises:
        ValueError: for gamma outside [0, 1].
        NoUniqueSolution: for gamma 1 where some state may never terminate (it is named).

    >>> from icrl_agent.envs import TabularMDP
    >>> two_cycle = TabularMDP([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], [1.0, 0.0]).policy_mrp()
    >>> state_values(two_cycle, 0.5).round(4)
    array([1.3333, 0.6667])
    """
    _check_process(mrp)
    gamma = check_gamma(gamma)
    lasting = ~mrp.terminal
    if gamma == 1.0:
        never_ends = ~(_reachable(mrp.transition) & mrp.terminal).any(axis=1)
        if never_ends.any():
            raise NoUniqueSolution(
                f"gamma 1 needs certain termination, but state {int(np.flatnonzero(never_ends)[0])} never reaches a"
                " terminal state: use gamma < 1"
            )
    inner = mrp.transition[np.ix_(lasting, lasting)]
    values = np.zeros(mrp.n_states)
    try:
        values[lasting] = np.linalg.solve(np.eye(len(inner)) - gamma * inner, mrp.reward[lasting])
    except np.linalg.LinAlgError as error:
        raise NoUniqueSolution("termination is too unlikely to solve for the values at this gamma") from error
    return values


def stationary_distribution(mrp: TabularMRP) -> FloatArray:
    """Distribution mu with mu P = mu, sum mu = 1, of the process restarted from ``initial`` after a terminal state.

    Only states an agent can be in and leave count: terminal states get 0 (the restart takes no time), transient
    and unreachable states get 0. Periodic chains are fine.

    Returns:
        float64 (S,).

    Raises:
        NoUniqueSolution: if the restarted process has more than one closed class of states.

    >>> from icrl_agent.envs import TabularMDP
    >>> stationary_distribution(TabularMDP([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], [1.0, 0.0]).policy_mrp())
    array([0.5, 0.5])
    """
    _check_process(mrp)
    lasting = ~mrp.terminal
    ends = mrp.transition[np.ix_(lasting, mrp.terminal)].sum(axis=1)
    restarted = mrp.transition[np.ix_(lasting, lasting)] + np.outer(ends, mrp.initial[lasting])
    reach = _reachable(restarted)
    # A state is recurrent when everything it reaches can come back; one closed class means they reach each other.
    recurrent = (reach <= reach.T).all(axis=1)
    if not reach[np.ix_(recurrent, recurrent)].all():
        raise NoUniqueSolution(
            "the stationary distribution is not unique: the process has more than one closed class of states"
        )
    inner = restarted[np.ix_(recurrent, recurrent)]
    system = np.eye(len(inner)) - inner.T
    system[-1] = 1.0
    right = np.zeros(len(inner))
    right[-1] = 1.0
    inner_mu = np.linalg.solve(system, right)
    mu = np.zeros(mrp.n_states)
    mu[np.flatnonzero(lasting)[recurrent]] = np.clip(inner_mu, 0.0, None) / np.clip(inner_mu, 0.0, None).sum()
    return mu


def _check_process(mrp: TabularMRP) -> None:
    if not isinstance(mrp, TabularMRP):
        raise TypeError(f"a reward process is needed, got {type(mrp).__name__}: fold a policy in with mdp.policy_mrp()")


def _reachable(transition: FloatArray) -> NDArray[np.bool_]:
    """R[s, s'] = s' can be reached from s in zero or more steps, by repeated squaring."""
    reach = (transition > 0) | np.eye(len(transition), dtype=bool)
    while True:
        wider = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
        if np.array_equal(wider, reach):
            return reach
        reach = wider
