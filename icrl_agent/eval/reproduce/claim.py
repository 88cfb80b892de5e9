"""What a claim is once it was tested: checks with intervals and thresholds, figures, a table."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from icrl_agent.metrics import student_quantile

__all__ = ["LEVEL", "Check", "Claim", "Outcome", "Rule", "exactly", "mean_interval"]

Rule = Literal["at most", "at least", "below", "above", "contains", "excludes"]

#: Level of the intervals, unless a check says otherwise.
LEVEL = 0.99


@dataclass(frozen=True)
class Check:
    """One number against its threshold; the whole interval must keep the rule.

    Args:
        what: what the number is.
        value: the number.
        interval: (low, high); both the value itself where nothing is random.
        rule: "at most", "at least", and the strict "below" and "above", speak of the interval's worse end; "contains"
            and "excludes" of the interval.
        threshold: from theory, or from another measurement of the same run.

    >>> Check("slope", -0.49, (-0.52, -0.46), "contains", -0.5).passed
    True
    >>> Check("error", 0.9, (0.7, 1.1), "at most", 1.0).passed
    False
    """

    what: str
    value: float
    interval: tuple[float, float]
    rule: Rule
    threshold: float

    @property
    def passed(self) -> bool:
        """Whether the rule holds; never for a number or an interval that is not finite."""
        low, high = self.interval
        if not all(math.isfinite(number) for number in (self.value, low, high, self.threshold)):
            return False
        holds = {
            "at most": high <= self.threshold,
            "at least": low >= self.threshold,
            "below": high < self.threshold,
            "above": low > self.threshold,
            "contains": low <= self.threshold <= high,
            "excludes": not low <= self.threshold <= high,
        }
        return holds[self.rule]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; None for what is not finite."""
        return {
            "what": self.what,
            "value": _finite(self.value),
            "interval": [_finite(end) for end in self.interval],
            "rule": self.rule,
            "threshold": _finite(self.threshold),
            "passed": self.passed,
        }


@dataclass(frozen=True, eq=False)
class Outcome:
    """What testing a claim gives: ``judge``'s checks, and what a person looks at."""

    checks: Sequence[Check]
    """The first one is the claim's headline."""
    figures: Mapping[str, tuple[Figure, str]]
    """File stem to figure and caption."""
    table: Sequence[Mapping[str, Any]] = ()
    """Rows with equal keys."""
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    """TensorBoard curves: name to (step, value)."""


@dataclass(frozen=True)
class Claim:
    """A tested claim as it is kept in claims.json; ``value``, ``interval``, ``threshold`` are those of the headline."""

    id: str
    title: str
    statement: str
    checks: tuple[Mapping[str, Any], ...]
    table: tuple[Mapping[str, Any], ...]
    figures: tuple[tuple[str, str], ...]
    """(file stem, caption)."""
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every check passed (and there is one)."""
        return bool(self.checks) and all(check["passed"] for check in self.checks)

    @classmethod
    def of(cls, claim_id: str, title: str, statement: str, outcome: Outcome, seconds: float) -> Claim:
        """Keep the numbers of an outcome."""
        return cls(
            claim_id,
            title,
            statement,
            tuple(check.to_dict() for check in outcome.checks),
            tuple(dict(row) for row in outcome.table),
            tuple((stem, caption) for stem, (_, caption) in outcome.figures.items()),
            seconds,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able content, the headline's numbers and the verdict first."""
        headline = {name: self.checks[0][name] for name in ("value", "interval", "threshold")}
        rest = {name: getattr(self, name) for name in ("title", "checks", "table", "figures", "seconds")}
        return {"id": self.id, "statement": self.statement, **headline, "passed": self.passed, **rest}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Claim:
        """Rebuild from ``to_dict``."""
        checks, table = tuple(content["checks"]), tuple(content["table"])
        figures = tuple((stem, caption) for stem, caption in content["figures"])
        return cls(
            content["id"], content["title"], content["statement"], checks, table, figures, float(content["seconds"])
        )


def exactly(what: str, value: float, rule: Rule, threshold: float) -> Check:
    """A check on a number without randomness of its own."""
    return Check(what, float(value), (float(value), float(value)), rule, float(threshold))


def mean_interval(samples: ArrayLike, level: float = LEVEL) -> tuple[float, tuple[float, float]]:
    """Mean of independent samples, and its interval by Student's t.

    >>> mean, (low, high) = mean_interval([1.0, 2.0, 3.0], level=0.95)
    >>> mean, round(low, 3), round(high, 3)
    (2.0, -0.484, 4.484)
    """
    array = np.asarray(samples, dtype=np.float64)
    mean = float(array.mean())
    half = student_quantile(0.5 + level / 2, array.size - 1) * float(array.std(ddof=1)) / math.sqrt(array.size)
    return mean, (mean - half, mean + half)


@functools.cache
def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
