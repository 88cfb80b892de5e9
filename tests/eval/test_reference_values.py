"""Monte-Carlo references: the returns by hand, cut returns left out, and intervals that cover the exact values."""

import gymnasium as gym
import numpy as np
import pytest

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.collect import collect
from icrl_agent.envs import state_values, stationary_distribution
from icrl_agent.eval.reference_values import (
    ReferenceValues,
    exact_reference,
    monte_carlo_reference,
    monte_carlo_values,
)
from icrl_agent.transitions import Transitions

GAMMA = 0.9


def record(observations, rewards, next_observations, terminated, truncated):
    n = len(rewards)
    return Transitions(
        np.array(observations), np.array(rewards, float), np.array(next_observations),
        np.array(terminated, bool), np.array(truncated, bool), np.zeros(n, int),
    )  # fmt: skip


def test_returns_by_hand():
    # One ended episode 0 -> 1 -> end, then one that a limit cuts at once.
    found = monte_carlo_values(record([0, 1, 1], [1, 10, 99], [1, 2, 0], [0, 1, 0], [0, 0, 1]), 3, 0.5)
    np.testing.assert_allclose(found.values, [1 + 0.5 * 10, 10, 0])
    np.testing.assert_allclose(found.weights, [0.5, 0.5, 0])
    with pytest.raises(ValueError, match="every return is cut"):
        monte_carlo_values(record([0], [1], [1], [0], [1]), 2, 0.5)


@pytest.fixture(scope="module")
def long_runs():
    """(true values, 8000 transitions) of 20 chains."""
    envs = [gym.make("BoyanChain-v0", task_seed=task) for task in range(700, 720)]
    return [(state_values(env.unwrapped.mdp.policy_mrp(), GAMMA), collect(env, None, 8000, 1)) for env in envs]


def z_scores(long_runs, gamma):
    """(estimate - truth) / standard error of the states of 20 chains."""
    estimates = [(truth, monte_carlo_values(run, 10, gamma)) for truth, run in long_runs]
    return np.concatenate([(found.values - truth) / found.standard_errors for truth, found in estimates])


def test_intervals_cover_the_exact_values(long_runs):
    """200 scores of about a standard normal; states of one chain correlate, so 100 independent ones are assumed."""
    covered = np.mean(np.abs(z_scores(long_runs, GAMMA)) < 1.96)
    assert covered > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 100)
    assert np.mean(np.abs(z_scores(long_runs, 0.85)) < 1.96) < 0.5


def test_exact_where_tables_are_known():
    env = gym.make("RandomMDP-v0", task_seed=2)
    policy = np.eye(4)[np.arange(10) % 4]
    found = exact_reference(env, policy, GAMMA)
    mrp = env.unwrapped.mdp.policy_mrp(policy)
    np.testing.assert_allclose(found.values, state_values(mrp, GAMMA))
    np.testing.assert_allclose(found.weights, stationary_distribution(mrp))
    assert found.noise == 0
    assert isinstance(exact_reference(gym.wrappers.TransformReward(env, float), policy, GAMMA), str)


def test_a_policy_counts():
    env = gym.make("RandomMDP-v0", task_seed=2)
    policy = np.eye(4)[np.arange(10) % 4]
    found = monte_carlo_reference(env, policy, GAMMA, 20_000, seed=1)
    exact = exact_reference(env, policy, GAMMA)
    scores = (found.values - exact.values)[found.weights > 0] / found.standard_errors[found.weights > 0]
    # 10 correlated scores: 4.5 standard errors are exceeded by chance less than once in ten thousand runs.
    assert np.abs(scores).max() < 4.5
    assert isinstance(found, ReferenceValues)
    assert 0 < found.noise < 0.01
