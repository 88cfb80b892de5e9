"""Spectral radius and fixed point say what many layers do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from icrl_agent.algorithms import empirical_kernel, fixed_point, spectral_radius, weighted_softmax_td

GAMMA = 0.9


def context(random_history, seed, sharpness, n_transitions=30, n_states=6):
    rng = np.random.default_rng(seed)
    history = random_history(rng, n_transitions, n_states=n_states)
    x = rng.normal(size=(n_states, 8))
    x *= math.sqrt(sharpness) / np.linalg.norm(x, axis=1, keepdims=True)
    return history, x[history.states]


def with_a_state_never_left(random_history, sharpness):
    history, x = context(random_history, 2, sharpness, n_transitions=12, n_states=8)
    assert len(set(history.states.tolist())) > len({int(history.states[k]) for k in history.sources})
    return history, x


def td_errors(history, x, step_size, n_layers, gamma):
    """Mean TD error of every state that was left, after each layer: (n_layers + 1, L)."""
    values = weighted_softmax_td(x, history.rewards, gamma, n_layers, step_size=step_size, **history.masks)
    left = sorted({int(history.states[k]) for k in history.sources})
    rows = []
    for v in values:
        delta = {k: history.rewards[k] + gamma * history.continues[k] * v[k + 1] - v[k] for k in history.sources}
        rows.append([np.mean([d for k, d in delta.items() if history.states[k] == s]) for s in left])
    return np.array(rows)


def check_growth(radius_of, history, x, step_size, gamma):
    """TD errors of late layers change by the radius per layer.

    Over a gap of g layers a complex pair of eigenvalues (or a slow second one) moves the measured factor by
    C^(1/g), C the oscillation: with g = 200 and C below 20 that is 1.5 %.
    """
    radius = radius_of(empirical_kernel(x, history.rewards, **history.masks), gamma, step_size)
    errors = np.linalg.norm(td_errors(history, x, step_size, 400, gamma), axis=1)
    # Above the floor of rounding, so that the ratio is that of the errors.
    assert errors[400] > 1e-11 * errors[0]
    assert abs((errors[400] / errors[200]) ** (1 / 200) - radius) <= 0.015 * radius


def of_all_states(layer_map, gamma, step_size):
    """The S x S map of the values, which has the eigenvalue 1 once per state that was never left."""
    layer = np.eye(len(layer_map.M)) + step_size * (gamma * layer_map.P - layer_map.M)
    return float(np.abs(np.linalg.eigvals(layer)).max())


# Small steps shrink slowly enough to be measured over 400 layers; steps above 2 blow up.
@pytest.mark.parametrize(("step_size", "gamma"), [(0.15, 0.9), (0.08, 0.5), (2.5, 0.9)])
@pytest.mark.parametrize("n_transitions", [8, 30])
@pytest.mark.parametrize("seed", range(4))
def test_radius_is_the_measured_growth(random_history, step_size, gamma, n_transitions, seed):
    check_growth(spectral_radius, *context(random_history, seed, 4.0, n_transitions), step_size, gamma)


@pytest.mark.parametrize(
    "double",
    [
        of_all_states,
        lambda layer_map, gamma, _step_size: spectral_radius(layer_map, gamma),
        lambda layer_map, _gamma, step_size: spectral_radius(layer_map, 0.0, step_size),
    ],
    ids=["all states", "step size dropped", "gamma dropped"],
)
def test_the_growth_check_catches(random_history, double):
    history, x = with_a_state_never_left(random_history, sharpness=4.0)
    check_growth(spectral_radius, history, x, 0.15, 0.9)
    with pytest.raises(AssertionError):
        check_growth(double, history, x, 0.15, 0.9)


def check_fixed_point(solve, history, x):
    layer_map = empirical_kernel(x, history.rewards, **history.masks)
    assert spectral_radius(layer_map, GAMMA) < 0.995  # 0.995^5000 < 2e-11
    values = weighted_softmax_td(x, history.rewards, GAMMA, 5000, **history.masks)[-1]
    np.testing.assert_allclose(solve(layer_map, GAMMA)[layer_map.column_state], values, atol=1e-8)


def certainty_equivalence_of(layer_map, gamma):
    """What the fixed point is not where a state was never left."""
    v = np.zeros(len(layer_map.states))
    inner = np.eye(len(layer_map.left)) - gamma * layer_map.transition[:, layer_map.left]
    v[layer_map.left] = np.linalg.solve(inner, layer_map.reward)
    return v


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n_transitions", [6, 40])
def test_fixed_point_is_the_limit_of_the_layers(random_history, seed, n_transitions):
    history, x = context(random_history, seed, 8.0, n_transitions)
    check_fixed_point(fixed_point, history, x)


def test_the_fixed_point_check_catches_another_solution(random_history):
    history, x = with_a_state_never_left(random_history, sharpness=8.0)
    with pytest.raises(AssertionError):
        check_fixed_point(certainty_equivalence_of, history, x)
    with pytest.raises(AssertionError):
        check_fixed_point(lambda layer_map, _gamma: fixed_point(layer_map, 0.0), history, x)


@pytest.mark.parametrize("sharpness", [0.5, 2.0, 8.0])
def test_fixed_point_is_certainty_equivalence_where_every_state_was_left(random_history, sharpness):
    """Whatever the kernel, converging or not, as long as K[L, L] can be inverted."""
    history, x = context(random_history, 1, sharpness, n_transitions=60)
    layer_map = empirical_kernel(x, history.rewards, **history.masks)
    assert len(layer_map.left) == len(layer_map.states)
    assert np.linalg.cond(layer_map.M) < 1e4
    bellman = np.eye(6) - GAMMA * layer_map.transition
    np.testing.assert_allclose(bellman @ fixed_point(layer_map, GAMMA), layer_map.reward, atol=1e-9)


def test_step_size_and_gamma_of_one_state():
    # One state that returns to itself: delta <- (1 - step (1 - gamma)) delta, v = r / (1 - gamma).
    layer_map = empirical_kernel([[1.0], [1.0], [1.0]], [2.0, 4.0])
    for gamma, step_size in ((0.9, 1.0), (0.5, 0.3), (0.0, 2.5)):
        assert spectral_radius(layer_map, gamma, step_size) == pytest.approx(abs(1 - step_size * (1 - gamma)))
        assert fixed_point(layer_map, gamma) == pytest.approx(3.0 / (1 - gamma))


def test_no_transition():
    layer_map = empirical_kernel([[1.0], [2.0]], [0.0], source_mask=[0, 0])
    assert math.isnan(spectral_radius(layer_map, 0.9))
    np.testing.assert_array_equal(fixed_point(layer_map, 0.9), [0.0, 0.0])


def test_a_singular_system_is_refused():
    # Equal attention to two states whose rewards differ: no values make both TD errors 0.
    layer_map = empirical_kernel([[1.0], [2.0], [1.0]], [1.0, 0.0], score=lambda q, s: np.zeros((len(q), len(s))))
    with pytest.raises(ValueError, match="no unique fixed point"):
        fixed_point(layer_map, 0.9)
