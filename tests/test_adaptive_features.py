"""Features in the context's own units: by hand, whatever the rows' order, from source observations only."""

from __future__ import annotations

import itertools
import json

import gymnasium as gym
import numpy as np
import pytest

from icrl_agent import HistoryWrapper, ICRLAgent
from icrl_agent.features import RandomFourier, fit_fourier, from_spec
from icrl_agent.features.adaptive import MOST_ROWS, median_distance

UNFITTED = RandomFourier("context", "context", 8, "median", seed=3)


def check_units(fit, observations):
    fitted = fit(UNFITTED, observations)
    columns = np.asarray(observations, float).T
    np.testing.assert_allclose(fitted.shift, [sum(column) / len(column) for column in columns])
    deviations = [np.sqrt(np.mean((column - column.mean()) ** 2)) for column in columns]
    np.testing.assert_allclose(fitted.scale, [d if d > 0 else 1.0 for d in deviations])
    z = (np.asarray(observations, float) - fitted.shift) / fitted.scale
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(z, 2)]
    np.testing.assert_allclose(fitted.lengthscale, np.median([d for d in distances if d > 0]))


def row(seed=0, n=31):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 3)) * (1.0, 100.0, 0.0) + (5.0, -3.0, 7.0)
    rows[4] = rows[5]  # a state visited twice is no pair of different states
    return rows


def bounds_double(feature_map, observations):
    return RandomFourier(0.0, 1.0, 8, 1.0)


def mean_distance_double(feature_map, observations):
    fitted = fit_fourier(feature_map, observations)
    return RandomFourier(fitted.shift, fitted.scale, 8, fitted.lengthscale * 1.01)


def test_units_by_hand():
    check_units(fit_fourier, row())
    for double in (bounds_double, mean_distance_double):
        with pytest.raises(AssertionError):
            check_units(double, row())


def test_the_order_of_the_rows_does_not_matter():
    rows = row(n=3 * MOST_ROWS)
    assert fit_fourier(UNFITTED, rows) == fit_fourier(UNFITTED, rows[::-1])


def test_numbers_that_are_given_stay():
    half = RandomFourier((1.0, 2.0, 3.0), "context", 8, 0.7)
    fitted = fit_fourier(half, row())
    assert (fitted.shift, fitted.lengthscale, fitted.is_fitted) == ((1.0, 2.0, 3.0), 0.7, True)


@pytest.mark.parametrize("observations", [[[2.0, 3.0]], [[2.0, 3.0]] * 5, [4, 4]])
def test_one_state_has_units_too(observations):
    fitted = fit_fourier(UNFITTED, observations)
    assert (set(fitted.scale), fitted.lengthscale) == ({1.0}, 1.0)
    assert np.isfinite(fitted(np.asarray(observations))).all()


def test_median_of_many_rows_is_close_to_that_of_all():
    rows = np.random.default_rng(0).normal(size=(3000, 2))
    # |z - z'|^2 / 2 is chi-square with 2 degrees of freedom: the median distance is 2 sqrt(log 2). The median over the
    # pairs of 1000 rows has a standard error below that of 1000 independent pairs, 0.5 / (f sqrt(1000)), f = 0.42.
    assert median_distance(rows) == pytest.approx(2 * np.sqrt(np.log(2)), abs=4 * 0.5 / (0.42 * np.sqrt(1000)))


def test_specs_and_calls_of_maps_without_numbers():
    assert from_spec(json.loads(json.dumps(UNFITTED.spec()))) == UNFITTED
    with pytest.raises(ValueError, match="take shift, scale or lengthscale from a context: give numbers, or fit them"):
        UNFITTED([[1.0, 2.0]])
    env = HistoryWrapper(gym.make("MountainCar-v0"), 4, RandomFourier("context", "context", 32))
    with pytest.raises(ValueError, match="from a context"):
        env.reset(seed=0)
    for name, arguments in (("shift", ("auto", 1.0)), ("scale", (0.0, "median"))):
        with pytest.raises(ValueError, match=f"{name} must be numbers or 'context', got"):
            RandomFourier(*arguments, 8)


def test_what_is_entered_only_does_not_count():
    agent = ICRLAgent.from_theory(feature_dim=16, n_layers=3)
    env = gym.make("MountainCar-v0", max_episode_steps=10)
    result = agent.evaluate(env, n_steps=20, seed=0)
    expected = fit_fourier(RandomFourier("context", "context", 16, "median"), result.transitions.observations)
    assert result.chosen == {"lengthscale": expected.lengthscale}
    explicit = agent.evaluate(env, n_steps=20, seed=0, feature_map=expected)
    np.testing.assert_array_equal(result.values, explicit.values)
