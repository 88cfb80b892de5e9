"""Schedules, bonuses, and choices at random."""

from __future__ import annotations

import numpy as np
import pytest

from icrl_agent.control import Epsilon, Optimism
from icrl_agent.control.exploration import epsilon_greedy

from .conftest import ENVIRONMENTS, play


def test_epsilon_follows_its_schedule():
    assert [Epsilon(0.8, 0.2, 60).at(step) for step in (0, 30, 60, 1000)] == pytest.approx([0.8, 0.5, 0.2, 0.2])
    assert Epsilon(0.3).at(10**6) == 0.3


@pytest.mark.parametrize("arguments", [(1.2,), (-0.1,), (0.5, 2.0), (True,), ("a",), (float("nan"),), (0.5, 0.1, 0)])
def test_bad_schedules(arguments):
    with pytest.raises(ValueError, match="must be"):
        Epsilon(*arguments)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan"), True, "1", 1e308, 10**400, None, [1.0]])
def test_bad_scales(scale):
    with pytest.raises(ValueError, match="scale must be a positive finite float32 number"):
        Optimism(scale)


def test_equal_actions_share_the_probability():
    np.testing.assert_allclose(epsilon_greedy(np.array([[1.0, 1.0, 0.0]]), 0.3), [[0.45, 0.45, 0.1]])


def check_frequencies(controller, epsilon, n=3000):
    """The share of the best action within 4 standard errors of 1 - epsilon (A - 1) / A."""
    best = int(controller.predict(0, deterministic=True)[0])
    share = np.mean([int(controller.predict(0)[0]) == best for _ in range(n)])
    expected = 1 - epsilon * 2 / 3
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / n)


def test_predict_explores_as_often_as_it_says(agents):
    controller = agents["theory"].controller(ENVIRONMENTS["RandomMDP"](), exploration=0.3, refresh_every=1, seed=0)
    env = ENVIRONMENTS["RandomMDP"]()
    play(controller, env, 50)
    check_frequencies(controller, 0.3)
    with pytest.raises(AssertionError):
        check_frequencies(controller, 0.4)


def test_mass_is_the_number_of_visits_where_features_are_orthogonal(agents):
    """Sharpness 8, pairs nearly orthogonal: a bonus close to scale / sqrt(1 + N), and nothing for the reading."""
    env = ENVIRONMENTS["RandomMDP"]()
    agent = type(agents["theory"]).from_theory(feature_dim=256, sharpness=30.0)
    controller = agent.controller(env, exploration=Optimism(2.0), refresh_every=1, seed=0)
    play(controller, env, 60)
    states = np.arange(5)
    controller._refresh()
    states_as_rows = states[:, None]
    bonus = controller._acting.q_values(states_as_rows)
    plain = controller.q_values(states)
    assert (bonus > plain).all()
    from icrl_agent.control.reading import read

    greedy = read(controller.stream, controller.pair_map, "greedy", Optimism(2.0))
    without = read(controller.stream, controller.pair_map, "greedy", Optimism(1e-12))
    np.testing.assert_allclose(without.q_values(states_as_rows), plain, atol=1e-9)
    assert (greedy.q_values(states_as_rows) > plain).all()


def test_an_optimist_tries_every_pair(agents):
    """Every action of every state that it visits ten times is tried; epsilon 0 tries few."""
    tried = {}
    for name, exploration in (("optimist", Optimism(3.0)), ("greedy", 0.0)):
        result = agents["theory"].control(ENVIRONMENTS["RandomMDP"](), 400, exploration=exploration, seed=0)
        often = result.visits.sum(axis=1) >= 10
        tried[name] = (result.visits[often] > 0).mean()
    assert tried["optimist"] == 1.0
    assert tried["greedy"] < 1.0
