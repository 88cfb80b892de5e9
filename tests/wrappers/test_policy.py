"""PolicyWrapper and its vector version: which actions are taken, with what frequency, and what is refused."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.wrappers import BoundPolicy, PolicyWrapper
from icrl_agent.wrappers import vector as vector_wrappers

SIGNIFICANCE = 1e-4  # of every chi-square test: a right implementation fails one seed in 10,000
TABLE = np.array([[0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]])
UNIFORM = np.full((3, 4), 0.25)


class Spy(gym.Env):
    """Remembers (state, action); the next state is uniform, from the environment's own generator."""

    def __init__(self, start=0, first_action=0):
        self.observation_space = spaces.Discrete(3, start=start)
        self.action_space = spaces.Discrete(4, start=first_action)
        self.log = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(3)) + int(self.observation_space.start)
        return self.state, {}

    def step(self, action):
        self.log.append((self.state, action))
        self.state = int(self.np_random.integers(3)) + int(self.observation_space.start)
        return self.state, 1.0, False, False, {}


def chi_square_p(counts, probabilities):
    """Upper tail of Pearson's statistic over the cells that can happen; counts elsewhere must be 0."""
    expected = probabilities * counts.sum()
    possible = expected > 0
    assert not counts[~possible].any(), "something impossible happened"
    if possible.sum() == 1:
        return 1.0
    statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    half_freedom = torch.tensor((possible.sum() - 1) / 2.0, dtype=torch.float64)
    return float(torch.special.gammaincc(half_freedom, torch.tensor(statistic / 2.0, dtype=torch.float64)))


def visits(log, start=0, first_action=0):
    counts = np.zeros((3, 4))
    for state, action in log:
        counts[state - start, action - first_action] += 1
    return counts


def check_frequencies(counts, table):
    for state in range(3):
        assert counts[state].sum() > 100
        assert chi_square_p(counts[state], table[state]) > SIGNIFICANCE


def single_log(wrapper, policy, n_steps=6000, **spaces_start):
    spy = Spy(**spaces_start)
    env = wrapper(spy, policy)
    env.reset(seed=5)
    for _ in range(n_steps):
        env.step(0)
    return spy.log


def vector_log(wrapper, policy, n_steps=1500, **spaces_start):
    spies = [Spy(**spaces_start) for _ in range(4)]
    env = wrapper(gym.vector.SyncVectorEnv([lambda spy=spy: spy for spy in spies]), policy)
    env.reset(seed=5)
    for _ in range(n_steps):
        env.step(np.zeros(4, int))
    return [pair for spy in spies for pair in spy.log]


RUNS = {"single": (single_log, PolicyWrapper), "vector": (vector_log, vector_wrappers.PolicyWrapper)}


class ShiftedRow:
    """Mixin: looks up the row of the next state."""

    def __init__(self, env, policy, seed=None):
        super().__init__(env, np.roll(policy, 1, axis=0), seed)


class ShiftedSingle(ShiftedRow, PolicyWrapper):
    pass


class ShiftedVector(ShiftedRow, vector_wrappers.PolicyWrapper):
    pass


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize(
    "policy", [TABLE, TABLE.tolist(), TABLE.astype(np.float32), None], ids=["array", "list", "float32", "None"]
)
def test_action_frequencies(kind, policy):
    run, wrapper = RUNS[kind]
    check_frequencies(visits(run(wrapper, policy)), UNIFORM if policy is None else TABLE)


@pytest.mark.parametrize("policy", [TABLE, None], ids=["table", "None"])
@pytest.mark.parametrize("kind", RUNS)
def test_spaces_with_a_start(kind, policy):
    run, wrapper = RUNS[kind]
    log = run(wrapper, policy, start=5, first_action=2)
    check_frequencies(visits(log, 5, 2), UNIFORM if policy is None else TABLE)


@pytest.mark.parametrize(("run", "double"), [(single_log, ShiftedSingle), (vector_log, ShiftedVector)])
def test_frequency_check_catches(run, double):
    with pytest.raises(AssertionError):
        check_frequencies(visits(run(double, TABLE)), TABLE)


def check_independent_of_the_environment(make_policy, run):
    """(state, action, next state) follows pi(a|s) p(s'|s, a): the policy's draws say nothing about the next state."""
    env = gym.make("RandomMDP-v0", n_states=3, n_actions=2, branching=3, task_seed=1).unwrapped
    table = np.full((3, 2), 0.5)
    counts = np.zeros((3, 2, 3))
    for state, action, next_state in run(env, make_policy(table, env)):
        counts[state, action, next_state] += 1
    joint = table[:, :, None] * env.mdp.transition
    for state in range(3):
        assert chi_square_p(counts[state].ravel(), joint[state].ravel()) > SIGNIFICANCE


def one_seed_run(env, policy, n_steps=6000):
    state = env.reset(seed=0)[0]
    for _ in range(n_steps):
        action = policy.action(state)
        next_state, *_ = env.step(action)
        yield state, action, next_state
        state = next_state


class SameStreamDouble(BoundPolicy):
    """Starts the very generator that an environment reset with the same seed starts."""

    def seed(self, seed):
        self._rng = np.random.default_rng(seed)
        self._rng.random()  # the environment has drawn its first state


def bind(cls):
    return lambda table, env: cls(table, env.observation_space, env.action_space, seed=0)


def test_one_seed_for_policy_and_environment_gives_independent_draws():
    check_independent_of_the_environment(bind(BoundPolicy), one_seed_run)
    with pytest.raises(AssertionError):
        check_independent_of_the_environment(bind(SameStreamDouble), one_seed_run)


@pytest.mark.parametrize("kind", RUNS)
def test_a_callable_sees_the_raw_observation(kind):
    seen = []

    def policy(observation):
        seen.append(int(observation))
        return int(observation) - 4  # states 5, 6, 7 to actions 1, 2, 3

    run, wrapper = RUNS[kind]
    log = run(wrapper, policy, n_steps=40, start=5)
    assert sorted(seen) == sorted(state for state, _ in log)
    assert all(action == state - 4 for state, action in log)


@pytest.fixture(scope="module", params=[PPO, DQN])
def model(request):
    arguments = {"n_steps": 8, "batch_size": 8} if request.param is PPO else {"buffer_size": 8}
    return request.param("MlpPolicy", Spy(), seed=0, device="cpu", **arguments)


@pytest.mark.parametrize("kind", RUNS)
def test_an_sb3_model_acts_deterministically(kind, model):
    run, wrapper = RUNS[kind]
    log = run(wrapper, model, n_steps=30)
    assert all(action == model.predict(np.array(state), deterministic=True)[0] for state, action in log)
    assert {state for state, _ in log} == {0, 1, 2}


def test_deterministic_is_passed_on():
    class Model:
        def predict(self, observation, deterministic):
            return int(deterministic) + 1, None

    for deterministic in (True, False):
        spy = Spy()
        env = PolicyWrapper(spy, Model(), deterministic=deterministic)
        env.reset(seed=0)
        env.step(0)
        assert spy.log[0][1] == int(deterministic) + 1


def check_seeding(make, kind):
    run_actions = {}
    for name, (constructor_seed, reset_seed) in {"a": (1, 3), "b": (2, 3), "c": (1, 4), "d": (1, None)}.items():
        spies = [Spy() for _ in range(1 if kind == "single" else 4)]
        env = spies[0] if kind == "single" else gym.vector.SyncVectorEnv([lambda spy=spy: spy for spy in spies])
        env = make(env, UNIFORM, constructor_seed)
        env.reset(seed=reset_seed)
        for _ in range(40):
            env.step(0 if kind == "single" else np.zeros(4, int))
        run_actions[name] = [action for spy in spies for _, action in spy.log]
    assert run_actions["a"] == run_actions["b"]
    assert run_actions["a"] != run_actions["c"]
    assert run_actions["a"] != run_actions["d"]


def never_reseeded(wrapper):
    class Double(wrapper):
        def reset(self, *, seed=None, options=None):
            keep, self.policy.seed = self.policy.seed, lambda seed: None
            try:
                return super().reset(seed=seed, options=options)
            finally:
                self.policy.seed = keep

    return Double


@pytest.mark.parametrize("kind", RUNS)
def test_a_seeded_reset_seeds_the_policy(kind):
    wrapper = RUNS[kind][1]
    check_seeding(wrapper, kind)
    with pytest.raises(AssertionError):
        check_seeding(never_reseeded(wrapper), kind)


def test_sampling_moves_neither_the_spaces_nor_the_global_generator():
    spy = Spy()
    spy.action_space.seed(0)
    expected = spaces.Discrete(4, seed=0).sample()
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    env = PolicyWrapper(spy, None, seed=0)
    env.reset(seed=0)
    for _ in range(5):
        env.step(0)
    assert spy.action_space.sample() == expected
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


WRAPPED = {
    "single": lambda policy, env=Spy: PolicyWrapper(env(), policy),
    "vector": lambda policy, env=Spy: vector_wrappers.PolicyWrapper(gym.vector.SyncVectorEnv([env]), policy),
}


def cart_pole():
    return gym.make("CartPole-v1")


@pytest.mark.parametrize("kind", WRAPPED)
@pytest.mark.parametrize(
    ("policy", "error", "message"),
    [
        (UNIFORM.T, ValueError, r"shape \(n_states, n_actions\) = \(3, 4\), got \(4, 3\)"),
        (UNIFORM[0], ValueError, r"= \(3, 4\), got \(4,\)"),
        ([*UNIFORM[:2].tolist(), [0.5, 0.5, 0.5, 0.0]], ValueError, r"policy\[2\] must be .* sum to 1, got .*1\.5"),
        ([[-0.5, 0.5, 0.5, 0.5], *UNIFORM[:2].tolist()], ValueError, r"policy\[0\] must be non-negative"),
        (np.where(np.arange(4) == 1, np.nan, UNIFORM), ValueError, r"policy\[0\] must be"),
        ([["a"] * 4] * 3, ValueError, r"a policy table holds numbers of shape \(3, 4\)"),
        ("random", TypeError, "a policy is None, a table .* got 'random'"),
        (3, TypeError, "a policy is None, a table .* got 3"),
        ([[0.5, 0.5], [1.0]], ValueError, r"a policy table holds numbers of shape \(3, 4\)"),
        (Spy, TypeError, "a policy is a model, not its class: got the class Spy"),
    ],
)
def test_policies_that_do_not_fit(kind, policy, error, message):
    with pytest.raises(error, match=message):
        WRAPPED[kind](policy)


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_table_needs_discrete_spaces(kind):
    with pytest.raises(TypeError, match="a policy table needs a Discrete observation space, got Box"):
        WRAPPED[kind](UNIFORM, cart_pole)


class Constant:
    def __init__(self, action):
        self.action = action

    def predict(self, observation, deterministic=True):
        return np.full(np.shape(observation), self.action), None


@pytest.mark.parametrize("kind", WRAPPED)
@pytest.mark.parametrize("action", [4, -1, 0.5])
@pytest.mark.parametrize("make", [lambda action: lambda observation: action, Constant], ids=["callable", "model"])
def test_actions_outside_the_space_are_refused(kind, action, make):
    env = WRAPPED[kind](make(action))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=rf"the policy returned action {action}, which is not in Discrete\(4\)"):
        env.step(0 if kind == "single" else np.zeros(1, int))


@pytest.mark.parametrize(
    "action", [[0.5], np.array([0.5]), np.array([0.5], np.float32)], ids=["list", "double", "float"]
)
def test_continuous_actions_of_any_float_type(action):
    make = gym.make("Pendulum-v1")
    policy = BoundPolicy(lambda observation: action, make.observation_space, make.action_space)
    for chosen in (policy.action(np.zeros(3)), policy.actions(np.zeros((2, 3)))[0]):
        assert chosen.dtype == np.float32
        assert chosen.tolist() == [0.5]
    outside = BoundPolicy(lambda observation: [2.5], make.observation_space, make.action_space)
    with pytest.raises(ValueError, match=r"the policy returned action .*2\.5.*, which is not in Box"):
        outside.action(np.zeros(3))


@pytest.mark.parametrize("kind", WRAPPED)
def test_the_only_action_is_zero(kind):
    env = WRAPPED[kind](UNIFORM)
    with pytest.raises(gym.error.ResetNeeded, match=r"call reset\(\) before step\(\)"):
        env.step(0 if kind == "single" else np.zeros(1, int))
    env.reset(seed=0)
    if kind == "single":
        assert env.action_space == spaces.Discrete(1)
        for action in (0, np.int64(0), np.array(0)):
            env.step(action)
    else:
        assert env.single_action_space == spaces.Discrete(1)
        assert env.action_space == spaces.MultiDiscrete([1])
    for action in (1, -1, None):
        with pytest.raises(ValueError, match="the only action is 0, got"):
            env.step(action if kind == "single" else np.array([action]))
