"""collect on awkward environments and with every kind of policy: reused arrays, bad rewards, time limits."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.algorithms import certainty_equivalence
from icrl_agent.collect import collect
from icrl_agent.transitions import Transitions

MODES = list(AutoresetMode)


class Counter(gym.Env):
    """Counts steps; every observation is one and the same array. The reward of step ``bad_at`` is ``bad``."""

    observation_space = spaces.Box(0, 1000, (2,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, bad_at=None, bad=np.nan, length=7):
        self.buffer, self.bad_at, self.bad, self.length, self.n_steps = np.zeros(2), bad_at, bad, length, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.buffer[:] = 0.0
        return self.buffer, {}

    def step(self, action):
        self.n_steps += 1
        self.buffer += 1.0
        reward = self.bad if self.n_steps == self.bad_at else 1.0
        return self.buffer, reward, False, bool(self.buffer[0] == self.length), {}


class CounterVector(gym.vector.VectorEnv):
    """A vector environment that reuses all of its arrays."""

    num_envs, single_observation_space, single_action_space = 2, Counter.observation_space, Counter.action_space
    observation_space = gym.vector.utils.batch_space(Counter.observation_space, 2)
    action_space = gym.vector.utils.batch_space(Counter.action_space, 2)

    def __init__(self, mode):
        self.metadata = {"autoreset_mode": mode}
        self.observations, self.rewards = np.zeros((2, 2)), np.zeros(2)
        self.flags = np.zeros(2, bool), np.zeros(2, bool)

    def reset(self, *, seed=None, options=None):
        self.observations[(options or {}).get("reset_mask", slice(None))] = 0.0
        return self.observations, {}

    def step(self, actions):
        mode, ended = self.metadata["autoreset_mode"], self.flags[1].copy()
        if mode is not AutoresetMode.NEXT_STEP:
            ended[:] = False
        self.observations += 1.0
        self.observations[ended] = 0.0
        self.rewards[:] = np.where(ended, 0.0, self.observations[:, 0])
        self.flags[1][:] = self.observations[:, 0] == 7
        infos = {}
        if mode is AutoresetMode.SAME_STEP and self.flags[1].any():
            infos = {"final_obs": self.observations.copy(), "_final_obs": self.flags[1].copy()}
            self.observations[self.flags[1]] = 0.0
        return self.observations, self.rewards, *self.flags, infos


def check_counts(transitions, n_steps=40):
    assert len(transitions) == n_steps
    for c in np.unique(transitions.copy):
        mine = transitions.copy == c
        expected = np.arange(mine.sum()) % 7
        np.testing.assert_array_equal(transitions.observations[mine], np.stack([expected] * 2, axis=1))
        np.testing.assert_array_equal(transitions.next_observations[mine], np.stack([expected + 1] * 2, axis=1))
        np.testing.assert_array_equal(transitions.truncated[mine], expected == 6)


def aliasing_collect(env, n_steps):
    """Keeps what the environment returned, not copies."""
    observation, rows = env.reset()[0], []
    for _ in range(n_steps):
        following, reward, terminated, truncated, _ = env.step(0)
        rows.append((observation, reward, following, terminated, truncated, 0))
        observation = env.reset()[0] if truncated else following
    return Transitions(*(np.array(part) for part in zip(*rows, strict=True)))


def test_observations_that_are_one_array():
    check_counts(collect(Counter(), None, 40, 0))
    with pytest.raises(AssertionError):
        check_counts(aliasing_collect(Counter(), 40))


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_vector_arrays_that_are_used_again(mode):
    transitions = collect(CounterVector(mode), None, 40, 0)
    check_counts(transitions)
    np.testing.assert_array_equal(transitions.rewards, transitions.next_observations[:, 0])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED], ids=lambda mode: mode.name)
def test_sync_vector_env_without_copies(mode):
    check_counts(collect(SyncVectorEnv([Counter] * 2, copy=False, autoreset_mode=mode), None, 40, 0))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bad_at", [1, 13, 25])
def test_a_bad_reward_is_named_by_its_step(bad, bad_at):
    with pytest.raises(ValueError, match=f"returned reward {bad} at step {bad_at}, rewards must be finite numbers"):
        collect(Counter(bad_at, bad), None, 25, 0)
    assert len(collect(Counter(bad_at + 1, bad), None, bad_at, 0)) == bad_at  # one step later is out of reach


@pytest.mark.parametrize("make", [SyncVectorEnv, DummyVecEnv])
def test_a_bad_reward_of_one_copy_is_named_by_its_transition(make):
    # Copy 1's fifth step is transition 2 * 4 + 2 = 10 of the record.
    with pytest.raises(ValueError, match="returned reward nan at step 10, rewards must be finite"):
        collect(make([Counter, lambda: Counter(5)]), None, 25, 0)


def check_limit(collector, make, limit):
    """Certainty-equivalence values of a chain do not depend on the time limit that cuts its episodes."""
    gamma, n_steps = 0.9, 20_000
    env = make(limit)
    columns = collector(env, n_steps).columns()
    P, r = MDP.policy_mrp().transition, MDP.policy_mrp().reward
    value = np.linalg.solve(np.eye(10) - gamma * P, r)
    got = certainty_equivalence(
        columns.observations,
        columns.rewards,
        gamma,
        10,
        continues=columns.continues,
        source_mask=columns.source_mask,
    )
    # Rewards are exact, so to first order the error is G gamma (P_hat - P) v with G = (I - gamma P)^-1; the rows of
    # (P_hat - P) v are uncorrelated, with variance var(v(S') | s) / visits of s. Five standard errors.
    visits = np.bincount(columns.observations[columns.source_mask], minlength=10)
    assert (visits > 100).all()
    row_variance = np.maximum(P @ value**2 - (P @ value) ** 2, 0) / visits
    standard_error = np.sqrt(np.linalg.inv(np.eye(10) - gamma * P) ** 2 @ (gamma**2 * row_variance))
    assert (np.abs(got - value) <= 5 * standard_error).all()


CHAIN = {"id": "RandomMDP-v0", "n_actions": 1, "branching": 4, "task_seed": 3}
MDP = gym.make(**CHAIN).unwrapped.mdp
LIMITED = {
    "single": lambda limit: gym.make(**CHAIN, max_episode_steps=limit),
    "SB3": lambda limit: DummyVecEnv([lambda: gym.make(**CHAIN, max_episode_steps=limit)] * 4),
}
for _mode in MODES:
    LIMITED[_mode.name] = lambda limit, mode=_mode: gym.make_vec(
        num_envs=4, **CHAIN, max_episode_steps=limit, autoreset_mode=mode
    )


def right(env, n_steps):
    return collect(env, None, n_steps, 0)


def limit_is_termination(env, n_steps):
    t = collect(env, None, n_steps, 0)
    return Transitions(t.observations, t.rewards, t.next_observations, t.terminated | t.truncated, t.truncated, t.copy)


def keeps_reset_rows(env, n_steps):
    """NEXT_STEP's reset rows as transitions from the last state to the first, with reward 0."""
    t, rows = collect(env, None, n_steps, 0), []
    for k in range(n_steps):
        rows.append((t.observations[k], t.rewards[k], t.next_observations[k], False, False, t.copy[k]))
        if t.truncated[k] and (later := np.flatnonzero(t.copy[k + 1 :] == t.copy[k])).size:
            rows.append((t.next_observations[k], 0.0, t.observations[k + 1 + later[0]], False, False, t.copy[k]))
    return Transitions(*(np.array(part) for part in zip(*rows, strict=True)))


@pytest.mark.parametrize("kind", LIMITED)
@pytest.mark.parametrize("limit", [3, 5, 10, 50])
def test_values_do_not_depend_on_the_time_limit(kind, limit):
    check_limit(right, LIMITED[kind], limit)


@pytest.mark.parametrize("double", [limit_is_termination, keeps_reset_rows])
@pytest.mark.parametrize("limit", [3, 10])
def test_limit_check_catches(double, limit):
    with pytest.raises(AssertionError):
        check_limit(double, LIMITED["NEXT_STEP"], limit)


ARGUMENTS = {"id": "RandomMDP-v0", "n_states": 3, "n_actions": 2, "branching": 1, "task_seed": 4}
NEXT = gym.make(**ARGUMENTS).unwrapped.mdp.transition.argmax(axis=2)
TABLE = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
ENVIRONMENTS = {
    "single": lambda: gym.make(**ARGUMENTS),
    "native": lambda: gym.make_vec(num_envs=2, **ARGUMENTS),
    "sync": lambda: SyncVectorEnv([lambda: gym.make(**ARGUMENTS)] * 2),
    "SB3": lambda: DummyVecEnv([lambda: gym.make(**ARGUMENTS)] * 2),
}


@pytest.fixture(scope="module")
def model():
    return DQN("MlpPolicy", gym.make(**ARGUMENTS), seed=0, buffer_size=8, device="cpu")


def check_actions(transitions, allowed):
    """With branching 1 the next state says which actions can have been taken."""
    for state, next_state in zip(transitions.observations, transitions.next_observations, strict=True):
        assert next_state in {NEXT[state, action] for action in allowed(state)}


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_every_kind_of_policy_acts_as_it_says(kind, model):
    def record(policy):
        return collect(ENVIRONMENTS[kind](), policy, 60, 0)

    def follows_table(state):
        return [int(TABLE[state].argmax())]

    check_actions(record(None), lambda state: [0, 1])
    check_actions(record(TABLE), follows_table)
    check_actions(record(lambda state: int(TABLE[state].argmax())), follows_table)
    check_actions(record(model), lambda state: [int(model.predict(np.array(state), deterministic=True)[0])])
    with pytest.raises(AssertionError):
        check_actions(record(TABLE[:, ::-1]), follows_table)


def test_the_actions_matter():
    """The check above can tell the two actions apart somewhere."""
    assert (NEXT[:, 0] != NEXT[:, 1]).any()


class Constant:
    def predict(self, observation, deterministic=True):
        return np.full(np.shape(observation), 2), None


@pytest.mark.parametrize("kind", ENVIRONMENTS)
@pytest.mark.parametrize("policy", [lambda observation: 2, Constant()], ids=["callable", "model"])
def test_actions_outside_the_space(kind, policy):
    with pytest.raises(ValueError, match=r"the policy returned action 2, which is not in Discrete\(2\)"):
        collect(ENVIRONMENTS[kind](), policy, 10, 0)


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_policies_that_do_not_fit(kind):
    with pytest.raises(ValueError, match=r"must have shape \(n_states, n_actions\) = \(3, 2\), got \(2, 3\)"):
        collect(ENVIRONMENTS[kind](), TABLE.T, 10, 0)
    with pytest.raises(TypeError, match="a policy is None, a table"):
        collect(ENVIRONMENTS[kind](), "random", 10, 0)


def test_a_numpy_seed_and_a_python_seed_are_one():
    states = [collect(gym.make("RandomMDP-v0"), None, 20, seed).observations for seed in (3, np.int64(3))]
    np.testing.assert_array_equal(*states)
