"""The values that errors are measured against: exact where tables are known, else long-run Monte-Carlo returns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from icrl_agent.collect import collect
from icrl_agent.envs.solve import NoUniqueSolution, check_gamma, state_values, stationary_distribution
from icrl_agent.transitions import Transitions
from icrl_agent.truth import induced_process
from icrl_agent.wrappers.policy import PolicyLike

__all__ = ["ReferenceValues", "exact_reference", "monte_carlo_reference", "monte_carlo_values"]

FloatArray = NDArray[np.float64]

#: A return is used where what was cut off it weighs at most this much.
LARGEST_CUT = 1e-4
#: Consecutive parts of the long run; their means' spread gives the standard errors.
N_BATCHES = 40


@dataclass(frozen=True, eq=False)
class ReferenceValues:
    """Values of all states, how states are weighed, and how sure the values are.

    Args:
        values: v, float64 (S,).
        weights: non-negative, float64 (S,); 0 where the value is not known.
        standard_errors: of v, float64 (S,); None where v is exact.
    """

    values: FloatArray
    weights: FloatArray
    standard_errors: FloatArray | None = None

    @property
    def noise(self) -> float:
        """Weighted mean of the squared standard errors over that of v: the normalised error of the reference itself."""
        if self.standard_errors is None:
            return 0.0
        return float(self.weights @ self.standard_errors**2 / (self.weights @ self.values**2))


def exact_reference(env: gym.Env[Any, Any], policy: PolicyLike, gamma: float) -> ReferenceValues | str:
    """Exact values weighed by the stationary distribution, or the reason why they are not known."""
    task = induced_process(env, policy)
    if task.mrp is None:
        return str(task.reason)
    values = state_values(task.mrp, gamma)
    try:
        return ReferenceValues(values, stationary_distribution(task.mrp))
    except NoUniqueSolution:
        # Several closed classes: every state that can be left counts the same.
        return ReferenceValues(values, np.where(task.mrp.terminal, 0.0, 1.0))


def monte_carlo_reference(
    env: gym.Env[Any, Any], policy: PolicyLike, gamma: float, n_steps: int, seed: int
) -> ReferenceValues:
    """Every-visit Monte-Carlo returns of one long run of the environment, see ``monte_carlo_values``."""
    assert isinstance(env.observation_space, spaces.Discrete)
    return monte_carlo_values(collect(env, policy, n_steps, seed), int(env.observation_space.n), gamma)


def monte_carlo_values(transitions: Transitions, n_states: int, gamma: float) -> ReferenceValues:
    """Mean return per state over all visits of one copy's run, with standard errors.

    G_k = R_{k+1} + gamma c G_{k+1} within an episode. A return that a time limit or the end of the record cuts is
    used only if gamma^h <= 1e-4 for the h steps it still has. Standard errors are those of a ratio of means over 40
    consecutive batches, so correlation within a batch counts.

    Args:
        transitions: of one copy, states from 0.
        n_states: S.
        gamma: discount factor in [0, 1).

    Raises:
        ValueError: if every return is cut too short.

    >>> record = Transitions(*(np.array(x) for x in ([0, 0], [1.0, 3.0], [1, 1], [True] * 2, [False] * 2, [0, 0])))
    >>> monte_carlo_values(record, 2, gamma=0.9).values
    array([2., 0.])
    """
    if check_gamma(gamma) == 1:
        raise ValueError("Monte-Carlo values of a cut record need gamma below 1")
    needed = math.ceil(math.log(LARGEST_CUT) / math.log(gamma)) if gamma > 0 else 1
    n = len(transitions)
    returns, horizon = np.empty(n), np.empty(n)
    following, steps = 0.0, 0.0
    for k in range(n - 1, -1, -1):
        if transitions.terminated[k]:
            following, steps = 0.0, math.inf
        elif transitions.truncated[k]:
            following, steps = 0.0, 0.0
        following = transitions.rewards[k] + gamma * following
        steps += 1
        returns[k], horizon[k] = following, steps
    used = horizon >= needed
    if not used.any():
        raise ValueError(f"every return is cut before {needed} steps: gamma {gamma:g} needs longer episodes")
    state = transitions.observations[used].astype(np.intp)
    batch = np.arange(n)[used] * min(N_BATCHES, n) // n
    sums, counts = np.zeros((N_BATCHES, n_states)), np.zeros((N_BATCHES, n_states))
    np.add.at(sums, (batch, state), returns[used])
    np.add.at(counts, (batch, state), 1.0)
    visits = counts.sum(axis=0)
    values = sums.sum(axis=0) / np.maximum(visits, 1.0)
    spread = ((sums - counts * values) ** 2).sum(axis=0) * N_BATCHES / (N_BATCHES - 1)
    return ReferenceValues(values, visits / visits.sum(), np.sqrt(spread) / np.maximum(visits, 1.0))
