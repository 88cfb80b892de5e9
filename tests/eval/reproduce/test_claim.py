"""Checks keep their rules, claims survive the trip to JSON, intervals are those of the textbook."""

from __future__ import annotations

import json

import numpy as np
import pytest

from icrl_agent.eval.reproduce.claim import Check, Claim, Outcome, exactly, mean_interval
from icrl_agent.figures import new_figure
from icrl_agent.metrics import student_quantile

NAN = float("nan")


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("at most", [(0.0, 1.0), (0.5, 0.9)], [(0.5, 1.1), (2.0, 3.0)]),
        ("at least", [(1.0, 2.0), (3.0, 4.0)], [(0.9, 2.0), (0.0, 0.5)]),
        ("below", [(0.0, 0.9)], [(0.0, 1.0), (1.0, 1.0)]),
        ("above", [(1.1, 1.2)], [(1.0, 2.0), (1.0, 1.0)]),
        ("contains", [(0.9, 1.1), (1.0, 2.0)], [(1.01, 2.0), (0.0, 0.99)]),
        ("excludes", [(1.01, 2.0), (0.0, 0.99)], [(0.9, 1.1)]),
    ],
)
def test_rules(rule, good, bad):
    for interval in good:
        assert Check("", 0.0, interval, rule, 1.0).passed
    for interval in bad:
        assert not Check("", 0.0, interval, rule, 1.0).passed
    for number in (NAN, float("inf")):
        assert not Check("", number, (0.0, 2.0), rule, 1.0).passed
        assert not Check("", 0.0, (0.0, number), rule, 1.0).passed
        assert not Check("", 0.0, (0.0, 2.0), rule, number).passed


def test_a_claim_passes_when_all_its_checks_do():
    figure, _ = new_figure()
    good, bad = exactly("good", 1.0, "at most", 2.0), exactly("bad", NAN, "at most", 2.0)
    for checks, passed in (([good], True), ([good, bad], False), ([], False)):
        outcome = Outcome(checks, {"f": (figure, "caption")}, [{"a": 1}])
        assert Claim.of("id", "title", "statement", outcome, 1.5).passed is passed
    claim = Claim.of("id", "title", "statement", Outcome([bad, good], {"f": (figure, "caption")}, [{"a": 1}]), 1.5)
    content = json.loads(json.dumps(claim.to_dict(), allow_nan=False))
    expected = {"id": "id", "statement": "statement", "value": None, "interval": [None, None], "threshold": 2.0}
    assert expected.items() <= content.items()
    assert content["passed"] is False
    assert Claim.from_dict(content) == claim


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),  # from tables of Student's t
    [(0.975, 1, 12.706), (0.975, 5, 2.571), (0.995, 2, 9.925), (0.995, 30, 2.750), (0.9995, 9, 4.781)],
)
def test_student_quantiles(probability, degrees, expected):
    assert student_quantile(probability, degrees) == pytest.approx(expected, abs=6e-4)


def test_intervals_cover_as_often_as_they_say():
    samples = np.random.default_rng(0).normal(3.0, 2.0, (4000, 6))
    intervals = [mean_interval(row, level=0.9)[1] for row in samples]
    covered = np.mean([low <= 3.0 <= high for low, high in intervals])
    assert abs(covered - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 4000)
