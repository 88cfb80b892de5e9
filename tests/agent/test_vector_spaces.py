"""Vectors, composite spaces and images: flattened by Gymnasium, in units of the context, or refused."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

from icrl_agent import ICRLAgent
from icrl_agent.collect import collect
from icrl_agent.observations import LONGEST_VECTOR, flat_rows, recorded_observation_space, single_observations

SPEED = spaces.Box(-1.0, 1.0, (2,), np.float32)
DICT = spaces.Dict({"room": spaces.Discrete(3), "speed": SPEED})
SPACES = {
    "dict": DICT,
    "nested": spaces.Dict({"inner": DICT, "lamp": spaces.MultiBinary(2)}),
    "tuple": spaces.Tuple([spaces.Discrete(2, start=1), SPEED]),
    "multi discrete": spaces.MultiDiscrete([2, 3]),
    "multi binary": spaces.MultiBinary(3),
    "box": SPEED,
    "matrix": spaces.Box(-1.0, 1.0, (2, 2), np.float32),
}


class Sampled(gym.Env):
    """Shows samples of a space; an episode of 4 steps ends by itself. The policy must see what was shown."""

    def __init__(self, space, seed=0):
        self.observation_space, self.action_space = space, spaces.Box(-1.0, 1.0, (1,), np.float32)
        space.seed(seed)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age, self.shown = 0, self.observation_space.sample()
        return self.shown, {}

    def step(self, action):
        self.age, self.shown = self.age + 1, self.observation_space.sample()
        return self.shown, float(self.age), self.age == 4, False, {}


def check_records(collected, space, shown):
    """Every transition's rows are Gymnasium's own flat form of what the policy saw, in order."""
    expected = np.stack([np.asarray(spaces.flatten(space, one)).reshape(-1) for one in shown])
    rows = collected.observations.reshape(len(collected), -1)
    np.testing.assert_array_equal(rows, expected[: len(rows)])


@pytest.mark.parametrize("name", SPACES)
def test_records_are_gymnasiums_flat_form(name):
    shown = []

    def policy(observation):
        shown.append(observation)
        return np.zeros(1, np.float32)

    space = SPACES[name]
    transitions = collect(Sampled(space), policy, 11, seed=0)
    check_records(transitions, space, shown)
    linked = ~transitions.terminated[:-1]
    np.testing.assert_array_equal(transitions.next_observations[:-1][linked], transitions.observations[1:][linked])
    with pytest.raises(AssertionError):
        check_records(transitions, space, shown[1:] + shown[:1])


@pytest.mark.parametrize("kind", ["next step", "same step", "disabled", "sb3"])
@pytest.mark.parametrize("name", ["dict", "multi discrete", "box"])
def test_vector_environments_record_the_same(name, kind):
    space = SPACES[name]
    # A space of its own for every copy, so that their samples do not depend on each other.
    makers = [lambda k=k: Sampled(copy.deepcopy(space), seed=k) for k in (1, 2)]
    if kind == "sb3":
        env = DummyVecEnv(makers)
    else:
        mode = {"next step": AutoresetMode.NEXT_STEP, "same step": AutoresetMode.SAME_STEP}
        env = SyncVectorEnv(makers, autoreset_mode=mode.get(kind, AutoresetMode.DISABLED))
    transitions = collect(env, lambda observation: np.zeros(1, np.float32), 22, seed=0)
    for index in (0, 1):
        alone = collect(makers[index](), lambda observation: np.zeros(1, np.float32), 11, seed=0)
        mine = transitions.copy == index
        n = int(mine.sum())
        # Episodes of 4: in 11 steps the third is on its way.
        np.testing.assert_array_equal(transitions.rewards[mine], alone.rewards[:n])
        np.testing.assert_array_equal(transitions.terminated[mine], alone.terminated[:n])
        if kind != "next step":  # whose reset rows draw no samples in another order than the plain environment
            np.testing.assert_array_equal(transitions.observations[mine], alone.observations[:n])
            np.testing.assert_array_equal(transitions.next_observations[mine], alone.next_observations[:n])


@pytest.mark.parametrize("name", SPACES)
def test_any_vector_is_evaluated(name):
    agent = ICRLAgent.from_theory(feature_dim=16, n_layers=5)
    space = SPACES[name]
    queries = [space.sample(), space.sample()]
    result = agent.evaluate(Sampled(space), n_steps=20, queries=queries, seed=0)
    assert np.isfinite(result.values).all()
    np.testing.assert_array_equal(result.states, flat_rows(space, queries))
    everything = agent.evaluate(Sampled(space), n_steps=20, seed=0)
    assert everything.visits.sum() == 20


def test_single_observations_of_a_batch():
    batch = {"room": np.array([0, 2]), "speed": np.zeros((2, 2), np.float32)}
    assert [one["room"] for one in single_observations(DICT, batch)] == [0, 2]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (8, 8, 3), np.uint8),
        spaces.Box(0, 255, (8, 8), np.uint8),
        spaces.Box(0, 1, (LONGEST_VECTOR + 1,), np.float32),
        spaces.Dict({"camera": spaces.Box(0, 255, (8, 8, 3), np.uint8), "speed": SPEED}),
    ],
)
def test_images_are_refused(space):
    agent = ICRLAgent.from_theory()
    with pytest.raises(TypeError, match="look like images, which have no default features: pass a feature_map") as told:
        agent.evaluate(Sampled(space), n_steps=5)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "space", [spaces.Text(3), spaces.Sequence(SPEED), spaces.Dict({"list": spaces.Sequence(SPEED)})]
)
def test_spaces_without_a_flat_form_are_refused(space):
    with pytest.raises(TypeError, match=f"observation space {type(space).__name__} is not supported"):
        recorded_observation_space(space)


def test_queries_outside_a_composite_space():
    agent = ICRLAgent.from_theory(feature_dim=8, n_layers=3)
    for queries, match in (
        ([{"room": 3, "speed": np.zeros(2, np.float32)}], "query 0 lies outside the observation space"),
        ([], "at least one observation"),
    ):
        with pytest.raises(ValueError, match=match):
            agent.evaluate(Sampled(DICT), n_steps=5, queries=queries)


class Broken(Sampled):
    def step(self, action):
        observation, *rest = super().step(action)
        if self.age == 3:
            observation = np.array([0.0, np.nan], np.float32)
        return observation, *rest


def test_an_observation_that_is_not_finite_names_step_and_dimension():
    agent = ICRLAgent.from_theory(feature_dim=8)
    with pytest.raises(ValueError, match="observation at step 3 that is not finite: dimension 1 is nan"):
        agent.evaluate(Broken(SPEED), n_steps=10, seed=0)


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        (lambda observation: np.array([1.5], np.float32), "returned action .* which is not in Box"),
        (lambda observation: np.array([0.0, 0.0], np.float32), "which is not in Box"),
        (lambda observation: np.nan, "which is not in Box"),
        (np.ones((3, 1)), "a policy table needs a Discrete observation space"),
    ],
)
def test_policies_that_do_not_fit_box_actions(policy, match):
    with pytest.raises((ValueError, TypeError), match=match):
        ICRLAgent.from_theory(feature_dim=8).evaluate(Sampled(SPEED), policy=policy, n_steps=5, seed=0)


def test_a_number_is_an_action_of_a_box_with_one():
    agent = ICRLAgent.from_theory(feature_dim=8, n_layers=3)
    by_number = agent.evaluate(gym.make("Pendulum-v1"), policy=lambda o: 0.5, n_steps=20, seed=0)
    by_array = agent.evaluate(gym.make("Pendulum-v1"), policy=lambda o: np.array([0.5]), n_steps=20, seed=0)
    np.testing.assert_array_equal(by_number.values, by_array.values)
