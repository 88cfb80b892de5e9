"""What a pretraining run is: a frozen, validated configuration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, get_args

import numpy as np

from icrl_agent.train.tasks import FamilyName, FeatureKind

__all__ = ["ObjectiveName", "PretrainConfig"]

#: "td" is the paper's; "neu" descends its stationarity measure; "true_value" is an upper bound nobody has in practice.
ObjectiveName = Literal["td", "neu", "true_value"]


@dataclass(frozen=True)
class PretrainConfig:
    """A pretraining run; together with nothing else it decides every bit of the result.

    Ranges are (low, high), both included; equal bounds fix the value.
    """

    seed: int = 0
    """Seed of tasks and initial weights."""
    n_steps: int = 2000
    """Updates of the weights."""
    objective: ObjectiveName = "td"
    """What is minimised."""
    families: tuple[FamilyName, ...] = ("boyan",)
    """Task families; each batch is of one, drawn evenly."""
    n_states: tuple[int, int] = (10, 10)
    """States per task."""
    n_actions: tuple[int, int] = (4, 4)
    """Actions per state in the family "pairs", drawn per batch; its tasks have so many pairs per state."""
    features: FeatureKind = "random_unit"
    """Features of a state, redrawn per task."""
    feature_dim: int = 16
    """Length of a feature vector."""
    context_length: tuple[int, int] = (64, 64)
    """Transitions in a prompt; drawn per batch, evenly in its logarithm."""
    gamma: tuple[float, float] = (0.9, 0.9)
    """Discount factor, drawn per task."""
    n_layers: tuple[int, int] = (15, 15)
    """Depth, drawn per batch; the weights are kept with the upper bound."""
    reward_noise: tuple[float, float] = (0.0, 0.0)
    """Standard deviation of the reward noise, drawn per task."""
    shared: bool = True
    """One pair of weights for all layers."""
    tasks_per_step: int = 64
    """Tasks in a batch."""
    windows_per_task: int = 16
    """Consecutive prompts per task."""
    learning_rate: float = 1e-2
    """Adam's, decayed to 0 by a cosine over the run."""
    weight_decay: float = 1e-6
    """Adam's L2 penalty."""
    gradient_clip: float = 1.0
    """Largest norm of the gradient."""
    weigh_by_length: bool = False
    """Multiply a batch's loss by its context length over the range's geometric mean: errors fall with the length."""
    ema_decay: float = 0.99
    """Decay per update of the averaged weights, which are the ones kept; 0 keeps the last."""
    log_every: int = 20
    """Updates between rows of metrics.csv."""
    validate_every: int = 500
    """Updates between validations on held-out tasks."""
    checkpoint_every: int = 200
    """Updates between checkpoints."""

    def __post_init__(self) -> None:
        for name in ("n_steps", "feature_dim", "tasks_per_step", "windows_per_task", "log_every", "validate_every",
                     "checkpoint_every"):  # fmt: skip
            _require(
                _is_integer(getattr(self, name), 1), f"{name} must be an integer of at least 1", getattr(self, name)
            )
        good = _is_integer(self.seed, 0) and self.seed < 2**63
        _require(good, "seed must be a non-negative integer below 2^63", self.seed)
        for name, minimum in (("n_states", 2), ("n_actions", 2), ("context_length", 1), ("n_layers", 1)):
            low, high = self._range(name)
            good = _is_integer(low, minimum) and _is_integer(high, minimum) and low <= high
            _require(good, f"{name} must be two integers (low, high) with {minimum} <= low <= high", (low, high))
        for name, top in (("gamma", 1.0), ("reward_noise", math.inf)):
            low, high = self._range(name)
            good = _is_number(low) and _is_number(high) and 0 <= low <= high <= top and (top > 1 or high < 1)
            _require(good, f"{name} must be (low, high) with 0 <= low <= high{' < 1' if top == 1 else ''}", (low, high))
        for name in ("learning_rate", "weight_decay", "gradient_clip", "ema_decay"):
            value = getattr(self, name)
            _require(_is_number(value) and value >= 0, f"{name} must be a number of at least 0", value)
        for name in ("shared", "weigh_by_length"):
            _require(isinstance(getattr(self, name), bool), f"{name} must be True or False", getattr(self, name))
        _require(self.ema_decay < 1, "ema_decay must be below 1", self.ema_decay)
        _require(self.objective in get_args(ObjectiveName), f"objective: {get_args(ObjectiveName)}", self.objective)
        _require(self.features in get_args(FeatureKind), f"features: {get_args(FeatureKind)}", self.features)
        known = get_args(FamilyName)
        _require(bool(self.families) and set(self.families) <= set(known), f"families from {known}", self.families)
        _require(
            self.features != "one_hot" or self.feature_dim >= self.n_states[1],
            f"one_hot features need feature_dim of at least n_states = {self.n_states[1]}",
            self.feature_dim,
        )

    def actions_of(self, family: FamilyName) -> tuple[int, int]:
        """Bounds of the number of actions in a family: 1 where its tasks have no decisions."""
        return self.n_actions if family == "pairs" else (1, 1)

    def _range(self, name: str) -> tuple[Any, Any]:
        value = getattr(self, name)
        _require(isinstance(value, tuple) and len(value) == 2, f"{name} must be a pair (low, high)", value)
        return value  # type: ignore[no-any-return]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able values."""
        return {name: _plain(value) for name, value in dataclasses.asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PretrainConfig:
        """Rebuild from ``to_dict``.

        Raises:
            ValueError: for an unknown field (it is named) or a value out of its range.
        """
        known = {item.name for item in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        _require(not unknown, f"unknown field {', '.join(unknown)}; known: {', '.join(sorted(known))}", dict(values))
        fields: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in values.items()}
        return cls(**fields)

    def differing_fields(self, other: PretrainConfig) -> list[str]:
        """Names of the fields in which two configurations differ."""
        mine, theirs = self.to_dict(), other.to_dict()
        return [name for name in mine if mine[name] != theirs[name]]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _is_integer(value: Any, minimum: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= minimum


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _require(good: bool, rule: str, given: Any) -> None:
    if not good:
        raise ValueError(f"{rule}, got {given!r}")
