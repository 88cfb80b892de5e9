"""Which states are answered, with which number, and what a value without data is."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

from icrl_agent import ICRLAgent
from icrl_agent.envs import TabularMDP
from icrl_agent.features import RandomFourier, RandomUnit, fit_fourier

GAMMA = 0.5
# The cycle pays 1, 2, 3, 4, 5: v(i) = sum_k gamma^k r(i + k) over one round, over 1 - gamma^5.
CYCLE = [sum(GAMMA**k * ((i + k) % 5 + 1) for k in range(5)) / (1 - GAMMA**5) for i in range(5)]


@pytest.fixture(scope="module")
def sharp_agent():
    """Attention to other states is below exp(-30): tabular to 1e-12."""
    return ICRLAgent.from_theory(sharpness=80.0, n_layers=80)


# Numbering -----------------------------------------------------------------------------------------------------------


def check_numbering(evaluate, make, first):
    result = evaluate(make())
    assert result.states.tolist() == [first + i for i in range(5)]
    np.testing.assert_allclose(result.values, CYCLE, atol=1e-9)
    np.testing.assert_array_equal(result.visits, 4)


@pytest.mark.parametrize("first", [0, 1, 7, -3])
@pytest.mark.parametrize("kind", ["plain", "sync", "sb3"])
def test_states_that_do_not_start_at_zero(sharp_agent, numbered, kind, first):
    def make():
        return {
            "plain": lambda: numbered(first),
            "sync": lambda: SyncVectorEnv([lambda: numbered(first)] * 2),
            "sb3": lambda: DummyVecEnv([lambda: numbered(first)] * 2),
        }[kind]()

    def evaluate(env):
        return sharp_agent.evaluate(env, n_steps=20, gamma=GAMMA, seed=0)

    check_numbering(evaluate, make, first)


def test_the_numbering_check_catches_a_shift(sharp_agent, numbered):
    def shifted(env):
        result = sharp_agent.evaluate(env, n_steps=20, gamma=GAMMA, seed=0)
        return replace(result, values=np.roll(result.values, 1))

    with pytest.raises(AssertionError):
        check_numbering(shifted, lambda: numbered(1), 1)


def test_tables_under_another_numbering(sharp_agent, numbered):
    """An environment that carries tables but numbers its states from 1: the truth is not shifted."""

    class WithTables(numbered):
        mdp = TabularMDP(np.roll(np.eye(5), 1, axis=1), np.arange(1.0, 6.0), np.eye(5)[0])

    result = sharp_agent.evaluate(WithTables(1), n_steps=20, gamma=GAMMA, seed=0)
    assert result.states.tolist() == [1, 2, 3, 4, 5]
    if result.true_values is None:
        assert result.reason
    else:
        np.testing.assert_allclose(result.true_values, CYCLE, atol=1e-12)
        assert result.msve == pytest.approx(0.0, abs=1e-15)


# Values without data -------------------------------------------------------------------------------------------------


def check_terminal(evaluate):
    """0 -> 1 ends; 2 is entered only by a time limit; 3 is never seen."""
    P = np.zeros((4, 2, 4))
    P[0, 0, 1] = P[0, 1, 2] = P[2, :, 0] = P[3, :, 0] = P[1, :, 1] = 1.0
    env = gym.make(
        "TabularMDP-v0",
        transition=P,
        reward=np.full((4, 2), 3.0),
        initial=np.eye(4)[0],
        terminal=np.array([False, True, False, False]),
        max_episode_steps=1,
    )
    result = evaluate(env)
    assert result.visits.tolist() == [40, 0, 0, 0]
    assert result.values[1] == 0.0
    # Nothing is known of 2 and 3, so they get what the only known state suggests, not 0.
    assert (result.values[[0, 2, 3]] > 1.0).all()


def test_a_state_seen_only_as_an_end_is_worth_zero(agent):
    def evaluate(env):
        return agent.evaluate(env, n_steps=40, gamma=0.9, seed=0)

    def time_limit_as_termination(env):
        result = evaluate(env)
        t = result.transitions
        wrong = replace(t, terminated=t.terminated | t.truncated)
        return replace(result, values=agent.evaluate_transitions(wrong, 0.9, result.states).values)

    def no_ends(env):
        result = evaluate(env)
        wrong = replace(result.transitions, terminated=np.zeros(40, bool))
        return replace(result, values=agent.evaluate_transitions(wrong, 0.9, result.states).values)

    check_terminal(evaluate)
    for double in (time_limit_as_termination, no_ends):
        with pytest.raises(AssertionError):
            check_terminal(double)


def test_terminal_states_of_known_tasks(agent, make_env):
    assert agent.evaluate(make_env("BoyanChainClassic-v0"), n_steps=60, seed=0).values[0] == 0.0
    lake = agent.evaluate(make_env("FrozenLake-v1"), n_steps=400, seed=0)
    holes = [s for s in (5, 7, 11, 12) if s in lake.transitions.next_observations]
    assert holes
    assert (lake.values[holes] == 0).all()


# Visits --------------------------------------------------------------------------------------------------------------


def check_visits(visits_of, agent, env):
    """Real transitions that left the state, counted one by one."""
    result = agent.evaluate(env, n_steps=150, seed=1)
    counted = dict.fromkeys(result.states.tolist(), 0)
    for state in result.transitions.observations.tolist():
        counted[state] += 1
    np.testing.assert_array_equal(visits_of(result), list(counted.values()))
    assert sum(counted.values()) == 150


def test_visits_count_the_transitions_that_left(agent, make_env, discrete_env):
    check_visits(lambda result: result.visits, agent, make_env(discrete_env))


def test_the_visits_check_catches_states_entered(agent, make_env):
    with pytest.raises(AssertionError):
        check_visits(
            lambda result: np.bincount(result.transitions.next_observations, minlength=13),
            agent, make_env("BoyanChainClassic-v0"),
        )  # fmt: skip


# Queries -------------------------------------------------------------------------------------------------------------


def check_queries(evaluate, env, queries):
    """Answers in the order asked, repeated as asked, and the same as when all states are answered."""
    everything = evaluate(env, None)
    result = evaluate(env, queries)
    np.testing.assert_array_equal(result.states, queries)
    for i, state in enumerate(queries):
        at = int(np.flatnonzero(everything.states == state)[0])
        assert result.values[i] == pytest.approx(everything.values[at], abs=1e-12)
        assert result.visits[i] == everything.visits[at]
        assert result.true_values[i] == everything.true_values[at]
    assert result.msve is None
    assert "only some were answered" in result.reason


def test_queries_of_a_discrete_space(agent, make_env, discrete_env):
    env = make_env(discrete_env)

    def evaluate(env, queries):
        return agent.evaluate(env, n_steps=50, queries=queries, seed=0)

    def sorted_answers(env, queries):
        return evaluate(env, None if queries is None else sorted(queries))

    check_queries(evaluate, env, [2, 0, 2])
    with pytest.raises(AssertionError):
        check_queries(sorted_answers, env, [2, 0, 2])


@pytest.mark.parametrize("shape", ["list", "float32", "float64"])
def test_queries_of_a_box_space(agent, make_env, literal_values, shape):
    env = make_env("MountainCar-v0")
    asked = [[-0.5, 0.0], [0.3, 0.02], [-0.5, 0.0]]
    queries = asked if shape == "list" else np.array(asked, shape)
    result = agent.evaluate(env, n_steps=60, queries=queries, seed=0)
    # Answered in the space's own precision, in which the visited states came.
    queries = np.array(queries, np.float32)
    np.testing.assert_array_equal(result.states, queries)
    x = fit_fourier(RandomFourier("context", "context", 32, "median"), result.transitions.observations)
    expected = literal_values(agent.model, result.transitions, x, queries, 0.9)
    np.testing.assert_allclose(result.values, expected, atol=1e-8)
    assert result.visits.tolist() == [0, 0, 0]


def test_a_box_space_answers_its_visited_states(agent, make_env):
    result = agent.evaluate(make_env("CartPole-v1"), n_steps=40, seed=0)
    np.testing.assert_array_equal(result.states, result.transitions.observations)
    assert (result.visits == 1).all()


def test_a_huge_discrete_space_answers_its_visited_states(agent):
    class Huge(gym.Env):
        observation_space, action_space = spaces.Discrete(10_001), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 9000, {}

        def step(self, action):
            return 9000 + int(action), 1.0, False, False, {}

    result = agent.evaluate(Huge(), n_steps=30, seed=0, feature_map=RandomUnit(10_001, 32))
    assert result.states.tolist() == [9000, 9001]
    assert result.visits.sum() == 30
