"""collect: exactly the real transitions, from every kind of environment, whatever ends the episodes."""

import random

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.collect import collect
from icrl_agent.transitions import Transitions
from icrl_agent.wrappers import HistoryWrapper
from icrl_agent.wrappers.vector import HistoryWrapper as VectorHistoryWrapper

# The ring 0 -> 1 -> ... -> 7 -> 0, always started in 2, reward s + 1; 7 is terminal in the episodic version.
N = 8
MODES = list(AutoresetMode)


def ring(episodic, max_episode_steps=None):
    return {
        "id": "icrl_agent:TabularMDP-v0",
        "max_episode_steps": max_episode_steps,
        "transition": np.roll(np.eye(N), 1, axis=1),
        "reward": np.arange(N) + 1.0,
        "initial": np.eye(N)[2],
        "terminal": (np.arange(N) == N - 1) & episodic,
    }


def makers(arguments, num_envs=3):
    return [lambda: gym.make(**arguments)] * num_envs


KINDS = {
    "single": lambda arguments: gym.make(**arguments),
    "history": lambda arguments: HistoryWrapper(gym.make(**arguments), 4),
    "SB3": lambda arguments: DummyVecEnv(makers(arguments)),
}
for _mode in MODES:
    KINDS[f"native {_mode.name}"] = lambda arguments, mode=_mode: gym.make_vec(
        num_envs=3, autoreset_mode=mode, **arguments
    )
    KINDS[f"native history {_mode.name}"] = lambda arguments, mode=_mode: VectorHistoryWrapper(
        gym.make_vec(num_envs=3, autoreset_mode=mode, **arguments), 4
    )
    KINDS[f"sync {_mode.name}"] = lambda arguments, mode=_mode: SyncVectorEnv(makers(arguments), autoreset_mode=mode)
    KINDS[f"async {_mode.name}"] = lambda arguments, mode=_mode: AsyncVectorEnv(
        makers(arguments, 2), autoreset_mode=mode, context="fork"
    )
FAST_KINDS = [kind for kind in KINDS if not kind.startswith("async")]


def run(kind, arguments, n_steps, collector=collect, policy=None, seed=0):
    env = KINDS[kind](arguments)
    try:
        return collector(env, policy, n_steps, seed)
    finally:
        env.close()


def check_ring(transitions, n_steps, episodic, limit):
    """A deterministic task: every row of the record is known from the one before of the same copy."""
    assert len(transitions) == n_steps
    for name in ("observations", "rewards", "next_observations", "terminated", "truncated", "copy"):
        assert len(getattr(transitions, name)) == n_steps, name
    assert transitions.rewards.dtype == np.float64
    n_copies = int(transitions.copy.max()) + 1
    state, age = [2] * n_copies, [0] * n_copies
    for k in range(n_steps):
        c = transitions.copy[k]
        age[c] += 1
        assert transitions.observations[k] == state[c]
        assert transitions.rewards[k] == state[c] + 1
        state[c] = (state[c] + 1) % N
        assert transitions.next_observations[k] == state[c]
        terminated = episodic and state[c] == N - 1
        assert transitions.terminated[k] == terminated
        # SB3 and the others may differ in how they report both flags at once; the values are the same.
        cut = limit is not None and age[c] == limit
        assert transitions.truncated[k] == cut or (terminated and cut)
        if terminated or cut:
            state[c], age[c] = 2, 0


def with_reset_rows(env, policy, n_steps, seed):
    """Takes every row that a NEXT_STEP environment returns for a transition."""
    rows = []
    observations, _ = env.reset(seed=seed)
    while len(rows) < n_steps:
        following, rewards, terminated, truncated, _ = env.step(np.zeros(env.num_envs, int))
        rows += list(zip(observations, rewards, following, terminated, truncated, range(env.num_envs), strict=True))
        observations = following
    return Transitions(*(np.array(part) for part in zip(*rows[:n_steps], strict=True)))


def limit_is_termination(env, policy, n_steps, seed):
    t = collect(env, policy, n_steps, seed)
    ended = t.terminated | t.truncated
    return Transitions(t.observations, t.rewards, t.next_observations, ended, t.truncated, t.copy)


def shifted_states(env, policy, n_steps, seed):
    t = collect(env, policy, n_steps, seed)
    return Transitions(t.next_observations, t.rewards, t.next_observations, t.terminated, t.truncated, t.copy)


def next_first_state(env, policy, n_steps, seed):
    """Reads the state after SB3's own reset instead of terminal_observation."""
    t = collect(env, policy, n_steps, seed)
    following = np.where(t.terminated | t.truncated, 2, t.next_observations)
    return Transitions(t.observations, t.rewards, following, t.terminated, t.truncated, t.copy)


@pytest.mark.parametrize("kind", FAST_KINDS)
@pytest.mark.parametrize(("episodic", "limit"), [(True, None), (False, 3), (True, 5), (True, 4), (False, 1)])
def test_every_row_is_a_real_transition(kind, episodic, limit):
    check_ring(run(kind, ring(episodic, limit), 50), 50, episodic, limit)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(FAST_KINDS)))
def test_every_row_from_other_processes_is_a_real_transition(kind):
    check_ring(run(kind, ring(True, 4), 50), 50, True, 4)


@pytest.mark.parametrize("kind", FAST_KINDS)
@pytest.mark.parametrize("n_steps", [1, 2, 3, 4, 29, 31])
def test_exactly_n_steps(kind, n_steps):
    check_ring(run(kind, ring(True, 4), n_steps), n_steps, True, 4)


@pytest.mark.parametrize(
    ("double", "kind"),
    [
        (with_reset_rows, "native NEXT_STEP"),
        (with_reset_rows, "sync NEXT_STEP"),
        (limit_is_termination, "single"),
        (shifted_states, "single"),
        (next_first_state, "SB3"),
        (next_first_state, "native SAME_STEP"),
    ],
)
def test_row_check_catches(double, kind):
    with pytest.raises(AssertionError):
        check_ring(run(kind, ring(True, 4), 50, double), 50, True, 4)


@pytest.mark.parametrize("kind", FAST_KINDS)
def test_never_waits_for_an_episodes_end(kind):
    transitions = run(kind, ring(False), 25)
    assert len(transitions) == 25
    assert not (transitions.terminated | transitions.truncated).any()


def check_deterministic(collector, kind):
    arguments = {"id": "RandomMDP-v0", "max_episode_steps": 5}
    a, b, other = (run(kind, arguments, 60, collector, seed=seed) for seed in (3, 3, 4))
    for name in ("observations", "rewards", "next_observations", "copy"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert not np.array_equal(a.observations, other.observations)


def unseeded(env, policy, n_steps, seed):
    return collect(env, policy, n_steps, None)


def global_policy(env, policy, n_steps, seed):
    draws = iter(np.random.default_rng().integers(4, size=n_steps))
    return collect(env, lambda observation: int(next(draws)), n_steps, seed)


@pytest.mark.parametrize("kind", FAST_KINDS)
def test_one_seed_gives_one_record(kind):
    check_deterministic(collect, kind)


@pytest.mark.parametrize("double", [unseeded, global_policy])
def test_seed_check_catches(double):
    with pytest.raises(AssertionError):
        check_deterministic(double, "single")


def check_global_generators(collector, kind):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002

    def policy(observation):
        drawn = random.random() + np.random.rand() + float(torch.rand(1))  # noqa: NPY002
        return int(drawn) % 4

    arguments = {"id": "RandomMDP-v0"}
    first = run(kind, arguments, 30, collector, policy)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert after == before
    random.random()
    torch.rand(3)
    np.random.rand(2)  # noqa: NPY002
    second = run(kind, arguments, 30, collector, policy)  # and what they were does not matter
    np.testing.assert_array_equal(first.observations, second.observations)


def leaves_generators_moved(env, policy, n_steps, seed):
    transitions = collect(env, policy, n_steps, seed)
    np.random.rand()  # noqa: NPY002
    return transitions


@pytest.mark.parametrize("kind", ["single", "native SAME_STEP", "SB3"])
def test_global_generators_are_untouched_and_do_not_matter(kind):
    check_global_generators(collect, kind)
    with pytest.raises(AssertionError):
        check_global_generators(leaves_generators_moved, kind)


def test_global_generators_are_restored_after_an_error():
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    with pytest.raises(ValueError, match="the policy returned action 9"):
        collect(gym.make("RandomMDP-v0"), lambda observation: 9, 10, 0)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert after == before


@pytest.mark.parametrize("kind", ["history", "native history NEXT_STEP"])
def test_a_history_wrapper_is_left_empty(kind):
    env = KINDS[kind](ring(False))
    env.reset(seed=0)
    env.step(np.zeros(3, int) if hasattr(env, "num_envs") else 0)
    collect(env, None, 5, 0)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.zeros(3, int) if hasattr(env, "num_envs") else 0)
    assert env.reset()[0]["source_mask"].sum() == 0


@pytest.mark.parametrize("value", [0, -1, True, 2.5, None])
def test_bad_n_steps(value):
    with pytest.raises(ValueError, match=f"n_steps must be an integer of at least 1, got {value!r}"):
        collect(gym.make("BoyanChain-v0"), None, value, 0)


@pytest.mark.parametrize("env", [None, "BoyanChain-v0", gym.Env, 3])
def test_things_that_are_no_environment(env):
    with pytest.raises(TypeError, match="env must be a Gymnasium environment, vector environment or SB3 VecEnv, got"):
        collect(env, None, 5, 0)
