"""Transitions from arrays and recorded episodes, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from icrl_agent.observations import flat_rows, is_composite, single_observations
from icrl_agent.transitions import Transitions, refuse_not_finite

__all__ = ["PARTS", "transitions_from_arrays", "transitions_from_episodes"]

#: The arrays of a record, in the order of ``Transitions``.
PARTS = ("observations", "rewards", "next_observations", "terminated", "truncated", "copy")


def transitions_from_arrays(
    observations: ArrayLike,
    rewards: ArrayLike,
    next_observations: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike | None = None,
    copy: ArrayLike | None = None,
) -> Transitions:
    """Check logged arrays, one row per transition in any order, and return them as ``Transitions``.

    Args:
        observations: states left, (n, ...), numbers; integers (n,) are states of a finite space.
        rewards: finite, (n,).
        next_observations: states entered, as ``observations``.
        terminated: True or False (or 1 and 0), (n,); no value follows.
        truncated: the episode was cut, but a value follows; None = nowhere.
        copy: which environment copy a row is of, integers (n,); None = one.

    Raises:
        ValueError: for no rows, lengths or shapes that differ, numbers that are not finite (row and dimension are
            named, rows counted from 1), flags that are no flags.

    >>> transitions_from_arrays([0, 1], [1.0, 2.0], [1, 0], [False, False]).rewards
    array([1., 2.])
    """
    left, entered = np.array(observations), np.array(next_observations)
    n = len(left) if left.ndim else 0
    if n == 0:
        raise ValueError(f"observations must have a row per transition, at least one, got shape {left.shape}")
    if left.shape != entered.shape:
        raise ValueError(
            f"observations and next_observations must have the same shape, got {left.shape} and {entered.shape}"
        )
    for name, array in (("observations", left), ("next_observations", entered)):
        if np.iscomplexobj(array) or not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_):
            raise ValueError(f"{name} must be real numbers, got {array.dtype}")
        if array.size == 0:
            raise ValueError(f"{name} must hold at least one number per row, got shape {array.shape}")
        refuse_not_finite(array, f"{name} are not finite in row {{}}")
    return Transitions(
        observations=left,
        rewards=_reward_column(rewards, n),
        next_observations=entered,
        terminated=_flag_column("terminated", terminated, n),
        truncated=np.zeros(n, bool) if truncated is None else _flag_column("truncated", truncated, n),
        copy=np.zeros(n, np.intp) if copy is None else _copy_column(copy, n),
    )


def transitions_from_episodes(
    episodes: Iterable[Mapping[str, Any]], observation_space: spaces.Space[Any] | None = None
) -> Transitions:
    """Join recorded episodes, each a mapping as a Gymnasium loop records it.

    Args:
        episodes: each with "observations" (T + 1, ...: the reset's, and one per step), "rewards" (T,), and
            "terminated" and "truncated", (T,) or one flag for the last step ("truncated" may be missing). An episode
            without either flag at its end was cut by the record's end.
        observation_space: of the environment; needed for Dict, Tuple and MultiDiscrete observations, which are
            flattened (dictionaries of arrays, or sequences of single observations).

    Raises:
        ValueError: for no transitions, or an episode that is not of this form; it is named, counted from 1.

    >>> episode = {"observations": [3, 4, 5], "rewards": [1.0, 1.0], "terminated": True}
    >>> transitions_from_episodes([episode]).next_observations
    array([4, 5])
    """
    parts: list[Transitions] = []
    for number, episode in enumerate(episodes, start=1):
        if not isinstance(episode, Mapping):
            raise ValueError(f"an episode is a mapping of arrays, episode {number} is {type(episode).__name__}")
        missing = [name for name in ("observations", "rewards", "terminated") if name not in episode]
        if missing:
            raise ValueError(f"episode {number} has no {' and no '.join(missing)}")
        rewards = np.asarray(episode["rewards"])
        n = len(rewards) if rewards.ndim else 0
        rows = _episode_rows(episode["observations"], observation_space)
        if len(rows) != n + 1:
            raise ValueError(f"episode {number} has {len(rows)} observations and {n} rewards: one more is needed")
        if n == 0:
            continue
        flags = (_episode_flags(episode.get(name, False), n) for name in ("terminated", "truncated"))
        try:
            parts.append(transitions_from_arrays(rows[:-1], rewards, rows[1:], *flags))
        except ValueError as error:
            raise ValueError(f"episode {number}: {error}") from error
    if not parts:
        raise ValueError("the episodes hold no transition")
    shapes = {part.observations.shape[1:] for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"all episodes must have observations of one shape, got {sorted(shapes)}")
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in PARTS}
    return Transitions(**columns)


def _reward_column(rewards: ArrayLike, n: int) -> NDArray[np.float64]:
    column = _column("rewards", rewards, n)
    if not (np.issubdtype(column.dtype, np.integer) or np.issubdtype(column.dtype, np.floating)):
        raise ValueError(f"rewards must be numbers, got {column.dtype}")
    refuse_not_finite(column, "rewards are not finite in row {}")
    return column.astype(np.float64)


def _flag_column(name: str, flags: ArrayLike, n: int) -> NDArray[np.bool_]:
    column = _column(name, flags, n)
    if column.dtype != np.bool_ and not (np.issubdtype(column.dtype, np.number) and np.isin(column, (0, 1)).all()):
        raise ValueError(f"{name} must hold True and False (or 1 and 0) only, got {column.dtype}")
    return column.astype(bool)


def _copy_column(copy: ArrayLike, n: int) -> NDArray[np.intp]:
    column = _column("copy", copy, n)
    if not np.issubdtype(column.dtype, np.integer):
        raise ValueError(f"copy must hold integers, got {column.dtype}")
    if (column < 0).any():
        raise ValueError(f"copy must hold integers of at least 0, got {column.min()}")
    return column.astype(np.intp)


def _column(name: str, values: ArrayLike, n: int) -> NDArray[Any]:
    column = np.array(values)
    if column.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), one per row of observations, got {column.shape}")
    return column


def _episode_rows(observations: Any, space: spaces.Space[Any] | None) -> NDArray[Any]:
    if space is None or not is_composite(space):
        if isinstance(observations, Mapping | tuple):
            raise ValueError("observations in parts need the environment's observation_space")
        return np.asarray(observations)
    stacked = isinstance(observations, Mapping | tuple) or isinstance(space, spaces.MultiDiscrete)
    return flat_rows(space, single_observations(space, observations) if stacked else observations)


def _episode_flags(flags: Any, n: int) -> NDArray[Any]:
    """One flag per step; a single one is that of the last step."""
    array = np.asarray(flags)
    if array.ndim:
        return array
    per_step = np.zeros(n, array.dtype)
    per_step[-1] = array
    return per_step
