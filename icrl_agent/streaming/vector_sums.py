"""Sums by state of many histories at once, over one table of states that they share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icrl_agent.streaming.layers import Sums

__all__ = ["VectorSums"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

#: Stands in a column that is no source.
NO_STATE = -1


class VectorSums:
    """N, R, C of ``num_envs`` windows by state; ``StateSums`` without its reuse of slots, one row per environment.

    Args:
        num_envs: number of histories E.
        context_length: columns in each window, at least 1; None = unbounded.
    """

    def __init__(self, num_envs: int, context_length: int | None) -> None:
        self.num_envs = num_envs
        self._counts, self._old, self._new = np.zeros((3, num_envs, 0))
        self._successors = np.zeros((num_envs, 0, 0))
        shape = num_envs, context_length or 0
        self._slot = np.full(shape, NO_STATE, np.intp)
        self._next_slot = np.zeros(shape, np.intp)
        self._rewards, self._continues, self._remaining = np.zeros((3, *shape))
        self._position = np.zeros(num_envs, np.intp)

    @property
    def sums(self) -> Sums:
        """N, R, C by environment and state."""
        return Sums(self._counts, self._old + self._new, self._successors)

    def clear(self, chosen: IntArray) -> None:
        """Forget the histories of some environments."""
        for array in (self._counts, self._old, self._new, self._successors, self._position):
            array[chosen] = 0
        self._slot[chosen] = NO_STATE

    def grow(self, n_states: int) -> None:
        """Make room for more states."""
        more = n_states - self._counts.shape[1]
        self._counts, self._old, self._new = (
            np.pad(row, ((0, 0), (0, more))) for row in (self._counts, self._old, self._new)
        )
        self._successors = np.pad(self._successors, ((0, 0), (0, more), (0, more)))

    def add(
        self, chosen: IntArray, slot: IntArray, next_slot: IntArray, rewards: FloatArray, continues: FloatArray
    ) -> None:
        """Add one transition to each chosen history; all arrays (len(chosen),)."""
        self._push(chosen, slot, next_slot, rewards, continues)
        self._counts[chosen, slot] += 1.0
        self._new[chosen, slot] += rewards
        self._successors[chosen, slot, next_slot] += continues

    def add_end(self, chosen: IntArray) -> None:
        """Add the column of an episode's last state, which is no source, to each chosen history."""
        self._push(chosen, NO_STATE, 0, 0.0, 0.0)

    def _push(
        self,
        chosen: IntArray,
        slot: IntArray | int,
        next_slot: IntArray | int,
        rewards: FloatArray | float,
        continues: FloatArray | float,
    ) -> None:
        if not self._slot.shape[1] or not len(chosen):
            return
        self._wrap(chosen[self._position[chosen] == 0])
        at = chosen, self._position[chosen]
        self._remove(*at)
        self._slot[at], self._next_slot[at] = slot, next_slot
        self._rewards[at], self._continues[at] = rewards, continues
        self._position[chosen] = (at[1] + 1) % self._slot.shape[1]

    def _wrap(self, chosen: IntArray) -> None:
        """Everything in these rings becomes the old part; each column learns what will remain once it is gone."""
        if not len(chosen):
            return
        slot, rewards = self._slot[chosen], self._rewards[chosen]
        remaining = np.zeros_like(rewards)
        for state in range(self._counts.shape[1]):
            here = slot == state
            from_newest = np.cumsum(np.where(here, rewards, 0.0)[:, ::-1], axis=1)[:, ::-1]
            self._old[chosen, state] = from_newest[:, 0]
            later = np.pad(from_newest[:, 1:], ((0, 0), (0, 1)))
            remaining[here] = later[here]
        self._remaining[chosen] = remaining
        self._new[chosen] = 0.0

    def _remove(self, chosen: IntArray, position: IntArray) -> None:
        is_source = self._slot[chosen, position] != NO_STATE
        at = chosen[is_source], position[is_source]
        slot = self._slot[at]
        self._old[at[0], slot] = self._remaining[at]
        self._counts[at[0], slot] -= 1.0
        self._successors[at[0], slot, self._next_slot[at]] -= self._continues[at]
