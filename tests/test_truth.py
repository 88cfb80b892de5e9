"""True values: given where tables, wrappers and policy are all known, withheld with a reason where they are not."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers as gym_wrappers
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from stable_baselines3 import DQN
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor, VecNormalize

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.features import OneHot
from icrl_agent.truth import Task, induced_process
from icrl_agent.wrappers import FeatureObservation, HistoryWrapper, PolicyWrapper
from icrl_agent.wrappers import vector as vector_wrappers

TABLE = np.random.default_rng(0).dirichlet(np.ones(4), size=10)
MDP = gym.make("RandomMDP-v0").unwrapped.mdp


def make(**arguments):
    return gym.make("icrl_agent:RandomMDP-v0", **arguments)


def fold(mdp, table):
    """P(s, s') and r(s) by loops."""
    n_states, n_actions = table.shape
    P, r = np.zeros((n_states, n_states)), np.zeros(n_states)
    for s in range(n_states):
        for a in range(n_actions):
            r[s] += table[s, a] * mdp.reward[s, a]
            for t in range(n_states):
                P[s, t] += table[s, a] * mdp.transition[s, a, t]
    return P, r


def check_known(find, env, policy, table, mdp=MDP):
    task = find(env, policy)
    assert task.mrp is not None, task.reason
    assert task.reason is None
    P, r = fold(mdp, table)
    np.testing.assert_allclose(task.mrp.transition, P, atol=1e-14)
    np.testing.assert_allclose(task.mrp.reward, r, atol=1e-14)


def check_unknown(find, env, policy, *words):
    task = find(env, policy)
    assert task.mrp is None
    for word in words:
        assert word in task.reason


def ignores_the_policy(env, policy):
    return induced_process(env, None)


def looks_through_everything(env, policy):
    base = env.unwrapped if isinstance(env, gym.Env) else env.envs[0].unwrapped
    return Task(base.mdp.policy_mrp(), None)


UNIFORM = np.full((10, 4), 0.25)
TRANSPARENT = {
    "bare": lambda: make().unwrapped,
    "made": make,
    "time limit": lambda: make(max_episode_steps=5),
    "statistics": lambda: gym_wrappers.RecordEpisodeStatistics(make()),
    "autoreset": lambda: gym_wrappers.Autoreset(make()),
    "noise": lambda: make(reward_noise=0.5),
    "history": lambda: HistoryWrapper(make()),
    "native": lambda: gym.make_vec("RandomMDP-v0", 3),
    "native history": lambda: vector_wrappers.HistoryWrapper(gym.make_vec("RandomMDP-v0", 3)),
    "native statistics": lambda: gym_wrappers.vector.RecordEpisodeStatistics(gym.make_vec("RandomMDP-v0", 3)),
    "sync": lambda: SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
    "SB3": lambda: DummyVecEnv([make] * 2),
    "SB3 monitors": lambda: DummyVecEnv([lambda: Monitor(make())] * 2),
    "SB3 vector monitor": lambda: VecMonitor(DummyVecEnv([make] * 2)),
}


@pytest.mark.parametrize("kind", TRANSPARENT)
def test_known_wrappers_are_looked_through(kind):
    check_known(induced_process, TRANSPARENT[kind](), None, UNIFORM)
    check_known(induced_process, TRANSPARENT[kind](), TABLE, TABLE)
    with pytest.raises(AssertionError):
        check_known(ignores_the_policy, TRANSPARENT[kind](), TABLE, TABLE)


class Doubled(gym.RewardWrapper):
    def reward(self, reward):
        return 2 * reward


class DoubledStatistics(gym_wrappers.RecordEpisodeStatistics):
    """A subclass of a known wrapper may do anything."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, 2 * reward, *rest


class DoubledVectorHistory(vector_wrappers.HistoryWrapper):
    pass


class DoubledPolicy(PolicyWrapper):
    pass


def transformed(env):
    return gym_wrappers.TransformReward(env, lambda reward: 2 * reward)


UNKNOWN = {
    "TransformReward": lambda: transformed(make()),
    "TransformReward ": lambda: gym_wrappers.TimeLimit(transformed(make()), 5),
    "Doubled": lambda: HistoryWrapper(Doubled(make())),
    "DoubledStatistics": lambda: DoubledStatistics(make()),
    "DoubledPolicy": lambda: DoubledPolicy(make(), None),
    "FeatureObservation": lambda: FeatureObservation(make(), OneHot(10)),
    "StickyAction": lambda: gym_wrappers.StickyAction(make(), 0.5),
    "NormalizeReward": lambda: SyncVectorEnv([lambda: gym_wrappers.NormalizeReward(make())] * 2),
    "NormalizeReward ": lambda: gym_wrappers.vector.NormalizeReward(gym.make_vec("RandomMDP-v0", 2)),
    "VecNormalize": lambda: VecNormalize(DummyVecEnv([make]), norm_obs=False),
    "VecNormalize ": lambda: VecMonitor(VecNormalize(DummyVecEnv([make]), norm_obs=False)),
    "Doubled ": lambda: DummyVecEnv([make, lambda: Doubled(make())]),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_unknown_wrappers_are_named(kind):
    check_unknown(induced_process, UNKNOWN[kind](), None, kind.strip(), "may change rewards, observations or actions")


def test_a_subclass_of_a_known_vector_wrapper_is_unknown():
    env = gym_wrappers.vector.RecordEpisodeStatistics(DoubledVectorHistory(gym.make_vec("RandomMDP-v0", 2)))
    check_unknown(induced_process, env, None, "DoubledVectorHistory")


def test_unknown_check_catches():
    with pytest.raises(AssertionError):
        check_unknown(looks_through_everything, transformed(make()), None, "TransformReward")


TOY_TEXT = ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"]


def toy_fold(env):
    """The uniform policy's P and r from the raw table; entered terminal states stay where they are."""
    raw, n_states = env.unwrapped.P, int(env.observation_space.n)
    P, r, terminal = np.zeros((n_states, n_states)), np.zeros(n_states), set()
    for state, by_action in raw.items():
        for outcomes in by_action.values():
            for probability, following, reward, terminated in outcomes:
                P[state, following] += probability / len(by_action)
                r[state] += probability * reward / len(by_action)
                if terminated:
                    terminal.add(following)
    for state in terminal:
        P[state], r[state] = 0.0, 0.0
        P[state, state] = 1.0
    return P, r


@pytest.mark.parametrize("env_id", TOY_TEXT)
@pytest.mark.parametrize("kind", ["single", "sync"])
def test_toy_text_tables(env_id, kind):
    env = gym.make(env_id)
    task = induced_process(env if kind == "single" else SyncVectorEnv([lambda: gym.make(env_id)] * 2), None)
    P, r = toy_fold(env)
    np.testing.assert_allclose(task.mrp.transition, P, atol=1e-14)
    np.testing.assert_allclose(task.mrp.reward, r, atol=1e-12)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Blackjack-v1"])
def test_environments_without_tables(env_id):
    check_unknown(induced_process, gym.make(env_id), None, "has no tables of its transitions")


def test_a_vector_environment_without_tables():
    env = gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    check_unknown(induced_process, env, None, "CartPoleVectorEnv has no tables of its transitions")


class Model:
    """Action = state mod 4, as SB3 would return it."""

    def predict(self, observation, deterministic=True):
        return np.asarray(observation) % 4, None


MODEL_TABLE = np.eye(4)[np.arange(10) % 4]


@pytest.fixture(scope="module")
def dqn():
    return DQN("MlpPolicy", make(), seed=0, buffer_size=8, device="cpu")


@pytest.mark.parametrize("policy", [TABLE, TABLE.tolist(), TABLE.astype(np.float32).astype(float)], ids=["a", "l", "f"])
def test_tables_are_known(policy):
    check_known(induced_process, make(), policy, np.asarray(policy) / np.sum(policy, axis=1, keepdims=True))


def test_a_deterministic_model_is_known(dqn):
    check_known(induced_process, make(), Model(), MODEL_TABLE)
    asked = [int(dqn.predict(np.array(state), deterministic=True)[0]) for state in range(10)]
    check_known(induced_process, gym.make_vec("RandomMDP-v0", 2), dqn, np.eye(4)[asked])


def test_policies_that_are_no_table():
    check_unknown(induced_process, make(), lambda state: 0, "the policy is no table")
    check_unknown(induced_process, PolicyWrapper(make(), lambda state: 0), None, "the policy is no table")
    check_unknown(induced_process, PolicyWrapper(make(), Model(), deterministic=False), None, "the policy is no table")
    env = vector_wrappers.PolicyWrapper(gym.make_vec("RandomMDP-v0", 2), Model(), deterministic=False)
    check_unknown(induced_process, env, None, "the policy is no table")


FOLDED = {
    "single": lambda policy: PolicyWrapper(make(), policy),
    "under a limit and a history": lambda policy: HistoryWrapper(
        gym_wrappers.TimeLimit(PolicyWrapper(make(), policy), 5)
    ),
    "in a policy": lambda policy: PolicyWrapper(PolicyWrapper(make(), policy), None),
    "vector": lambda policy: vector_wrappers.PolicyWrapper(gym.make_vec("RandomMDP-v0", 2), policy),
    "sync of single": lambda policy: SyncVectorEnv([lambda: PolicyWrapper(make(), policy)] * 2),
    "vector over single": lambda policy: vector_wrappers.PolicyWrapper(
        SyncVectorEnv([lambda: PolicyWrapper(make(), policy)] * 2), None
    ),
    "SB3": lambda policy: DummyVecEnv([lambda: PolicyWrapper(make(), policy)] * 2),
}


@pytest.mark.parametrize("kind", FOLDED)
def test_a_folded_policy_is_the_one_that_acts(kind):
    check_known(induced_process, FOLDED[kind](TABLE), None, TABLE)
    check_known(induced_process, FOLDED[kind](None), None, UNIFORM)
    check_known(induced_process, FOLDED[kind](Model()), None, MODEL_TABLE)
    with pytest.raises(AssertionError):
        check_known(induced_process, FOLDED[kind](Model()), None, UNIFORM)


def test_copies_with_different_policies_are_unknown():
    env = SyncVectorEnv([lambda: PolicyWrapper(make(), TABLE), lambda: PolicyWrapper(make(), UNIFORM)])
    check_unknown(induced_process, env, None, "copies 0 and 1 follow different policies")


def different(*extra, wrap=lambda env: env):
    return [lambda seed=seed: wrap(make(task_seed=seed)) for seed in (3, 3, 8, *extra)]


DIFFERENT = {
    "sync": lambda: SyncVectorEnv(different()),
    "SB3": lambda: DummyVecEnv(different()),
    "SB3 monitor": lambda: VecMonitor(DummyVecEnv(different())),
    "under history": lambda: vector_wrappers.HistoryWrapper(SyncVectorEnv(different())),
    "behind an unknown wrapper": lambda: SyncVectorEnv(different(wrap=transformed)),
    "behind an unknown vector wrapper": lambda: VecNormalize(DummyVecEnv(different()), norm_obs=False),
    "folded policies": lambda: SyncVectorEnv(different(wrap=lambda env: PolicyWrapper(env, TABLE))),
}
REMOTE = {
    "async": lambda: AsyncVectorEnv(different(), context="fork"),
    "SubprocVecEnv": lambda: SubprocVecEnv(different()),
}


def check_refused(find, env, policy=None):
    try:
        refused = None
        find(env, policy)
    except ValueError as error:
        refused = str(error)
    finally:
        env.close()
    assert refused is not None
    assert "copies 0 and 2 play different tasks: one context needs copies with equal tables" in refused


@pytest.mark.parametrize("kind", DIFFERENT)
@pytest.mark.parametrize("policy", [None, lambda state: 0], ids=["None", "callable"])
def test_copies_with_different_tasks_are_refused(kind, policy):
    check_refused(induced_process, DIFFERENT[kind](), policy)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("kind", ["async", pytest.param("SubprocVecEnv", marks=pytest.mark.slow)])
def test_copies_in_other_processes_with_different_tasks_are_refused(kind):
    check_refused(induced_process, REMOTE[kind]())


def test_refusal_check_catches():
    with pytest.raises(AssertionError):
        check_refused(looks_through_everything, SyncVectorEnv(different()))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(
    "make_vector",
    [
        lambda: AsyncVectorEnv([make] * 2, context="fork"),
        pytest.param(lambda: SubprocVecEnv([make] * 2), marks=pytest.mark.slow),
    ],
    ids=["async", "SubprocVecEnv"],
)
def test_copies_in_other_processes_are_unknown(make_vector):
    env = make_vector()
    try:
        check_unknown(induced_process, env, None, "run in other processes, their wrappers are unknown")
    finally:
        env.close()


def test_a_policy_table_of_another_shape_is_refused():
    for env in (make(), gym.make_vec("RandomMDP-v0", 2), DummyVecEnv([make])):
        with pytest.raises(ValueError, match=r"shape \(n_states, n_actions\) = \(10, 4\), got \(4, 10\)"):
            induced_process(env, TABLE.T)
