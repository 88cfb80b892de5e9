"""Error measures against plain loops, and the weights they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from icrl_agent.metrics import centred_msve, geometric_mean, msve, normalized_msve, student_quantile

Measure = Callable[[Any, Any, Any], float]


def loops(values: Any, truth: Any, weights: Any) -> dict[str, float]:
    total = math.fsum(weights)
    w = [x / total for x in weights]
    error = math.fsum(p * (a - b) ** 2 for p, a, b in zip(w, values, truth, strict=True))
    mean = math.fsum(p * b for p, b in zip(w, truth, strict=True))
    square = math.fsum(p * b * b for p, b in zip(w, truth, strict=True))
    variance = math.fsum(p * (b - mean) ** 2 for p, b in zip(w, truth, strict=True))
    return {"msve": error, "normalized_msve": error / square, "centred_msve": error / variance}


def check_measure(measure: Measure, name: str) -> None:
    """Sums of at most 30 positive terms: relative rounding far below 1e-12."""
    rng = np.random.default_rng(0)
    for n in (2, 3, 30):
        for _ in range(20):
            values, truth, weights = rng.normal(size=n), rng.normal(1.0, 1.0, n), rng.exponential(3.0, n)
            weights[rng.random(n) < 0.2] = 0.0
            weights[:2] = 0.5
            expected = loops(values, truth, weights)[name]
            assert measure(values, truth, weights) == pytest.approx(expected, rel=1e-12)
            assert measure(list(values), list(truth), list(weights)) == pytest.approx(expected, rel=1e-12)


MEASURES: dict[str, Measure] = {"msve": msve, "normalized_msve": normalized_msve, "centred_msve": centred_msve}


@pytest.mark.parametrize("name", MEASURES)
def test_measures_equal_loops(name: str) -> None:
    check_measure(MEASURES[name], name)
    assert type(MEASURES[name]([1.0, 2.0], [0.0, 1.0], [1, 1])) is float


@pytest.mark.parametrize("name", MEASURES)
def test_measure_check_catches(name: str) -> None:
    real = MEASURES[name]
    doubles: list[Measure] = [
        lambda v, t, w: real(v, t, np.ones(len(w))),  # weights dropped
        lambda v, t, w: real(np.roll(v, 1), t, w),  # shifted by one state
        lambda v, t, w: math.sqrt(real(v, t, w)),
        lambda v, t, w: real(v, t, w) * sum(w),  # weights not normalised
    ]
    for double in doubles:
        with pytest.raises(AssertionError):
            check_measure(double, name)


def test_reference_points() -> None:
    truth, weights = [1.0, 3.0, -2.0], [0.2, 0.3, 0.5]
    best_constant = sum(w * t for w, t in zip(weights, truth, strict=True))
    assert normalized_msve([0.0] * 3, truth, weights) == pytest.approx(1.0, rel=1e-15)
    assert centred_msve([best_constant] * 3, truth, weights) == pytest.approx(1.0, rel=1e-15)
    assert [f(truth, truth, weights) for f in MEASURES.values()] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", MEASURES)
def test_states_of_weight_zero_do_not_count(name: str) -> None:
    measure = MEASURES[name]
    expected = measure([1.0, 2.0], [0.5, 4.0], [1.0, 2.0])
    for odd in (math.nan, math.inf, 1e300):
        assert measure([1.0, odd, 2.0], [0.5, odd, 4.0], [1.0, 0.0, 2.0]) == expected


def check_constant_truth(measure: Measure) -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        n = int(rng.integers(1, 12))
        assert math.isnan(measure(rng.normal(size=n), np.full(n, rng.normal()), rng.random(n) + 0.01))


def test_nothing_to_divide_by_is_nan() -> None:
    assert math.isnan(normalized_msve([1.0, 2.0], [0.0, 0.0], [0.5, 0.5]))
    check_constant_truth(centred_msve)

    def rounding_taken_for_variance(values: Any, truth: Any, weights: Any) -> float:
        w = np.asarray(weights) / np.sum(weights)
        variance = w @ (truth - w @ truth) ** 2
        return float(w @ (values - truth) ** 2 / variance) if variance > 0 else math.nan

    with pytest.raises(AssertionError):
        check_constant_truth(rounding_taken_for_variance)


BAD = {
    "negative weight": ([1.0, 2.0], [1.0, 2.0], [1.0, -0.1], "weights must be finite, non-negative and not all 0"),
    "all weights 0": ([1.0, 2.0], [1.0, 2.0], [0.0, 0.0], "weights must be finite, non-negative and not all 0"),
    "nan weight": ([1.0, 2.0], [1.0, 2.0], [1.0, math.nan], "weights must be finite"),
    "infinite weight": ([1.0, 2.0], [1.0, 2.0], [1.0, math.inf], "weights must be finite"),
    "no states": ([], [], [], "not all 0"),
    "another length": ([1.0, 2.0], [1.0, 2.0, 3.0], [1.0, 1.0], r"one shape \(S,\), got \(2,\), \(3,\) and \(2,\)"),
    "two axes": ([[1.0]], [[1.0]], [[1.0]], r"one shape \(S,\), got \(1, 1\)"),
    "a number": (1.0, 1.0, 1.0, r"one shape \(S,\), got \(\)"),
}


@pytest.mark.parametrize(("values", "truth", "weights", "message"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("name", MEASURES)
def test_bad_input_is_refused(name: str, values: Any, truth: Any, weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MEASURES[name](values, truth, weights)


def check_geometric_mean(mean: Callable[[Any], tuple[float, float]]) -> None:
    """exp of the mean log; its standard error is mean * (sample deviation of the logs) / sqrt(n)."""
    ratios = np.random.default_rng(1).lognormal(0.3, 0.5, 40).tolist()
    logs = [math.log(x) for x in ratios]
    centre = math.fsum(logs) / 40
    deviation = math.sqrt(math.fsum((x - centre) ** 2 for x in logs) / 39)
    expected = math.exp(centre), math.exp(centre) * deviation / math.sqrt(40)
    assert mean(ratios) == pytest.approx(expected, rel=1e-12)


def test_geometric_mean_equals_loops() -> None:
    check_geometric_mean(geometric_mean)
    assert geometric_mean([3.0])[0] == pytest.approx(3.0, rel=1e-15)
    assert math.isnan(geometric_mean([3.0])[1])
    with pytest.raises(AssertionError):
        check_geometric_mean(lambda ratios: (float(np.mean(ratios)), geometric_mean(ratios)[1]))
    with pytest.raises(AssertionError):
        check_geometric_mean(lambda ratios: (geometric_mean(ratios)[0], geometric_mean(ratios)[1] * math.sqrt(39 / 40)))


@pytest.mark.parametrize("ratios", [[], [1.0, 0.0], [1.0, -2.0], [math.nan], [1.0, math.inf]])
def test_geometric_mean_refuses(ratios: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one ratio, all of them positive and finite"):
        geometric_mean(ratios)


@pytest.mark.parametrize("degrees", [1, 2, 3, 9, 30])
def test_quantiles_of_student_s_t(degrees):
    """P(|T| < q) = 0.95 by integrating the density itself."""
    quantile = student_quantile(0.975, degrees)
    t = np.linspace(-quantile, quantile, 200_001)
    scale = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    mass = np.trapezoid(scale * (1 + t**2 / degrees) ** (-(degrees + 1) / 2), t)
    # Trapezia on a grid of 1e-4 and of 8e-6: second-order errors far below this.
    assert mass == pytest.approx(0.95, abs=1e-6)
