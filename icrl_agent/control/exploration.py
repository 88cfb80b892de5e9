"""How a controller departs from the action it believes best: at random, or towards what its context knows little of."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icrl_agent.streaming.observations import finite_number

__all__ = ["DEFAULT_EXPLORATION", "Epsilon", "Exploration", "Optimism", "as_exploration", "epsilon_greedy"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Epsilon:
    """With probability epsilon a uniformly random action, else the best one.

        epsilon_t = start + (end - start) min(t / n_steps, 1)

    Args:
        start: probability at the first step, in [0, 1].
        end: probability from step ``n_steps`` on, in [0, 1]; None = ``start``.
        n_steps: steps over which it changes, at least 1.

    Raises:
        ValueError: for a probability outside [0, 1] or n_steps below 1.

    >>> Epsilon(1.0, 0.1, n_steps=100).at(50)
    0.55
    """

    start: float = 0.2
    end: float | None = None
    n_steps: int = 1

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            value = getattr(self, name)
            if value is None and name == "end":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
                raise ValueError(f"exploration's probability must be a number in [0, 1], got {value!r}")
        if isinstance(self.n_steps, bool) or not isinstance(self.n_steps, int | np.integer) or self.n_steps < 1:
            raise ValueError(f"n_steps of an exploration must be an integer of at least 1, got {self.n_steps!r}")

    def at(self, step: int) -> float:
        """Epsilon at a step, counted from 0."""
        end = self.start if self.end is None else self.end
        return float(self.start + (end - self.start) * min(step / self.n_steps, 1.0))


@dataclass(frozen=True)
class Optimism:
    """The action that is best when what the context knows little of is thought to be better than it looks.

        mass(s, a) = sum_k exp(g((s, a), u_k) - g((s, a), (s, a)))            transitions k that left pairs u_k
        b(s, a)    = scale / sqrt(1 + mass(s, a))

    With near-orthogonal features mass is the number of visits, with others the visits of all that resembles the pair.
    The bonus is added to the successors' values inside the target of every layer, so that it reaches what leads to the
    unknown, and to the values that the action maximises. Source: the interval estimation bonus of Strehl and Littman
    (2008, MBIE-EB) with the attention's own mass as the count; ours in this form.

    Args:
        scale: bonus of a pair that resembles nothing, reward units, positive.

    Raises:
        ValueError: for a scale that is not a positive finite float32 number.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        number = None if isinstance(self.scale, bool) else finite_number(self.scale)
        if number is None or not number > 0:
            raise ValueError(f"scale must be a positive finite float32 number, got {reprlib.repr(self.scale)}")

    def bonus(self, mass: FloatArray) -> FloatArray:
        """Bonus b of pairs with these masses."""
        return np.asarray(self.scale / np.sqrt(1.0 + mass))


Exploration = Epsilon | Optimism

#: Where rewards are of the order of 1.
DEFAULT_EXPLORATION = Optimism()


def as_exploration(exploration: float | Exploration) -> Exploration:
    """Return an exploration given as itself or as a constant epsilon.

    Raises:
        ValueError: for a number outside [0, 1].
        TypeError: for anything else.
    """
    if isinstance(exploration, Epsilon | Optimism):
        return exploration
    if isinstance(exploration, bool) or not isinstance(exploration, int | float | np.number):
        raise TypeError(f"exploration must be a number in [0, 1], Epsilon or Optimism, got {exploration!r}")
    return Epsilon(float(exploration))


def epsilon_greedy(q: FloatArray, epsilon: float) -> FloatArray:
    """pi(a|s) of values (..., A): epsilon spread evenly, the rest evenly over the best actions.

    >>> epsilon_greedy(np.array([1.0, 0.0]), 0.5)
    array([0.75, 0.25])
    """
    best = q == q.max(axis=-1, keepdims=True)
    return np.asarray(epsilon / q.shape[-1] + (1.0 - epsilon) * best / best.sum(axis=-1, keepdims=True))
