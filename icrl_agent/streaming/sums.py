"""Sums by state of a history that grows at one end and, with a window, shrinks at the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl_agent.streaming.layers import Sums

__all__ = ["StateSums"]

FloatArray = NDArray[np.float64]

#: Rows of the tables to begin with; they double when all are in use.
INITIAL_SIZE = 16
#: Stands in a column that is no source.
NO_STATE = -1


class StateSums:
    """N, R, C of the transitions in a window, and the scores between the distinct states that they touch.

    States live in numbered slots. A slot that nothing refers to any more is used again, so that memory is bounded by
    the window's length even where every state is new: 8 (1 + W) S^2 bytes for S slots and W pairs of weights. An
    unbounded history keeps no columns, only sums: memory grows with the number of distinct states alone.

    Rewards are never subtracted (a large one would leave its rounding error behind). The window is a ring; when it
    wraps, everything in it becomes the old part, and each old column learns what remains of its state's rewards once
    it is gone. R is what remains of the old part plus the sum of the new one.

    Args:
        attention: A's feature blocks, (W, d, d).
        context_length: columns in the window, at least 1; None = unbounded.
    """

    def __init__(self, attention: FloatArray, context_length: int | None) -> None:
        self.attention, self.context_length = attention, context_length
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        n_weights, feature_dim, _ = self.attention.shape
        self.size = 0
        """Slots in use, and those waiting to be used again."""
        self._slot_of: dict[Hashable, int] = {}
        self._key_of: list[Hashable] = []
        self._uses: list[int] = []
        self._free: list[int] = []
        self._features = np.zeros((INITIAL_SIZE, feature_dim))
        self._scores = np.zeros((n_weights, INITIAL_SIZE, INITIAL_SIZE))
        self._counts, self._old, self._new = np.zeros((3, INITIAL_SIZE))
        self._successors = np.zeros((INITIAL_SIZE, INITIAL_SIZE))
        self._columns: list[tuple[int, int, float, float]] = []  # source, next, reward, continues
        self._remaining: list[float] = []
        self._position = 0

    @property
    def keys(self) -> list[Any]:
        """Keys by slot."""
        return self._key_of

    @property
    def columns(self) -> list[tuple[int, int, float, float]]:
        """(source, next, reward, continues) of the window's columns, oldest first; empty without a window."""
        return self._columns[self._position :] + self._columns[: self._position]

    @property
    def features(self) -> FloatArray:
        """Features by slot, (S, d)."""
        return self._features[: self.size]

    @property
    def scores(self) -> FloatArray:
        """[w, s, u] = x(u)' A_w x(s), (W, S, S)."""
        return self._scores[:, : self.size, : self.size]

    @property
    def sums(self) -> Sums:
        """N, R, C by slot."""
        S = self.size
        return Sums(self._counts[:S], self._old[:S] + self._new[:S], self._successors[:S, :S])

    def slot(self, key: Hashable) -> int | None:
        """Slot of a state, None if it has none."""
        return self._slot_of.get(key)

    def hold(self, key: Hashable, features: Callable[[], FloatArray]) -> int:
        """Refer to a state once more; ``features`` (d,) is asked for where the state is new."""
        slot = self._slot_of.get(key)
        if slot is None:
            slot = self._new_slot(key, features())
        self._uses[slot] += 1
        return slot

    def release(self, slot: int) -> None:
        """Take one reference back."""
        self._uses[slot] -= 1
        if not self._uses[slot]:
            del self._slot_of[self._key_of[slot]]
            self._free.append(slot)

    def add(self, slot: int, next_slot: int, reward: float, continues: float) -> None:
        """Add a transition; it takes over the caller's reference to ``slot`` and makes its own to ``next_slot``."""
        if self.context_length is not None:
            self._push((slot, next_slot, reward, continues))
        self._uses[next_slot] += 1
        self._counts[slot] += 1.0
        self._new[slot] += reward
        self._successors[slot, next_slot] += continues

    def load(self, counts: FloatArray, reward_sum: FloatArray, successors: FloatArray) -> None:
        """Set the sums of an unbounded history whose states are all held."""
        size = self.size
        self._counts[:size], self._new[:size], self._successors[:size, :size] = counts, reward_sum, successors

    def add_end(self, slot: int) -> None:
        """Add an episode's last state, a column that is no source; takes over the caller's reference."""
        if self.context_length is not None:
            self._push((NO_STATE, NO_STATE, 0.0, 0.0))
        self.release(slot)

    def _push(self, column: tuple[int, int, float, float]) -> None:
        if len(self._columns) < (self.context_length or 0):
            self._columns.append(column)
            return
        if self._position == 0:
            self._wrap()
        self._remove(self._position)
        self._columns[self._position] = column
        self._position = (self._position + 1) % len(self._columns)

    def _wrap(self) -> None:
        """Everything in the ring becomes the old part."""
        sums = [0.0] * self.size
        self._remaining = [0.0] * len(self._columns)
        for position in range(len(self._columns) - 1, -1, -1):
            slot, _, reward, _ = self._columns[position]
            if slot != NO_STATE:
                self._remaining[position] = sums[slot]
                sums[slot] += reward
        self._old[: self.size] = sums
        self._new[:] = 0.0

    def _remove(self, position: int) -> None:
        slot, next_slot, _, continues = self._columns[position]
        if slot != NO_STATE:
            self._old[slot] = self._remaining[position]
            self._counts[slot] -= 1.0
            self._successors[slot, next_slot] -= continues
            self.release(slot)
            self.release(next_slot)

    def _new_slot(self, key: Hashable, x: FloatArray) -> int:
        if self._free:
            slot = self._free.pop()
            self._key_of[slot] = key
        else:
            if self.size == len(self._features):
                self._grow()
            slot = self.size
            self.size += 1
            self._key_of.append(key)
            self._uses.append(0)
        self._slot_of[key] = slot
        self._features[slot] = x
        known = self.features.T
        self._scores[:, slot, : self.size] = self.attention @ x @ known
        self._scores[:, : self.size, slot] = x @ self.attention @ known
        return slot

    def _grow(self) -> None:
        size = len(self._features)
        self._features = np.pad(self._features, ((0, size), (0, 0)))
        self._scores = np.pad(self._scores, ((0, 0), (0, size), (0, size)))
        self._successors = np.pad(self._successors, ((0, size), (0, size)))
        self._counts, self._old, self._new = (np.pad(row, (0, size)) for row in (self._counts, self._old, self._new))
