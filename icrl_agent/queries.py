"""Which states an evaluation answers for: those asked about, or all that its space or its experience offers."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from icrl_agent.observations import flat_rows, is_composite
from icrl_agent.transitions import Transitions

__all__ = ["answered_states", "checked_queries", "recorded_space"]

#: Discrete spaces with more states are answered for the visited states only.
LARGEST_ANSWERED_SPACE = 10_000


def checked_queries(queries: ArrayLike, space: spaces.Space[Any]) -> NDArray[Any]:
    """Raw observations as an array with one row per query; those of composite spaces flattened."""
    if is_composite(space):
        return _flattened_queries(queries, space)
    asked = np.asarray(queries)
    if isinstance(space, spaces.Discrete):
        last = int(space.start + space.n) - 1
        if asked.ndim != 1 or not np.issubdtype(asked.dtype, np.integer) or not len(asked):
            raise ValueError(f"queries must be a list of states {space.start} to {last}, got {reprlib.repr(queries)}")
        outside = (asked < space.start) | (asked > last)
        if outside.any():
            raise ValueError(f"query {asked[outside][0]} is no state: states are {space.start} to {last}")
        return asked
    if asked.ndim != 1 + len(space.shape or ()) or asked.shape[1:] != space.shape or not len(asked):
        raise ValueError(f"queries must have shape (m, {', '.join(map(str, space.shape or ()))}), got {asked.shape}")
    if not np.isfinite(asked).all():
        raise ValueError(f"query {np.argwhere(~np.isfinite(asked))[0][0]} is not finite")
    if isinstance(space, spaces.Box):
        # Compared in the space's own precision, so that a bound written as 0.07 is inside.
        rounded = asked.astype(space.dtype)
        outside = ((rounded < space.low) | (rounded > space.high)).reshape(len(asked), -1).any(axis=1)
        if outside.any():
            raise ValueError(f"query {np.flatnonzero(outside)[0]} lies outside the observation space {space}")
        return rounded
    return asked


def _flattened_queries(queries: Any, space: spaces.Space[Any]) -> NDArray[Any]:
    asked = list(queries)
    if not asked:
        raise ValueError("queries must hold at least one observation")
    for number, query in enumerate(asked):
        one = np.asarray(query, space.dtype) if isinstance(space, spaces.MultiDiscrete) else query
        if not space.contains(one):
            raise ValueError(f"query {number} lies outside the observation space {space}")
    return flat_rows(space, asked)


def recorded_space(transitions: Transitions, queries: ArrayLike | None) -> spaces.Space[Any]:
    """The space that recorded observations (and queries) span: Discrete from 0 for integers, else unbounded."""
    observations = transitions.observations
    if observations.ndim == 1 and np.issubdtype(observations.dtype, np.integer):
        parts = [observations, transitions.next_observations]
        if queries is not None and np.size(queries):
            parts.append(np.ravel(np.asarray(queries)))
        return spaces.Discrete(int(max(part.max() for part in parts)) + 1)
    return spaces.Box(-np.inf, np.inf, observations.shape[1:], np.float64)


def answered_states(space: spaces.Space[Any], transitions: Transitions) -> NDArray[Any]:
    """The states answered when nobody asks for particular ones."""
    if isinstance(space, spaces.Discrete):
        if space.n <= LARGEST_ANSWERED_SPACE:
            return np.arange(int(space.start), int(space.start + space.n))
        return np.unique(transitions.observations)
    _, first = np.unique(transitions.observations.reshape(len(transitions), -1), axis=0, return_index=True)
    return transitions.observations[np.sort(first)]
