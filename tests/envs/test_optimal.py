"""Optimal action values satisfy Bellman's equation, no policy is better, and returns are normalised by them."""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest

from icrl_agent.envs import TabularMDP, expected_return, garnet_mdp, normalised_return, optimal_values, state_values
from icrl_agent.envs.optimal import uniform_is_optimal

GAMMA = 0.9


def episodic(seed=2):
    mdp = garnet_mdp(4, 2, 2, seed)
    return TabularMDP(mdp.transition, mdp.reward, [0.5, 0.5, 0.0, 0.0], [False, False, False, True])


def check_bellman(q, mdp, gamma):
    residual = mdp.reward + gamma * mdp.transition @ q.max(axis=1) - q
    np.testing.assert_allclose(residual, 0, atol=1e-10)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99])
def test_bellman_residual_is_zero(gamma):
    for mdp in (garnet_mdp(30, 5, 3, 1), episodic(), TabularMDP.from_gymnasium(gym.make("FrozenLake-v1"))):
        check_bellman(optimal_values(mdp, gamma), mdp, gamma)
    with pytest.raises(AssertionError):
        check_bellman(optimal_values(episodic(), 0.8), episodic(), 0.9)


def test_no_deterministic_policy_is_better():
    mdp = episodic()
    best = optimal_values(mdp, GAMMA).max(axis=1)
    tables = [np.eye(2)[list(actions)] for actions in itertools.product(range(2), repeat=4)]
    found = np.array([state_values(mdp.policy_mrp(table), GAMMA) for table in tables])
    np.testing.assert_allclose(found.max(axis=0), best, atol=1e-12)
    returns = [normalised_return(mdp, table, GAMMA) for table in tables]
    assert max(returns) == pytest.approx(1.0)
    assert normalised_return(mdp, np.full((4, 2), 0.5), GAMMA) == pytest.approx(0.0)
    assert expected_return(mdp, None, GAMMA) == pytest.approx(mdp.initial @ state_values(mdp.policy_mrp(), GAMMA))


def test_cliff_walking_takes_thirteen_steps():
    mdp = TabularMDP.from_gymnasium(gym.make("CliffWalking-v1"))
    assert mdp.initial @ optimal_values(mdp, 0.95).max(axis=1) == pytest.approx(-(1 - 0.95**13) / 0.05)


def test_refused():
    with pytest.raises(ValueError, match="gamma below 1"):
        optimal_values(episodic(), 1)
    one_action = garnet_mdp(3, 1, 2, 0)
    assert np.isnan(normalised_return(one_action, np.ones((3, 1)), GAMMA))


def test_where_the_random_policy_is_optimal():
    mdp = garnet_mdp(3, 2, 2, 0)
    alike = TabularMDP(
        np.repeat(mdp.transition[:, :1], 2, axis=1), np.repeat(mdp.reward[:, :1], 2, axis=1), mdp.initial
    )
    assert uniform_is_optimal(alike, GAMMA)
    assert np.isnan(normalised_return(alike, [[1.0, 0.0]] * 3, GAMMA))
    assert not uniform_is_optimal(mdp, GAMMA)
