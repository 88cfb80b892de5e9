"""What every wrapper owes its users: recorded arguments, specs that rebuild it, and both checkers' approval."""

import inspect
import json
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.features import OneHot, RandomUniform, RandomUnit
from icrl_agent.wrappers import FeatureObservation, HistoryWrapper, PolicyWrapper

POLICY = np.full((10, 4), 0.25)
WRAPPERS = {
    "history": lambda env: HistoryWrapper(env, np.int64(5), RandomUniform(10, 3, seed=2), keep_across_episodes=False),
    "history defaults": lambda env: HistoryWrapper(env),
    "history spec": lambda env: HistoryWrapper(env, feature_map={"kind": "one_hot", "n_states": 10}),
    "features": lambda env: FeatureObservation(env, OneHot(10)),
    "features default": lambda env: FeatureObservation(env),
    "policy table": lambda env: PolicyWrapper(env, POLICY, seed=4),
    "policy list": lambda env: PolicyWrapper(env, POLICY.tolist(), seed=4, deterministic=False),
    "policy None": lambda env: PolicyWrapper(env, None, 4),
    "policy under history": lambda env: HistoryWrapper(PolicyWrapper(env, POLICY, seed=4), 3),
}


def check_recorded(env):
    """Every constructor argument but the environment is recorded, under its own name."""
    recorded = env.spec.additional_wrappers[-1]
    names = list(inspect.signature(type(env).__init__).parameters)[2:]
    assert recorded.entry_point == f"{type(env).__module__}:{type(env).__name__}"
    assert sorted(recorded.kwargs) == sorted(names)


def trajectory(env, n_steps=12):
    outputs = [env.reset(seed=7)[0]]
    for k in range(n_steps):
        observation, reward, terminated, truncated, _ = env.step(k % int(env.action_space.n))
        outputs.append((observation, reward, terminated, truncated))
    return outputs


def check_rebuilt(env, rebuild):
    other = rebuild(env.spec)
    assert type(other) is type(env)
    assert other.observation_space == env.observation_space
    assert other.action_space == env.action_space
    assert gym.utils.env_checker.data_equivalence(trajectory(other), trajectory(env), exact=True)


def through_json(spec):
    text = spec.to_json()
    json.loads(text)
    return gym.make(gym.envs.registration.EnvSpec.from_json(text))


class DroppedArgumentDouble(FeatureObservation):
    def __init__(self, env, feature_map=None, scale=1.0):
        super().__init__(env, feature_map)


class UnrecordedSizeDouble(HistoryWrapper):
    """Records its default instead of what it was given."""

    def __init__(self, env, context_length=64):
        super().__init__(env, context_length)
        self._saved_kwargs = {"context_length": 64}


@pytest.mark.parametrize("kind", WRAPPERS)
def test_constructor_arguments_are_recorded(kind):
    check_recorded(WRAPPERS[kind](gym.make("RandomMDP-v0")))


@pytest.mark.parametrize("rebuild", [gym.make, through_json], ids=["spec", "JSON"])
@pytest.mark.parametrize("kind", WRAPPERS)
def test_a_spec_rebuilds_the_environment(kind, rebuild):
    check_rebuilt(WRAPPERS[kind](gym.make("RandomMDP-v0", task_seed=3, max_episode_steps=50)), rebuild)


def test_recording_checks_catch():
    with pytest.raises(AssertionError):
        check_recorded(DroppedArgumentDouble(gym.make("RandomMDP-v0")))
    with pytest.raises(AssertionError):
        check_rebuilt(
            UnrecordedSizeDouble(gym.make("RandomMDP-v0"), 3),
            lambda spec: UnrecordedSizeDouble(gym.make("RandomMDP-v0"), **spec.additional_wrappers[-1].kwargs),
        )


def test_a_random_policy_with_a_seed_is_rebuilt_with_its_seed():
    env = PolicyWrapper(gym.make("RandomMDP-v0"), POLICY, seed=11)
    first, second = (e.policy.actions(np.zeros(50, int)).tolist() for e in (env, gym.make(env.spec)))
    assert first == second
    assert first != PolicyWrapper(gym.make("RandomMDP-v0"), POLICY, seed=12).policy.actions(np.zeros(50, int)).tolist()


DIFFERENT, UNCONVENTIONAL = "different from the unwrapped version", "unconventional shape"
CHECKED = {
    "history": (lambda env: HistoryWrapper(env, 6), UNCONVENTIONAL),
    "features": (lambda env: FeatureObservation(env), None),
    "policy": (lambda env: PolicyWrapper(env, None, seed=0), None),
    "history over policy": (lambda env: HistoryWrapper(PolicyWrapper(env, None, seed=0), 6), UNCONVENTIONAL),
}
ENVIRONMENTS = ["BoyanChain-v0", "BoyanChainClassic-v0", "RandomMDP-v0"]


def check_with(checker, env, allowed):
    """The checker passes and warns of exactly what is allowed: None, or one text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checker(env)
    texts = {str(warning.message) for warning in caught}
    unexpected = [text for text in texts if allowed is None or allowed not in text]
    assert not unexpected, unexpected
    assert allowed is None or texts, f"the warning {allowed!r} is gone: drop it from the allowed ones"


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
@pytest.mark.parametrize("kind", CHECKED)
def test_gymnasium_check_env(kind, env_id):
    wrap, _ = CHECKED[kind]
    check_with(lambda env: gymnasium_check_env(env, skip_render_check=True), wrap(gym.make(env_id)), DIFFERENT)


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
@pytest.mark.parametrize("kind", CHECKED)
def test_sb3_check_env(kind, env_id):
    wrap, warning = CHECKED[kind]
    check_with(sb3_check_env, wrap(gym.make(env_id)), warning)


class KeepsHistoryDouble(HistoryWrapper):
    """A seeded reset keeps the history: not deterministic."""

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        self._buffer.reset(self._features(observation))
        return self._buffer.observation(), info


class Float64Double(FeatureObservation):
    def observation(self, observation):
        return np.asarray(super().observation(observation), np.float64)


class GlobalNumbersDouble(PolicyWrapper):
    def step(self, action=0):
        observation, reward, *rest = self.env.step(int(np.random.randint(self.env.action_space.n)))  # noqa: NPY002
        # Two global draws: that both repeat by chance is out of the question.
        return observation, reward + float(np.random.rand()), *rest  # noqa: NPY002


def test_checkers_catch():
    make = gym.make("RandomMDP-v0")
    with pytest.raises(AssertionError):
        check_with(gymnasium_check_env, KeepsHistoryDouble(make, 6), DIFFERENT)
    with pytest.raises(AssertionError):
        check_with(gymnasium_check_env, GlobalNumbersDouble(make, None), DIFFERENT)
    for checker, allowed in ((gymnasium_check_env, DIFFERENT), (sb3_check_env, None)):
        with pytest.raises(AssertionError):
            check_with(checker, Float64Double(make), allowed)


def test_feature_observation_gives_float32_features():
    env = FeatureObservation(gym.make("RandomMDP-v0", task_seed=1), RandomUnit(10, 4, seed=3))
    raw = gym.make("RandomMDP-v0", task_seed=1)
    rows = RandomUnit(10, 4, seed=3)(np.arange(10)).astype(np.float32)
    np.testing.assert_array_equal(env.reset(seed=2)[0], rows[raw.reset(seed=2)[0]])
    for action in (0, 3, 1):
        observation, reward, *_ = env.step(action)
        state, raw_reward, *_ = raw.step(action)
        assert observation.dtype == np.float32
        np.testing.assert_array_equal(observation, rows[state])
        assert reward == raw_reward


def test_feature_observation_of_box():
    env = FeatureObservation(gym.make("CartPole-v1"))
    observation = env.reset(seed=0)[0]
    assert env.observation_space.contains(observation)
    assert abs(float(np.linalg.norm(observation)) - 1) < 32 * np.finfo(np.float32).eps
    with pytest.raises(TypeError, match="no default features"):
        FeatureObservation(HistoryWrapper(gym.make("CartPole-v1")))
