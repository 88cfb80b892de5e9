"""Every classical estimator refuses a wrong history in the same words."""

from __future__ import annotations

import numpy as np
import pytest

from icrl_agent.algorithms import batch_td, certainty_equivalence, linear_td, lstd, monte_carlo, tabular_td

ESTIMATORS = [tabular_td, linear_td, batch_td, lstd, certainty_equivalence, monte_carlo]


@pytest.mark.parametrize("estimate", ESTIMATORS)
@pytest.mark.parametrize(
    ("states", "rewards", "gamma", "options", "match"),
    [
        ([0, 1], [1.0], 1.5, {}, r"gamma must be a number in \[0, 1\], got 1.5"),
        ([0, 1], [1.0], -0.1, {}, r"gamma must be a number in \[0, 1\], got -0.1"),
        ([0, 1], [1.0], float("nan"), {}, "gamma must be a number"),
        ([0, 1], [1.0, 2.0], 0.9, {}, r"states \(n \+ 1,\) integers go with rewards \(n,\).*\(2,\) and \(2,\)"),
        ([0.0, 1.0], [1.0], 0.9, {}, "integers go with rewards.*float64"),
        ([0, 3], [1.0], 0.9, {}, r"states must lie in 0 .. 2, got 3"),
        ([-1, 0], [1.0], 0.9, {}, r"states must lie in 0 .. 2, got -1"),
        ([0, 1], [1.0], 0.9, {"continues": [1.0]}, r"shape \(2,\)"),
        ([0, 1], [1.0], 0.9, {"source_mask": [1, 0, 0]}, r"shape \(2,\)"),
        ([0, 1], [1.0], 0.9, {"source_mask": [1, 1]}, "last column being no source"),
    ],
)
def test_wrong_history(estimate, states, rewards, gamma, options, match):
    with pytest.raises(ValueError, match=match):
        estimate(states, rewards, gamma, 3, **options)


@pytest.mark.parametrize("estimate", [linear_td, lstd])
@pytest.mark.parametrize("features", [np.ones((2, 4)), np.ones(3)])
def test_wrong_features(estimate, features):
    with pytest.raises(ValueError, match=r"features must have shape \(3, d\), got"):
        estimate([0, 1], [1.0], 0.9, 3, features=features)


def test_unknown_fill():
    with pytest.raises(ValueError, match="'mean', 'zero' or 'nan', got 'median'"):
        certainty_equivalence([0, 1], [1.0], 0.9, 3, never_left="median")


@pytest.mark.parametrize("estimate", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16])
def test_integer_and_mask_dtypes_do_not_matter(estimate, dtype):
    states, rewards = [0, 1, 2, 0, 1], [1.0, -2.0, 3.0, 0.5]
    masks = {"source_mask": [1, 1, 0, 1, 0], "continues": [1, 0, 1, 1, 1]}
    typed = {
        "source_mask": np.array(masks["source_mask"], bool), "continues": np.array(masks["continues"], np.float32)
    }  # fmt: skip
    np.testing.assert_array_equal(
        estimate(np.array(states, dtype), np.array(rewards, np.float32), 0.9, 3, **typed),
        estimate(states, rewards, 0.9, 3, **masks),
    )


@pytest.mark.parametrize("estimate", [tabular_td, linear_td, batch_td])
@pytest.mark.parametrize("step_size", [float("nan"), float("inf")])
def test_step_sizes_are_finite(estimate, step_size):
    with pytest.raises(ValueError, match=f"step_size must be a finite number, got {step_size}"):
        estimate([0, 1], [1.0], 0.9, 3, step_size=step_size)
