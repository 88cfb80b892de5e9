"""Every wrong call of the agent ends in one plain sentence: what was given, what is allowed."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

from icrl_agent import ICRLAgent
from icrl_agent.features import OneHot
from icrl_agent.model import SoftmaxICTD
from icrl_agent.wrappers import HistoryWrapper


def check_sentence(call, match, kinds=(ValueError, TypeError)):
    with pytest.raises(kinds, match=match) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 250


@pytest.fixture
def env():
    return gym.make("RandomMDP-v0")


@pytest.mark.parametrize("gamma", [-0.1, 1.1, math.nan, math.inf, "0.9", True, None, [0.9]])
def test_gamma(agent, env, gamma):
    told = rf"gamma must be a number in \[0, 1\], got {str(gamma) if not isinstance(gamma, str) else repr(gamma)}"
    told = told.replace("got [0.9]", r"got \[0\.9\]")
    observation, _ = HistoryWrapper(env, 4).reset(seed=0)
    check_sentence(lambda: agent.evaluate(env, gamma=gamma), told)
    check_sentence(lambda: agent.value(observation, gamma=gamma), told)


def test_gamma_one_needs_a_certain_end(agent, make_env):
    check_sentence(
        lambda: agent.evaluate(make_env("BoyanChain-v0"), gamma=1.0), "gamma 1 needs certain termination", ValueError
    )
    result = agent.evaluate(make_env("BoyanChainClassic-v0"), gamma=1, n_steps=2000, n_layers=2000, seed=0)
    # The last states have the smallest errors: one step from the end, and always the same reward.
    assert result.values[1] == pytest.approx(-2.0, abs=0.05)
    np.testing.assert_allclose(result.true_values, -2.0 * np.arange(13), atol=1e-9)


@pytest.mark.parametrize("n_steps", [0, -1, 2.5, True, "10", None])
def test_n_steps(agent, env, n_steps):
    check_sentence(
        lambda: agent.evaluate(env, n_steps=n_steps), f"n_steps must be an integer of at least 1, got {n_steps!r}"
    )


@pytest.mark.parametrize("n_layers", [0, -3, 2.5, True, "deep"])
def test_n_layers(agent, env, n_layers):
    match = f"n_layers must be an integer of at least 1.* got {n_layers!r}"
    check_sentence(lambda: agent.evaluate(env, n_layers=n_layers), match)
    observation, _ = HistoryWrapper(env, 4).reset(seed=0)
    check_sentence(lambda: agent.value(observation, n_layers=n_layers), match)


def test_more_layers_than_weights(env):
    agent = ICRLAgent(SoftmaxICTD(32, n_layers=3, shared=False))
    check_sentence(lambda: agent.evaluate(env, n_layers=4), "3 layers with weights of their own, got n_layers=4")


# Policies ------------------------------------------------------------------------------------------------------------


def bad_row():
    table = np.full((10, 4), 0.25)
    table[7] = 0.3
    return table


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        (np.full((10, 3), 1 / 3), r"\(n_states, n_actions\) = \(10, 4\), got \(10, 3\)"),
        (np.full(10, 0.1), r"= \(10, 4\), got \(10,\)"),
        (bad_row(), r"policy\[7\] must be non-negative and sum to 1"),
        (np.full((10, 4), np.nan), r"policy\[0\] must be non-negative and sum to 1"),
        ("greedy", "got 'greedy'"),
        (3, "got 3"),
    ],
)
def test_policy(agent, env, policy, match):
    check_sentence(lambda: agent.evaluate(env, policy=policy), match)


def test_a_policy_outside_the_action_space(agent, env):
    check_sentence(lambda: agent.evaluate(env, policy=lambda observation: 4), "returned action 4, which is not in")


class Continuous(gym.Env):
    """Discrete states, continuous actions; a reward given by step."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, rewards=(1.0,)):
        self.rewards = rewards

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return 0, {}

    def step(self, action):
        reward = self.rewards[self.at % len(self.rewards)]
        self.at += 1
        return self.at % 3, reward, False, False, {}


def test_a_table_needs_discrete_actions(agent):
    check_sentence(
        lambda: agent.evaluate(Continuous(), policy=np.ones((3, 1))),
        "a policy table needs a Discrete action space, got Box",
    )
    assert agent.evaluate(Continuous(), n_steps=5, seed=0).visits.sum() == 5


# Environments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["plain", "sync", "sb3"])
def test_a_reward_that_is_not_finite_names_its_step(agent, reward, kind):
    def make():
        return Continuous((1.0, 2.0, reward))

    env = {"plain": make, "sync": lambda: SyncVectorEnv([make]), "sb3": lambda: DummyVecEnv([make])}[kind]()
    check_sentence(lambda: agent.evaluate(env, n_steps=9, seed=0), f"reward {reward} at step 3")
    # Where the third step is not asked for, nothing is wrong.
    assert agent.evaluate(env, n_steps=2, seed=0).n_steps == 2


@pytest.mark.parametrize("env", [None, "BoyanChain-v0", 3, spaces.Discrete(3), object()])
def test_not_an_environment(agent, env):
    check_sentence(lambda: agent.evaluate(env), f"env must be a Gymnasium environment.* got {type(env).__name__}")


def test_an_observation_space_without_a_flat_form(agent, env):
    class Spoken(gym.ObservationWrapper):
        observation_space = spaces.Text(5)

    check_sentence(lambda: agent.evaluate(Spoken(env)), "observation space Text is not supported: Discrete, Box,")


def test_copies_of_different_tasks(agent):
    copies = [lambda: gym.make("BoyanChain-v0", task_seed=0), lambda: gym.make("BoyanChain-v0", task_seed=1)]
    for env in (SyncVectorEnv(copies), DummyVecEnv(copies)):
        check_sentence(lambda env=env: agent.evaluate(env), "copies 0 and 1 play different tasks", ValueError)


# Features ------------------------------------------------------------------------------------------------------------


def test_features_of_another_dimension_than_the_weights(agent, env):
    match = "feature map has 10 features, the weights need feature_dim = 32"
    check_sentence(lambda: agent.evaluate(env, feature_map=OneHot(10)), match)
    check_sentence(lambda: agent.evaluate(HistoryWrapper(env, 8, OneHot(10))), match)


@pytest.mark.parametrize("feature_map", ["fourier", 3, np.eye(10), {"kind": "magic"}, {"kind": "one_hot", "size": 3}])
def test_something_that_is_no_feature_map(agent, env, feature_map):
    check_sentence(lambda: agent.evaluate(env, feature_map=feature_map), "feature.?map")


def test_a_feature_map_of_fewer_states(env):
    agent = ICRLAgent.from_theory(feature_dim=5)
    check_sentence(lambda: agent.evaluate(env, feature_map=OneHot(5), seed=0), "OneHot knows states 0 to 4")


# Queries -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "match"),
    [
        ([3, 10], "query 10 is no state: states are 0 to 9"),
        ([-1], "query -1 is no state"),
        (np.linspace(0, 9, 200), "list of states 0 to 9, got array"),
        ([0.5], "list of states 0 to 9, got"),
        ([[1], [2]], "list of states 0 to 9, got"),
        ([], "list of states 0 to 9, got"),
        (4, "list of states 0 to 9, got 4"),
    ],
)
def test_queries_of_a_discrete_space(agent, env, queries, match):
    check_sentence(lambda: agent.evaluate(env, queries=queries), match, ValueError)


@pytest.mark.parametrize(
    ("queries", "match"),
    [
        ([[0.0, 0.0, 0.0]], r"queries must have shape \(m, 2\), got \(1, 3\)"),
        ([0.0, 0.0], r"queries must have shape \(m, 2\), got \(2,\)"),
        ([[0.0, 0.0], [math.nan, 0.0]], "query 1 is not finite"),
        (np.zeros((0, 2)), r"queries must have shape \(m, 2\), got \(0, 2\)"),
        ([[0.0, 0.0], [-5.0, 0.0]], "query 1 lies outside"),
    ],
)
def test_queries_of_a_box_space(agent, make_env, queries, match):
    check_sentence(lambda: agent.evaluate(make_env("MountainCar-v0"), queries=queries), match, ValueError)


def test_queries_on_the_bounds_of_a_box_space_are_inside(agent, make_env):
    env = make_env("MountainCar-v0")  # bounds 0.07 and -1.2 are rounded to single precision
    agent.evaluate(env, n_steps=2, queries=[[-1.2, 0.07], [0.6, -0.07]], seed=0)


# Observations of agent.value -----------------------------------------------------------------------------------------


def test_an_observation_that_is_no_prompt(agent, env):
    observation, _ = HistoryWrapper(env, 4).reset(seed=0)
    for name in observation:
        missing = {key: value for key, value in observation.items() if key != name}
        check_sentence(lambda missing=missing: agent.value(missing), f"got no {name}", ValueError)
    narrow, _ = HistoryWrapper(env, 4, OneHot(10)).reset(seed=0)
    check_sentence(lambda: agent.value(narrow), r"with feature_dim = 32, got \(13, 5\)", ValueError)
    short = {**observation, "continues": observation["continues"][1:]}
    check_sentence(lambda: agent.value(short), r"must have shape \(5,\)", ValueError)
    for batch in (observation["prompt"][None], np.zeros(5)):
        check_sentence(lambda batch=batch: agent.value({**observation, "prompt": batch}), "prompt must have shape")


# Nothing is stepped before the arguments are checked -----------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"gamma": 2},
        {"n_steps": 0},
        {"n_layers": 0},
        {"queries": [99]},
        {"policy": np.ones(3)},
        {"feature_map": OneHot(3)},
    ],
)
def test_the_environment_is_untouched_by_a_refused_call(agent, wrong):
    class Fragile(gym.Wrapper):
        def reset(self, **options):
            raise AssertionError("the environment was reset")

    with pytest.raises((ValueError, TypeError)):
        agent.evaluate(Fragile(gym.make("RandomMDP-v0")), **wrong)
