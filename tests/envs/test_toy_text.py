"""Tables of Gymnasium's toy-text environments against their own lists of outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from icrl_agent.envs import TabularMDP

# Holes and goal of the 4x4 map; the goal corner; the passenger set down at each of the four places, where the
# taxi is: state = ((row * 5 + column) * 5 + passenger) * 4 + destination.
PLACES = [(0, 0), (0, 4), (4, 0), (4, 3)]
TERMINAL_STATES = {
    "FrozenLake-v1": [5, 7, 11, 12, 15],
    "CliffWalking-v1": [47],
    "Taxi-v4": sorted(((row * 5 + column) * 5 + k) * 4 + k for k, (row, column) in enumerate(PLACES)),
}
Reader = Callable[[Any], TabularMDP]


def check_tables(read: Reader, env_id: str) -> None:
    """Loops over the outcomes; sums of at most three products, so a few rounding units."""
    env = gym.make(env_id)
    mdp, P = read(env), env.unwrapped.P
    assert np.flatnonzero(mdp.terminal).tolist() == TERMINAL_STATES[env_id]
    assert np.abs(mdp.initial - env.unwrapped.initial_state_distrib).max() <= 1e-15
    for s in range(env.observation_space.n):
        for a in range(env.action_space.n):
            if mdp.terminal[s]:
                assert mdp.transition[s, a, s] == 1.0
                assert mdp.reward[s, a] == 0.0
                continue
            row = [0.0] * env.observation_space.n
            for probability, next_state, _, terminated in P[s][a]:
                row[next_state] += probability
                assert mdp.terminal[next_state] or not terminated
            assert np.abs(mdp.transition[s, a] - row).max() <= 1e-15
            expected = sum(outcome[0] * outcome[2] for outcome in P[s][a])
            assert abs(mdp.reward[s, a] - expected) <= 1e-15 * max(1.0, abs(expected))


def _last_reward(env: Any) -> TabularMDP:
    """The last outcome's reward instead of the expectation."""
    mdp = TabularMDP.from_gymnasium(env)
    reward = [[env.unwrapped.P[s][a][-1][2] for a in range(mdp.n_actions)] for s in range(mdp.n_states)]
    return TabularMDP(mdp.transition, reward, mdp.initial, mdp.terminal)


def _without_termination(env: Any) -> TabularMDP:
    mdp = TabularMDP.from_gymnasium(env)
    return TabularMDP(mdp.transition, mdp.reward, mdp.initial)


def _swapped_actions(env: Any) -> TabularMDP:
    mdp = TabularMDP.from_gymnasium(env)
    return TabularMDP(mdp.transition[:, ::-1], mdp.reward[:, ::-1], mdp.initial, mdp.terminal)


@pytest.mark.parametrize("env_id", TERMINAL_STATES)
def test_tables_equal_the_lists_of_outcomes(env_id: str) -> None:
    check_tables(TabularMDP.from_gymnasium, env_id)


@pytest.mark.parametrize("double", [_last_reward, _without_termination, _swapped_actions])
def test_table_check_catches_wrong_readers(double: Reader) -> None:
    with pytest.raises(AssertionError):
        check_tables(double, "FrozenLake-v1")


def test_wrappers_are_looked_through() -> None:
    wrapped = gym.wrappers.TimeLimit(gym.make("FrozenLake-v1", is_slippery=False), 7)
    assert TabularMDP.from_gymnasium(wrapped).same_tables(TabularMDP.from_gymnasium(wrapped.unwrapped))


class ShiftedEnv(gym.Env[int, int]):
    """Two states with toy-text tables over spaces that may start at 1."""

    def __init__(self, state_start: int, action_start: int) -> None:
        self.observation_space = spaces.Discrete(2, start=state_start)
        self.action_space = spaces.Discrete(1, start=action_start)
        self.P = {s: {0: [(1.0, 1 - s, 1.0, False)]} for s in range(2)}
        self.initial_state_distrib = np.array([1.0, 0.0])


def check_start_is_named(read: Reader, state_start: int, action_start: int) -> None:
    try:
        read(ShiftedEnv(state_start, action_start))
    except ValueError as error:
        assert f"start={state_start}" in str(error)  # noqa: PT017
        assert f"start={action_start}" in str(error)  # noqa: PT017
    else:
        raise AssertionError("values would be shifted by one state")


@pytest.mark.parametrize(("state_start", "action_start"), [(1, 0), (0, 1), (-1, 2)])
def test_spaces_that_do_not_start_at_0_are_refused(state_start: int, action_start: int) -> None:
    check_start_is_named(TabularMDP.from_gymnasium, state_start, action_start)
    with pytest.raises(AssertionError):
        check_start_is_named(lambda env: TabularMDP.from_gymnasium(ShiftedEnv(0, 0)), state_start, action_start)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Blackjack-v1"])
def test_environments_without_tables_are_refused(env_id: str) -> None:
    with pytest.raises(ValueError, match="no toy-text tables"):
        TabularMDP.from_gymnasium(gym.make(env_id))


@pytest.mark.parametrize("wrong", ["x", [(1.0, 1, 0.0)], [1.0]])
def test_rows_that_are_no_outcomes_are_named(wrong: Any) -> None:
    env = gym.make("FrozenLake-v1")
    env.unwrapped.P[3][2] = wrong
    with pytest.raises(
        ValueError, match=r"P\[3\]\[2\] must be a list of \(probability, next state, reward, terminated\)"
    ):
        TabularMDP.from_gymnasium(env)
