"""Recorded transitions: what was really experienced, one row per step, and its form as prompt columns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Columns", "Transitions", "refuse_not_finite"]


class Columns(NamedTuple):
    """A history in column form: the form of prompts and of the reference algorithms."""

    observations: NDArray[Any]
    """(n_columns, ...)."""
    rewards: NDArray[np.float64]
    """(n_columns - 1,), 0 where a column is no source."""
    source_mask: NDArray[np.bool_]
    """(n_columns,)."""
    continues: NDArray[np.float64]
    """(n_columns,), 1 where a column is no source."""


@dataclass(frozen=True, eq=False)
class Transitions:
    """n transitions, from one environment or several interleaved copies; every row carries its own successor.

    Arrays of your own: ``icrl_agent.logged_data.transitions_from_arrays`` checks them.

    Args:
        observations: states left, (n, ...).
        rewards: reward per step, float64 (n,).
        next_observations: states entered, the last states of episodes included, (n, ...).
        terminated: bool (n,); no value follows.
        truncated: bool (n,); the episode was cut, the value of the state entered still counts.
        copy: which environment copy, int (n,).
    """

    observations: NDArray[Any]
    rewards: NDArray[np.float64]
    next_observations: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    copy: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def continues(self) -> NDArray[np.float64]:
        """0 where a transition terminated, else 1, (n,)."""
        return np.where(self.terminated, 0.0, 1.0)

    def columns(self) -> Columns:
        """Write the transitions as columns, each copy's steps side by side.

        Consecutive steps of an episode share a column; where an episode (or the record of a copy) ends, or the next
        row starts elsewhere, the state entered gets a column that is no source.

        >>> import numpy as np
        >>> flag = np.zeros(2, bool)
        >>> t = Transitions(np.array([0, 1]), np.array([5.0, 6.0]), np.array([1, 2]), flag, flag, np.zeros(2, int))
        >>> t.columns().observations, t.columns().source_mask
        (array([0, 1, 2]), array([ True,  True, False]))
        """
        order, ends = self._runs()
        # A row's column is its rank plus the number of end columns before it.
        column = np.arange(len(order)) + np.concatenate([[0], np.cumsum(ends)[:-1]])
        n_columns = len(order) + int(ends.sum())
        observations = np.empty((n_columns, *self.observations.shape[1:]), self.observations.dtype)
        observations[column] = self.observations[order]
        observations[column[ends] + 1] = self.next_observations[order][ends]
        rewards = np.zeros(n_columns - 1)
        rewards[column] = self.rewards[order]
        source_mask = np.zeros(n_columns, bool)
        source_mask[column] = True
        continues = np.ones(n_columns)
        continues[column] = self.continues[order]
        return Columns(observations, rewards, source_mask, continues)

    def by_copy(self, num_envs: int) -> list[Transitions]:
        """The transitions of each copy, in the order they happened."""
        order = np.argsort(self.copy, kind="stable")
        ends = np.cumsum(np.bincount(self.copy, minlength=num_envs))[:-1]
        columns = (getattr(self, item.name) for item in fields(self))
        parts = zip(*(np.split(column[order], ends) for column in columns), strict=True)
        return [Transitions(*part) for part in parts]

    def episodes(self) -> NDArray[np.intp]:
        """Number of every row's episode, (n,), in the order of copies and rows.

        An episode is a run of rows of one copy, each leaving the state that the one before entered.
        """
        order, ends = self._runs()
        episode = np.empty(len(order), np.intp)
        episode[order] = np.cumsum(ends) - ends
        return episode

    def _runs(self) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Rows copy by copy, and whether a row in that order is the last of its run."""
        order = np.argsort(self.copy, kind="stable")
        entered, left = self.next_observations[order][:-1], self.observations[order][1:]
        ends = (self.terminated | self.truncated)[order]
        ends[:-1] |= np.diff(self.copy[order]) != 0
        ends[:-1] |= (entered != left).any(axis=tuple(range(1, left.ndim)))
        ends[-1:] = True
        return order, ends

    def first(self, n: int) -> Transitions:
        """The first n transitions."""
        return Transitions(
            self.observations[:n], self.rewards[:n], self.next_observations[:n],
            self.terminated[:n], self.truncated[:n], self.copy[:n],
        )  # fmt: skip


def refuse_not_finite(observations: NDArray[Any], sentence: str) -> None:
    """Raise ValueError for an observation that is not finite; ``sentence`` gets the number of its row, from 1."""
    flat = observations.reshape(len(observations), -1)
    if not np.isfinite(flat).all():
        row, dimension = np.argwhere(~np.isfinite(flat))[0]
        raise ValueError(f"{sentence.format(row + 1)}: dimension {dimension} is {flat[row, dimension]}")
