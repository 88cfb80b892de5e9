"""Vector wrappers equal the single wrappers copy by copy, in every autoreset mode."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.features import OneHot, RandomFourier
from icrl_agent.prompt import PromptBuffer
from icrl_agent.wrappers import FeatureObservation, HistoryWrapper, PolicyWrapper
from icrl_agent.wrappers import vector as vector_wrappers

MODES = list(AutoresetMode)
NUM_ENVS, LENGTH = 3, 6
CHAINS = {
    "terminations": {"id": "BoyanChainClassic-v0"},
    "both": {"id": "BoyanChainClassic-v0", "max_episode_steps": 8},
    "limit 1": {"id": "BoyanChain-v0", "max_episode_steps": 1},
    "limit 3": {"id": "BoyanChain-v0", "max_episode_steps": 3},
}
modes = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
chains = pytest.mark.parametrize("chain", CHAINS)


def sync(chain, mode, num_envs=NUM_ENVS, wrap=lambda env: env):
    return SyncVectorEnv([lambda: wrap(gym.make(**CHAINS[chain]))] * num_envs, autoreset_mode=mode)


def assert_rows(got, expected):
    assert got.keys() == expected[0].keys()
    for name in got:
        stacked = np.stack([observation[name] for observation in expected])
        assert got[name].dtype == stacked.dtype
        np.testing.assert_array_equal(got[name], stacked, err_msg=name)


def check_against_singles(wrapper, chain, mode, n_steps=60, **arguments):
    """Copy i of a SyncVectorEnv reset with seed k is a single environment reset with seed k + i."""
    vector = wrapper(sync(chain, mode), LENGTH, **arguments)
    singles = [HistoryWrapper(gym.make(**CHAINS[chain]), LENGTH, **arguments) for _ in range(NUM_ENVS)]
    expected = [env.reset(seed=10 + i)[0] for i, env in enumerate(singles)]
    assert_rows(vector.reset(seed=10)[0], expected)
    done = np.zeros(NUM_ENVS, bool)
    for _ in range(n_steps):
        observation, rewards, terminations, truncations, _ = vector.step(np.zeros(NUM_ENVS, int))
        for i, env in enumerate(singles):
            if mode is AutoresetMode.NEXT_STEP and done[i]:
                expected[i], outcome = env.reset()[0], (0.0, False, False)
            else:
                expected[i], *outcome, _ = env.step(0)
            assert (rewards[i], terminations[i], truncations[i]) == tuple(outcome)
            if mode is AutoresetMode.SAME_STEP and (terminations[i] or truncations[i]):
                expected[i] = env.reset()[0]
        assert_rows(observation, expected)
        assert vector.observation_space.contains(observation)
        done = terminations | truncations
        if mode is AutoresetMode.DISABLED and done.any():
            observation, _ = vector.reset(options={"reset_mask": done})
            for i in np.flatnonzero(done):
                expected[i] = singles[i].reset()[0]
            assert_rows(observation, expected)


class ResetRowDouble(vector_wrappers.HistoryWrapper):
    """Takes NEXT_STEP's reset row for a transition."""

    def step(self, actions):
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._buffer._has_ended[:] = False
        self._buffer.append(rewards, self.feature_map(observations), terminations, truncations)
        return self._buffer.observation(), rewards, terminations, truncations, infos


class NoFinalObservationDouble(vector_wrappers.HistoryWrapper):
    """Takes SAME_STEP's next first state for the last state."""

    def step(self, actions):
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        done = terminations | truncations
        self._buffer.append(rewards, self.feature_map(observations), terminations, truncations)
        if done.any():
            self._buffer.reset(self.feature_map(observations), done)
        return self._buffer.observation(), rewards, terminations, truncations, infos


class WholeResetDouble(vector_wrappers.HistoryWrapper):
    """Resets the histories of all copies, whatever the mask says."""

    def reset(self, *, seed=None, options=None):
        observations, infos = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._buffer.clear()
        self._buffer.reset(self.feature_map(observations))
        return self._buffer.observation(), infos


DOUBLES = {
    AutoresetMode.NEXT_STEP: ResetRowDouble,
    AutoresetMode.SAME_STEP: NoFinalObservationDouble,
    AutoresetMode.DISABLED: WholeResetDouble,
}


@modes
@chains
@pytest.mark.parametrize("keep", [True, False])
def test_history_equals_single_wrappers(chain, mode, keep):
    check_against_singles(vector_wrappers.HistoryWrapper, chain, mode, keep_across_episodes=keep)


@modes
def test_history_check_catches(mode):
    with pytest.raises(AssertionError):
        check_against_singles(DOUBLES[mode], "both", mode)


class Log(gym.vector.VectorWrapper):
    """Remembers what passes between a vector environment and the wrapper above."""

    def __init__(self, env):
        super().__init__(env)
        self.steps = []

    def step(self, actions):
        self.steps.append(self.env.step(actions))
        return self.steps[-1]


def check_native(wrapper, chain, mode, n_steps=60):
    """One PromptBuffer per copy, fed by hand with what the native environment returned."""
    log = Log(gym.make_vec(num_envs=NUM_ENVS, autoreset_mode=mode, **CHAINS[chain]))
    vector = wrapper(log, LENGTH, OneHot(log.single_observation_space.n))
    rows = np.eye(log.single_observation_space.n)
    buffers = [PromptBuffer(LENGTH, len(rows)) for _ in range(NUM_ENVS)]
    vector.reset(seed=4)
    for i, buffer in enumerate(buffers):
        buffer.reset(rows[log.unwrapped._states[i]])
    resets = np.zeros(NUM_ENVS, bool)
    for _ in range(n_steps):
        observation, *_ = vector.step(np.zeros(NUM_ENVS, int))
        states, rewards, terminations, truncations, infos = log.steps[-1]
        done = terminations | truncations
        for i, buffer in enumerate(buffers):
            if resets[i]:
                buffer.reset(rows[states[i]])
                continue
            same_step = mode is AutoresetMode.SAME_STEP and done[i]
            last = infos["final_obs"][i] if same_step else states[i]
            buffer.append(rewards[i], rows[last], terminations[i], truncations[i])
            if same_step:
                buffer.reset(rows[states[i]])
        assert_rows(observation, [buffer.observation() for buffer in buffers])
        if mode is AutoresetMode.NEXT_STEP:
            resets = done
        elif mode is AutoresetMode.DISABLED and done.any():
            vector.reset(options={"reset_mask": done})
            for i in np.flatnonzero(done):
                buffers[i].reset(rows[log.unwrapped._states[i]])


@modes
@chains
def test_history_over_a_native_vector_environment(chain, mode):
    check_native(vector_wrappers.HistoryWrapper, chain, mode)


@modes
def test_native_check_catches(mode):
    with pytest.raises(AssertionError):
        check_native(DOUBLES[mode], "both", mode)


def n_columns(observation):
    return observation["prompt"][:, :-3, :-1].any(axis=1).sum(axis=1).tolist()


@modes
@pytest.mark.parametrize(
    ("arguments", "keep", "left"),
    [
        ({}, True, 3),
        ({"seed": 1}, True, 0),
        ({"seed": 0}, True, 0),
        ({"options": {"task_seed": 2}}, True, 0),
        ({}, False, 0),
    ],
)
def test_which_resets_empty_the_histories(mode, arguments, keep, left):
    env = gym.make_vec("BoyanChain-v0", NUM_ENVS, autoreset_mode=mode)
    env = vector_wrappers.HistoryWrapper(env, LENGTH, keep_across_episodes=keep)
    env.reset(seed=3)
    for _ in range(2):
        env.step(np.zeros(NUM_ENVS, int))
    assert n_columns(env.reset(**arguments)[0]) == [left] * NUM_ENVS


@modes
def test_history_clear_and_spaces(mode):
    env = vector_wrappers.HistoryWrapper(gym.make_vec("BoyanChain-v0", NUM_ENVS, autoreset_mode=mode), LENGTH)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert env.single_observation_space == HistoryWrapper(gym.make("BoyanChain-v0"), LENGTH).observation_space
    kept = {name: array.copy() for name, array in observation.items()}
    env.step(np.zeros(NUM_ENVS, int))
    for name, array in kept.items():
        np.testing.assert_array_equal(observation[name], array)
    env.clear()
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.zeros(NUM_ENVS, int))


def test_an_environment_that_hides_its_mode_is_refused():
    env = gym.make_vec("BoyanChain-v0", 2)
    env.metadata = {}
    with pytest.raises(ValueError, match=r"does not say its autoreset mode: metadata\['autoreset_mode'\] is None"):
        vector_wrappers.HistoryWrapper(env)


def check_features(wrapper, chain, mode, n_steps=40):
    """Compared with a SyncVectorEnv of environments wrapped one by one."""
    feature_map = OneHot(13)
    vector = wrapper(sync(chain, mode), feature_map)
    inner = sync(chain, mode, wrap=lambda env: FeatureObservation(env, feature_map))
    assert vector.observation_space == inner.observation_space
    np.testing.assert_array_equal(vector.reset(seed=1)[0], inner.reset(seed=1)[0])
    for _ in range(n_steps):
        got, expected = (env.step(np.zeros(NUM_ENVS, int)) for env in (vector, inner))
        assert got[0].dtype == np.float32
        for g, e in zip(got[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(g, e)
        assert ("final_obs" in got[4]) == ("final_obs" in expected[4])
        for i in np.flatnonzero(expected[4].get("_final_obs", [])):
            np.testing.assert_array_equal(got[4]["final_obs"][i], expected[4]["final_obs"][i])
        done = got[2] | got[3]
        if mode is AutoresetMode.DISABLED and done.any():
            resets = (env.reset(options={"reset_mask": done})[0] for env in (vector, inner))
            np.testing.assert_array_equal(*resets)


class RawFinalDouble(vector_wrappers.FeatureObservation):
    def step(self, actions):
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        return self._features(observations), rewards, terminations, truncations, infos


@modes
@pytest.mark.parametrize("chain", ["terminations", "both"])
def test_features_equal_single_wrappers(chain, mode):
    check_features(vector_wrappers.FeatureObservation, chain, mode)


def test_feature_check_catches():
    with pytest.raises(AssertionError):
        check_features(RawFinalDouble, "both", AutoresetMode.SAME_STEP)


@modes
def test_history_over_features_sees_the_final_features(mode):
    fourier = RandomFourier(0.0, 1.0, 8)
    over = vector_wrappers.HistoryWrapper(
        vector_wrappers.FeatureObservation(sync("both", mode), OneHot(13)), LENGTH, fourier
    )
    inner = vector_wrappers.HistoryWrapper(
        sync("both", mode, wrap=lambda env: FeatureObservation(env, OneHot(13))), LENGTH, fourier
    )
    assert_rows(over.reset(seed=0)[0], [{k: v[i] for k, v in inner.reset(seed=0)[0].items()} for i in range(NUM_ENVS)])
    for _ in range(6 if mode is AutoresetMode.DISABLED else 30):  # no copy has to be reset by hand before step 7
        got, expected = (env.step(np.zeros(NUM_ENVS, int))[0] for env in (over, inner))
        assert_rows(got, [{k: v[i] for k, v in expected.items()} for i in range(NUM_ENVS)])


def check_policy(wrapper, mode, n_steps=40):
    """A deterministic table leaves one trajectory: that of the wrapped single environments."""

    def table_env(wrap=lambda env: env):
        make = [lambda: wrap(gym.make("RandomMDP-v0", task_seed=2, max_episode_steps=4))] * NUM_ENVS
        return SyncVectorEnv(make, autoreset_mode=mode)

    table = np.eye(4)[np.arange(10) % 4]
    vector, inner = wrapper(table_env(), table), table_env(lambda env: PolicyWrapper(env, table))
    np.testing.assert_array_equal(vector.reset(seed=1)[0], inner.reset(seed=1)[0])
    for _ in range(n_steps):
        got, expected = (env.step(np.zeros(NUM_ENVS, int)) for env in (vector, inner))
        for g, e in zip(got[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(g, e)
        done = got[2] | got[3]
        if mode is AutoresetMode.DISABLED and done.any():
            resets = (env.reset(options={"reset_mask": done})[0] for env in (vector, inner))
            np.testing.assert_array_equal(*resets)


class StaleObservationDouble(vector_wrappers.PolicyWrapper):
    """Acts on the first observation for ever."""

    def step(self, actions):
        first = self._observations
        outputs = super().step(actions)
        self._observations = first
        return outputs


@modes
def test_policy_equals_single_wrappers(mode):
    check_policy(vector_wrappers.PolicyWrapper, mode)
    with pytest.raises(AssertionError):
        check_policy(StaleObservationDouble, mode)


def test_a_list_of_seeds_empties_the_seeded_copies_only():
    env = vector_wrappers.HistoryWrapper(sync("limit 3", AutoresetMode.SAME_STEP), LENGTH)
    env.reset(seed=[1, 2, 3])
    for _ in range(2):
        env.step(np.zeros(NUM_ENVS, int))
    assert n_columns(env.reset(seed=[None, 5, None])[0]) == [3, 0, 3]


def test_a_list_of_seeds_seeds_the_policy():
    env = vector_wrappers.PolicyWrapper(SyncVectorEnv([lambda: gym.make("RandomMDP-v0")] * 2), np.full((10, 4), 0.25))

    def states(seed):
        env.reset(seed=seed)
        return [env.step(np.zeros(2, int))[0].tolist() for _ in range(20)]

    assert states([3, 4]) == states([3, 4])
    assert states([3, 4]) == states(3)  # what the environments make of one seed
    assert states([3, 4]) != states([5, 4])
    assert states([None, 4]) != states([None, None])
