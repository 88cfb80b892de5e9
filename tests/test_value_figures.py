"""Pictures of values over vectors: what is drawn, read back from the figure."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from icrl_agent import ICRLAgent
from icrl_agent.eval.evaluation_run import EvaluationRun
from icrl_agent.figures import plot_values
from icrl_agent.train import dashboard
from icrl_agent.value_figures import discounted_returns, grid_queries, longest_episode, plot_episode, plot_value_map


@pytest.fixture(scope="module")
def agent():
    return ICRLAgent.from_theory(feature_dim=16, n_layers=10)


@pytest.fixture(scope="module")
def result(agent):
    return agent.evaluate(gym.make("CartPole-v1"), n_steps=120, gamma=0.9, seed=0)


def check_episode(figure, result):
    """The black line is the return summed by hand, the coloured one the values at these states."""
    rows = longest_episode(result)
    returns, values = (line.get_ydata() for line in figure.axes[0].lines)
    for k in range(len(rows)):
        by_hand = sum(0.9**m * result.transitions.rewards[rows[k + m]] for m in range(len(rows) - k))
        assert returns[k] == pytest.approx(by_hand, abs=1e-12)
    np.testing.assert_array_equal(values, result.values[rows])  # every state of CartPole is visited once


def test_an_episode_is_drawn_with_its_returns(result):
    check_episode(plot_episode(result), result)
    rows = longest_episode(result)
    assert result.transitions.terminated[rows[-1]]
    with pytest.raises(AssertionError):
        check_episode(plot_episode(result, rows[:-1]), result)


def test_a_cut_episode_goes_on_with_the_estimate(agent):
    cut = agent.evaluate(gym.make("MountainCar-v0"), n_steps=20, gamma=0.9, seed=0)
    returns, values = (line.get_ydata() for line in plot_episode(cut).axes[0].lines)
    assert returns[-1] == values[-1]
    np.testing.assert_allclose(returns[:-1], -1 + 0.9 * returns[1:])


def test_returns_of_a_literal_episode():
    np.testing.assert_allclose(discounted_returns([1.0, 2.0, 3.0], 0.5), [2.75, 3.5, 3.0])


def test_a_map_of_a_grid_is_a_surface(agent, result):
    queries = grid_queries(result.transitions.observations, (2, 3), size=6)
    grid = agent.evaluate_transitions(result.transitions, 0.9, queries)
    axis = plot_value_map(grid, (2, 3), ("angle", "angular velocity")).axes[0]
    (surface,) = axis.collections
    np.testing.assert_array_equal(surface.get_array().reshape(6, 6).T.ravel(), grid.values)
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("angle", "angular velocity")


def test_a_map_of_visited_states_is_dots(result):
    (dots,) = plot_value_map(result, (0, 2)).axes[0].collections
    np.testing.assert_allclose(dots.get_offsets(), result.states[:, [0, 2]])
    np.testing.assert_array_equal(dots.get_array(), result.values)


@pytest.mark.parametrize("dimensions", [(0, 0), (0, 4), (-1, 2)])
def test_bad_dimensions(result, dimensions):
    with pytest.raises(ValueError, match="a map needs two different dimensions"):
        plot_value_map(result, dimensions)
    with pytest.raises(ValueError, match="a map needs two different dimensions"):
        grid_queries(result.states, dimensions)


def test_finite_states_have_no_map(agent):
    finite = agent.evaluate(gym.make("BoyanChain-v0"), n_steps=20, seed=0)
    with pytest.raises(ValueError, match="of 0"):
        plot_value_map(finite)


def test_an_episode_whose_states_were_not_answered(agent, result):
    partial = agent.evaluate_transitions(result.transitions, 0.9, queries=result.states[:2])
    with pytest.raises(ValueError, match="a state of the episode was not answered"):
        plot_episode(partial)


def test_run_folders_and_tensorboard_hold_both(result, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    EvaluationRun(result, [], {}).write(tmp_path / "run")
    for name in ("values", "value_map", "episode"):
        assert (tmp_path / "run" / "figures" / f"{name}.png").stat().st_size > 1000
    (folder,) = (tmp_path / "run" / dashboard.TENSORBOARD_FOLDER).iterdir()
    events = EventAccumulator(str(folder), size_guidance={"images": 0}).Reload()
    tags = {dashboard.VALUES_FIGURE, dashboard.VALUE_MAP, dashboard.EPISODE_FIGURE}
    assert set(events.Tags()["images"]) == tags


def test_equal_values_are_not_drawn_as_their_rounding(agent):
    """Every step of MountainCar at random is worth the same: the scales span 1 % of it, not the last digits."""
    flat = agent.evaluate(gym.make("MountainCar-v0"), n_steps=80, gamma=0.9, seed=0)
    value = flat.values[0]
    np.testing.assert_allclose(flat.values, value, rtol=1e-9)
    dots = plot_value_map(flat).axes[0].collections[0]
    for low, high in (dots.get_clim(), plot_values(flat).axes[0].get_ylim()):
        assert high - low == pytest.approx(0.01 * abs(value), rel=1e-6)
        assert (low + high) / 2 == pytest.approx(value)
