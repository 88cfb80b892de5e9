"""Stable-Baselines3 critics are right: exact TD(0), correct targets, time limits, recording after the update."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.collect import collect
from icrl_agent.envs import state_values, stationary_distribution
from icrl_agent.eval.baselines import SB3Baseline
from icrl_agent.eval.replay import ReplayEnv
from icrl_agent.features import RandomUnit
from icrl_agent.metrics import normalized_msve

GAMMA = 0.9


def chain(task_seed=500, **kwargs):
    return gym.make("BoyanChain-v0", task_seed=task_seed, **kwargs)


def online_td(transitions, n_states, rate, gamma, n_steps):
    """Linear TD(0) with one-hot features and a bias, step by step in plain NumPy, at SB3's decaying rate."""
    w, bias = np.zeros(n_states), 0.0
    for k in range(n_steps):
        s, s_next = transitions.observations[k], transitions.next_observations[k]
        alpha = rate / (1 + (k + 1) / 1000)  # k + 1 steps are done when step k is learnt from
        target = transitions.rewards[k] + gamma * (0.0 if transitions.terminated[k] else w[s_next] + bias)
        delta = target - (w[s] + bias)
        w[s] += alpha * delta
        bias += alpha * delta
    return w + bias


def check_exact_td(gamma):
    env = chain()
    transitions = collect(env, None, 100, 3)
    baseline = SB3Baseline("td0", learning_rate=0.1)
    (record,) = baseline.fit(env, 100, GAMMA, 3, record_at=[100])
    expected = online_td(transitions, 10, 0.1, gamma, 100)
    # float32 rounding of 100 updates of numbers below 10.
    np.testing.assert_allclose(record.values, expected, atol=100 * 10 * np.finfo(np.float32).eps)
    assert record.gradient_updates == 100


def test_a2c_of_one_step_is_online_td():
    check_exact_td(GAMMA)
    with pytest.raises(AssertionError):
        check_exact_td(0.5)


@pytest.mark.parametrize(("kind", "per_step"), [("td0", 1), ("dqn", 1), ("a2c", 1 / 5), ("ppo", 4 / 10)])
def test_records_are_those_after_the_step_s_update(kind, per_step):
    """A record at step k equals what a run of k steps ends with, and counts its updates."""
    env = chain()
    long = SB3Baseline(kind).fit(env, 60, GAMMA, 1, record_at=[20, 40, 60])
    assert [record.n_steps for record in long] == [20, 40, 60]
    assert [record.gradient_updates for record in long] == [round(k * per_step) for k in (20, 40, 60)]
    assert not np.array_equal(long[0].values, long[1].values)
    if kind != "dqn":  # its replay buffer samples depend on the global stream alone, the rate on the budget
        transitions = collect(env, None, 60, 1)
        short = SB3Baseline(kind)
        (last,) = short.fit_transitions(transitions, env.observation_space, GAMMA, 1, record_at=[60])
        np.testing.assert_array_equal(last.values, long[-1].values)
        np.testing.assert_array_equal(short.values(range(10)), long[-1].values)


@pytest.mark.parametrize("kind", ["td0", "dqn", "a2c", "ppo"])
def test_before_the_first_update_values_are_zero(kind):
    first = {"td0": 1, "dqn": 1, "a2c": 5, "ppo": 10}[kind]
    records = SB3Baseline(kind).fit(chain(), 20, GAMMA, 0, record_at=[max(first - 1, 1), 20])
    if first > 1:
        assert (records[0].values == 0).all()
        assert records[0].gradient_updates == 0
    assert (records[1].values != 0).any()


def test_replay_plays_the_record_and_its_ends():
    env = gym.make("BoyanChainClassic-v0", max_episode_steps=5)
    record = collect(env, None, 40, 0)
    replay = ReplayEnv(record, spaces.Discrete(13))
    observation, _ = replay.reset()
    for k in range(39):
        assert observation == record.observations[k]
        observation, reward, terminated, truncated, _ = replay.step(0)
        assert (observation, reward) == (record.next_observations[k], record.rewards[k])
        assert (terminated, truncated) == (record.terminated[k], record.truncated[k] and not record.terminated[k])
        if terminated or truncated:
            observation, _ = replay.reset()
    with pytest.raises(ValueError, match="only action is 0"):
        replay.step(1)
    several = collect(gym.make_vec("BoyanChain-v0", num_envs=2), None, 10, 0)
    with pytest.raises(ValueError, match="several copies"):
        ReplayEnv(several, spaces.Discrete(10))


def test_global_generators_are_restored_and_seeds_repeat():
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    expected = np.random.rand(), torch.rand(1).item()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    first = SB3Baseline("dqn").fit(chain(), 30, GAMMA, 7, record_at=[30])
    assert (np.random.rand(), torch.rand(1).item()) == expected  # noqa: NPY002
    second = SB3Baseline("dqn").fit(chain(), 30, GAMMA, 7, record_at=[30])
    np.testing.assert_array_equal(first[0].values, second[0].values)


# Rates fall as 1 / step. DQN averages over its replay buffer at every step, the others see each transition once (PPO
# four times), so that their noise lasts longer.
LONG_ENOUGH = {"td0": 40_000, "dqn": 10_000, "a2c": 40_000, "ppo": 40_000}


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 5, 200])
@pytest.mark.parametrize("kind", LONG_ENOUGH)
def test_trained_long_enough_every_baseline_is_right(kind, limit):
    """One-hot linear: within 0.02 of the truth on every one of 5 tasks, whatever the time limit."""
    n_steps = LONG_ENOUGH[kind]
    for task_seed in range(501, 506):
        env = chain(task_seed, max_episode_steps=limit)
        mrp = env.unwrapped.mdp.policy_mrp()
        (record,) = SB3Baseline(kind).fit(env, n_steps, GAMMA, task_seed, record_at=[n_steps])
        error = normalized_msve(record.values, state_values(mrp, GAMMA), stationary_distribution(mrp))
        print(f"{kind}, time limit {limit}, task {task_seed}, {n_steps} steps: {error:.4f}")
        assert error < 0.02


@pytest.mark.parametrize("kind", ["td0", "dqn", "a2c", "ppo"])
def test_a_critic_s_own_log_has_points(kind, tmp_path):
    """Stable-Baselines3 alone logs nothing in 400 steps of an endless episode."""
    SB3Baseline(kind).fit(chain(), 400, GAMMA, 0, record_at=[400], log_dir=tmp_path / "critic")
    events = EventAccumulator(str(tmp_path / "critic"))
    events.Reload()
    loss = "train/loss" if kind == "dqn" else "train/value_loss"
    points = events.Scalars(loss)
    assert len(points) >= 2
    assert points[-1].step <= 400


BAD = {
    "kind": (lambda: SB3Baseline("sac"), "kind must be"),
    "features": (lambda: SB3Baseline("dqn", features="fourier"), "features must be"),
    "box": (lambda: SB3Baseline("dqn").fit(gym.make("CartPole-v1"), 10, GAMMA), "one_hot features need a Discrete"),
    "gamma": (lambda: SB3Baseline("dqn").fit(chain(), 10, 1.5), "gamma must be"),
    "steps": (lambda: SB3Baseline("dqn").fit(chain(), 0, GAMMA), "n_steps must be"),
    "updates": (lambda: SB3Baseline("a2c", updates_per_step=10), "updates_per_step must be"),
    "early": (lambda: SB3Baseline("dqn").values([0]), "fit the baseline"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case):
    call, match = BAD[case]
    with pytest.raises((ValueError, TypeError, RuntimeError), match=match):
        call()


def test_own_features_and_box_observations():
    own = SB3Baseline("a2c", (8,), features=RandomUnit(10, 6))
    own.fit(chain(), 20, GAMMA, 0)
    assert own.values([3, 4]).shape == (2,)
    raw = SB3Baseline("a2c", (8,), features="raw")
    cart = gym.make("CartPole-v1")
    raw.fit(cart, 20, GAMMA, 0)
    assert raw.values(np.zeros((3, 4), np.float32)).shape == (3,)
