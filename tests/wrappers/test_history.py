"""HistoryWrapper around one environment: literal columns, when the history is emptied, spaces, copies."""

import gymnasium as gym
import numpy as np
import pytest

from icrl_agent.features import OneHot, RandomFourier, RandomUnit
from icrl_agent.wrappers import HistoryWrapper
from icrl_agent.wrappers import vector as vector_wrappers

PADDING = (None, 0.0, 0, 1.0)
STEPS = [(0, 10.0, 1, 1.0), (1, 20.0, 1, 1.0), (2, 30.0, 1, 0.0)]


def no_source(state):
    return (state, 0.0, 0, 1.0)


def check_termination(wrapper, env, columns):
    env = wrapper(env, 7, OneHot(4))
    seen = [env.reset(seed=0)[0], *(env.step(0)[0] for _ in range(3)), env.reset()[0], env.step(0)[0]]
    expected = [
        [PADDING] * 7 + [no_source(0)],
        [PADDING] * 6 + [*STEPS[:1], no_source(1)],
        [PADDING] * 5 + [*STEPS[:2], no_source(2)],
        [PADDING] * 4 + [*STEPS, no_source(3)],
        [PADDING] * 3 + [*STEPS, no_source(3), no_source(0)],
        [PADDING] * 2 + [*STEPS, no_source(3), STEPS[0], no_source(1)],
    ]
    assert [columns(observation) for observation in seen] == expected


def check_truncation(wrapper, env, columns):
    env = wrapper(env, 6, OneHot(4))
    env.reset(seed=0)
    env.step(0)
    observation, _, terminated, truncated, _ = env.step(0)
    assert (terminated, truncated) == (False, True)
    assert columns(observation) == [PADDING] * 4 + [*STEPS[:2], no_source(2)]
    assert columns(env.reset()[0]) == [PADDING] * 3 + [*STEPS[:2], no_source(2), no_source(0)]


class LimitIsTerminationDouble(HistoryWrapper):
    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._buffer.append(reward, self._features(observation), terminated or truncated, False)
        return self._buffer.observation(), reward, terminated, truncated, info


class ForgetsDouble(HistoryWrapper):
    def reset(self, *, seed=None, options=None):
        self._buffer.clear()
        return super().reset(seed=seed, options=options)


class KeepsDouble(HistoryWrapper):
    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        self._buffer.reset(self._features(observation))
        return self._buffer.observation(), info


def test_columns_across_a_termination(make_chain, columns):
    check_termination(HistoryWrapper, make_chain(), columns)


def test_columns_across_a_truncation(make_chain, columns):
    check_truncation(HistoryWrapper, make_chain(2), columns)


def test_both_flags_are_a_termination(make_chain, columns):
    check_termination(HistoryWrapper, make_chain(3), columns)


def test_column_checks_catch(make_chain, columns):
    with pytest.raises(AssertionError):
        check_termination(ForgetsDouble, make_chain(), columns)
    with pytest.raises(AssertionError):
        check_truncation(LimitIsTerminationDouble, make_chain(2), columns)


def test_a_full_window_drops_the_oldest(make_chain, columns):
    env = HistoryWrapper(make_chain(), 2, OneHot(4))
    env.reset(seed=0)
    observation = [env.step(0)[0] for _ in range(3)][-1]
    assert columns(observation) == [*STEPS[1:], no_source(3)]
    assert columns(env.reset()[0]) == [STEPS[2], no_source(3), no_source(0)]


# How a reset is called, whether the wrapper keeps, how many columns are left before the query.
RESETS = {
    "unseeded": ({}, True, 3),
    "empty options": ({"options": {}}, True, 3),
    "seeded": ({"seed": 1}, True, 0),
    "seed 0": ({"seed": 0}, True, 0),
    "task": ({"options": {"task_seed": 5}}, True, 0),
    "task 0": ({"options": {"task_seed": 0}}, True, 0),
    "keep_across_episodes=False": ({}, False, 0),
}


def check_reset(wrapper, kind):
    arguments, keep, n_left = RESETS[kind]
    env = wrapper(gym.make("BoyanChain-v0"), 8, keep_across_episodes=keep)
    env.reset(seed=3)
    for _ in range(2):
        env.step(0)
    observation = env.reset(**arguments)[0]
    # Two sources and the state where the reset cut them off, or nothing; padding has no features.
    assert int(observation["prompt"][:-3, :-1].any(axis=0).sum()) == n_left
    assert int(observation["source_mask"].sum()) == max(n_left - 1, 0)


@pytest.mark.parametrize("kind", RESETS)
def test_which_resets_empty_the_history(kind):
    check_reset(HistoryWrapper, kind)
    with pytest.raises(AssertionError):
        check_reset(ForgetsDouble if RESETS[kind][2] else KeepsDouble, kind)


def test_a_reset_in_mid_episode_is_a_truncation(make_chain, columns):
    env = HistoryWrapper(make_chain(), 4, OneHot(4))
    env.reset(seed=0)
    env.step(0)
    assert columns(env.reset()[0]) == [PADDING] * 2 + [STEPS[0], no_source(1), no_source(0)]


def test_clear_needs_a_reset(make_chain, columns):
    env = HistoryWrapper(make_chain(), 4, OneHot(4))
    env.reset(seed=0)
    env.step(0)
    env.clear()
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0)
    assert columns(env.reset()[0]) == [PADDING] * 4 + [no_source(0)]


def check_space(env, n_steps=30):
    space = env.observation_space
    assert set(space.spaces) == {"prompt", "source_mask", "continues"}
    for part in space.spaces.values():
        assert np.isfinite(part.low).all()
        assert np.isfinite(part.high).all()
        assert (part.low < part.high).all()
    observation, _ = env.reset(seed=0)
    assert space.contains(observation)
    assert space.contains(space.sample())
    for _ in range(n_steps):
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        assert space.contains(observation)
        if terminated or truncated:
            assert space.contains(env.reset()[0])


class WideDouble(HistoryWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space["prompt"] = gym.spaces.Box(-np.inf, np.inf, (35, 65), np.float32)


class Float64Double(HistoryWrapper):
    def step(self, action):
        observation, *rest = super().step(action)
        return {name: array.astype(np.float64) for name, array in observation.items()}, *rest


@pytest.mark.parametrize("env_id", ["BoyanChain-v0", "BoyanChainClassic-v0", "RandomMDP-v0", "CartPole-v1"])
def test_observations_lie_in_a_finite_space(env_id):
    check_space(HistoryWrapper(gym.make(env_id, max_episode_steps=7)))


@pytest.mark.parametrize("double", [WideDouble, Float64Double])
def test_space_check_catches(double):
    with pytest.raises(AssertionError):
        check_space(double(gym.make("BoyanChain-v0")))


def test_default_features():
    assert HistoryWrapper(gym.make("RandomMDP-v0", n_states=7)).feature_map == RandomUnit(7, 32, seed=0)
    cart_pole = HistoryWrapper(gym.make("CartPole-v1")).feature_map
    assert isinstance(cart_pole, RandomFourier)
    assert cart_pole.dim == 32


def check_copies(env):
    first = env.reset(seed=0)[0]
    kept = {name: array.copy() for name, array in first.items()}
    second = env.step(0)[0]
    for name in kept:
        np.testing.assert_array_equal(first[name], kept[name])
        second[name][:] = 0
    assert env.step(0)[0]["source_mask"].sum() == 2


class SharedArraysDouble(HistoryWrapper):
    """Writes every observation into the same arrays."""

    def _again(self, observation):
        self.shared = getattr(self, "shared", observation)
        for name, array in observation.items():
            self.shared[name][:] = array
        return self.shared

    def reset(self, **arguments):
        observation, info = super().reset(**arguments)
        return self._again(observation), info

    def step(self, action):
        observation, *rest = super().step(action)
        return self._again(observation), *rest


def test_returned_arrays_are_copies(make_chain):
    check_copies(HistoryWrapper(make_chain(), 4))
    with pytest.raises(AssertionError):
        check_copies(SharedArraysDouble(make_chain(), 4))


@pytest.mark.parametrize("value", [0, -1, True, 2.5])
def test_bad_context_length(value):
    with pytest.raises(ValueError, match=f"context_length must be an integer of at least 1, got {value!r}"):
        HistoryWrapper(gym.make("BoyanChain-v0"), context_length=value)


def test_flags_and_vector_environments():
    for make in (HistoryWrapper, vector_wrappers.HistoryWrapper):
        env = gym.make("BoyanChain-v0") if make is HistoryWrapper else gym.make_vec("BoyanChain-v0", num_envs=2)
        with pytest.raises(TypeError, match="keep_across_episodes must be True or False, got 'no'"):
            make(env, keep_across_episodes="no")
    with pytest.raises(TypeError, match=r"a vector environment needs icrl_agent\.wrappers\.vector\.HistoryWrapper"):
        HistoryWrapper(gym.make_vec("BoyanChain-v0", num_envs=2))


class BadReward(gym.RewardWrapper):
    def reward(self, reward):
        return float("nan")


def test_bad_reward_and_feature_map():
    env = HistoryWrapper(BadReward(gym.make("BoyanChain-v0")))
    before = env.reset(seed=0)[0]
    with pytest.raises(ValueError, match=r"rewards must be finite float32 numbers, got .*nan"):
        env.step(0)
    np.testing.assert_array_equal(env.reset()[0]["source_mask"], before["source_mask"])
    with pytest.raises(TypeError, match="feature_map must be a feature map, its spec or None, got 'one_hot'"):
        HistoryWrapper(gym.make("BoyanChain-v0"), feature_map="one_hot")
    with pytest.raises(TypeError, match="no default features for observation space"):
        HistoryWrapper(HistoryWrapper(gym.make("BoyanChain-v0")))


@pytest.mark.parametrize("start", [0, 3])
def test_discrete_spaces_with_a_start(start):
    class Started(gym.Env):
        observation_space, action_space = gym.spaces.Discrete(2, start=start), gym.spaces.Discrete(1)

        def reset(self, *, seed=None, options=None):
            return start, {}

        def step(self, action):
            return start + 1, 1.0, False, False, {}

    env = HistoryWrapper(Started(), 1)
    env.reset(seed=0)
    rows = RandomUnit(2, 32, seed=0)([0, 1]).astype(np.float32)
    np.testing.assert_array_equal(env.step(0)[0]["prompt"][:-3].T, rows)
