"""What is known about convergence before anything runs: the sharpness needed, the sup-norm bound, the depth needed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from icrl_agent.algorithms import (
    assumption_margin,
    assumption_sharpness,
    depth_for_error,
    empirical_kernel,
    one_hot_sharpness,
    population_kernel,
    sup_norm_bound,
)

GAMMAS_AND_MARGINS = [(0.9, 0.025), (0.5, 0.2), (0.0, 0.4), (0.99, 0.0)]


def check_one_hot(sharpness_of, gamma, margin):
    """At this sharpness the margin is met exactly, at less it is not."""
    mu = np.random.default_rng(1).dirichlet(np.ones(8))
    tau = float(sharpness_of(mu, gamma, margin))
    assert assumption_margin(population_kernel(np.eye(8), mu, tau), gamma) == pytest.approx(margin, abs=1e-9)
    assert assumption_margin(population_kernel(np.eye(8), mu, 0.99 * tau), gamma) < margin


@pytest.mark.parametrize(("gamma", "margin"), GAMMAS_AND_MARGINS)
def test_one_hot_sharpness_is_the_smallest(gamma, margin):
    check_one_hot(one_hot_sharpness, gamma, margin)
    check_one_hot(lambda mu, *numbers: assumption_sharpness(np.eye(len(mu)), mu, *numbers), gamma, margin)


@pytest.mark.parametrize(
    "double",
    [
        lambda mu, gamma, margin: one_hot_sharpness(mu, gamma, margin) + 0.1,
        lambda mu, gamma, margin: one_hot_sharpness(np.full(8, 1 / 8), gamma, margin),
        lambda mu, gamma, _margin: one_hot_sharpness(mu, gamma, 0.0),
    ],
    ids=["too sharp", "uniform mu", "no margin"],
)
def test_the_one_hot_check_catches(double):
    with pytest.raises(AssertionError):
        check_one_hot(double, 0.9, 0.025)


def test_sharpness_of_many_tasks_and_of_states_never_met():
    mu = np.array([[0.5, 0.5, 0.0], [0.9, 0.05, 0.05]])
    batched = one_hot_sharpness(mu, 0.9, 0.03)
    assert batched.shape == (2,)
    assert batched[0] == pytest.approx(float(one_hot_sharpness(mu[0, :2], 0.9, 0.03)))
    assert batched[1] == pytest.approx(math.log(19 * 0.98 / 0.02))
    # Alone, a state needs no attention at all.
    assert float(one_hot_sharpness([1.0, 0.0], 0.9, 0.03)) == 0.0


def test_numeric_sharpness_of_random_features():
    rng = np.random.default_rng(2)
    x, mu = rng.normal(size=(7, 16)), rng.dirichlet(np.ones(7))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    tau = assumption_sharpness(x, mu, 0.9, 0.01)
    assert assumption_margin(population_kernel(x, mu, tau), 0.9) == pytest.approx(0.01, abs=1e-7)
    x[3] *= 0.1  # now another state outweighs it
    x[2] = 11 * x[3]
    assert assumption_sharpness(x, mu, 0.9, 0.01) == math.inf


@pytest.mark.parametrize("margin", [-0.01, 0.05, 0.3, float("nan")])
def test_a_margin_that_no_kernel_can_have(margin):
    for call in (
        lambda: one_hot_sharpness([0.5, 0.5], 0.9, margin),
        lambda: assumption_sharpness(np.eye(2), [0.5, 0.5], 0.9, margin),
    ):
        with pytest.raises(ValueError, match=r"margin must lie in \[0, \(1 - gamma\) / 2\) = \[0, 0.05\)"):
            call()


def check_bound(bound_of, random_history):
    """The sup-norm of I + gamma P - M, computed entry by entry, is never above; and close to it where it is tight."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        history = random_history(rng, int(rng.integers(2, 60)), n_states=6)
        x = rng.normal(size=(6, 4)) * rng.uniform(0.1, 3)
        layer_map = empirical_kernel(x[history.states], history.rewards, **history.masks)
        gamma = float(rng.uniform(0, 1))
        norm = np.abs(np.eye(len(layer_map.M)) + gamma * layer_map.P - layer_map.M).sum(axis=1).max()
        assert norm <= float(bound_of(layer_map.M, gamma)) + 1e-12
    # A state that is never attended to and successors apart from all sources: the bound is the norm.
    M = np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    P = np.array([[0.0, 0.0, 1.0]] * 3)
    norm = np.abs(np.eye(3) + 0.5 * P - M).sum(axis=1).max()
    assert norm == pytest.approx(float(bound_of(M, 0.5)))


def test_sup_norm_bound(random_history):
    check_bound(sup_norm_bound, random_history)
    for double in (
        lambda M, gamma: 1 - np.diagonal(M).min() + gamma,
        lambda M, gamma: 2 * (1 - np.diagonal(M).mean()) + gamma,
        lambda M, gamma: 2 * (1 - np.diagonal(M).min()) + 1,
        lambda M, _gamma: 2 * (1 - np.diagonal(M).min()),
    ):
        with pytest.raises(AssertionError):
            check_bound(double, random_history)


def test_sup_norm_bound_of_a_batch():
    batch = np.stack([np.eye(3), np.full((3, 3), 1 / 3)])
    np.testing.assert_allclose(sup_norm_bound(batch, 0.9), [0.9, 0.9 + 4 / 3])


@pytest.mark.parametrize(("contraction", "start", "error"), [(0.9, 2.0, 1e-3), (0.5, 1.0, 0.5), (0.999, 5.0, 0.1)])
def test_depth_is_the_first_that_reaches_the_error(contraction, start, error):
    depth = depth_for_error(contraction, start, error)
    assert start * contraction**depth <= error * (1 + 1e-12) < start * contraction ** (depth - 1) * (1 + 1e-9)


def test_depth_of_an_error_that_is_there_already_and_bad_numbers():
    assert depth_for_error(0.9, 0.5, 0.5) == 0
    for contraction, error in ((1.0, 0.1), (0.0, 0.1), (1.2, 0.1), (0.9, 0.0)):
        with pytest.raises(ValueError, match="contraction must lie in"):
            depth_for_error(contraction, 1.0, error)
