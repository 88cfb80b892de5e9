"""The norm of the expected update is estimated without bias, and its standard error is what it says."""

from __future__ import annotations

import numpy as np
import pytest

from icrl_agent.algorithms.expected_update import linear_updates, mean_and_stderr, norm_of_expected_update


def check_unbiased(estimate):
    """Over many tasks with known expected updates, the mean estimate is within five standard errors of the truth."""
    rng = np.random.default_rng(0)
    expected = rng.normal(size=(20_000, 3)) * 0.3
    samples = expected[:, None, :] + rng.normal(size=(20_000, 4, 3))
    found, stderr = mean_and_stderr(estimate(samples) - (expected**2).sum(axis=1))
    assert stderr < 0.02
    assert abs(found) < 5 * stderr


def test_the_estimate_is_unbiased():
    check_unbiased(norm_of_expected_update)
    with pytest.raises(AssertionError):
        check_unbiased(lambda samples: (samples.mean(axis=1) ** 2).sum(axis=1))


def test_the_estimate_is_the_mean_inner_product_of_pairs():
    samples = np.random.default_rng(1).normal(size=(5, 4))
    pairs = [samples[j] @ samples[k] for j in range(5) for k in range(5) if j != k]
    assert float(norm_of_expected_update(samples)) == pytest.approx(np.mean(pairs), abs=1e-12)


def test_one_sample_is_not_enough():
    with pytest.raises(ValueError, match="at least 2 independent samples, got 1"):
        norm_of_expected_update(np.ones((3, 1, 2)))


def test_updates_equal_their_loop():
    rng = np.random.default_rng(2)
    v, x, r = rng.normal(size=(2, 6)), rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5))
    found = linear_updates(v[:, :-1], r, 0.8, v[:, 1:], x)
    for task in range(2):
        loop = sum((r[task, t] + 0.8 * v[task, t + 1] - v[task, t]) * x[task, t] for t in range(5)) / 5
        np.testing.assert_allclose(found[task], loop, atol=1e-12)


def test_the_true_values_have_no_expected_update():
    """On every transition of a chain, weighted by how often it happens."""
    P = np.array([[0.2, 0.8], [0.6, 0.4]])
    r = np.array([1.0, -1.0])
    v = np.linalg.solve(np.eye(2) - 0.9 * P, r)
    # Sixty steps in the proportions of the stationary distribution (3/7, 4/7) and of P.
    steps = [(0, 0)] * 3 + [(0, 1)] * 12 + [(1, 0)] * 12 + [(1, 1)] * 8
    left, entered = np.array(steps).T
    update = linear_updates(v[left], r[left], 0.9, v[entered], np.eye(2)[left])
    np.testing.assert_allclose(update, 0.0, atol=1e-12)
