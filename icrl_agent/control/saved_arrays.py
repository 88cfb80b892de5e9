"""Whether arrays are what a stream of pairs writes down: what is wrong with them, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl_agent.streaming.observations import FLOAT32_OVERFLOW
from icrl_agent.streaming.sums import NO_STATE

__all__ = ["fault_of"]

Arrays = Mapping[str, NDArray[Any]]

#: Arrays of one number per state, and of one number per pair of a state and its successor.
_BY_STATE, _BY_SUCCESSOR = ("counts", "reward_sum"), ("source", "next_state", "continues")


def fault_of(arrays: Arrays, context_length: int | None) -> str | None:
    """What keeps arrays from being a context with or without a window; None = nothing."""
    wanted = ("columns",) if context_length is not None else (*_BY_STATE, *_BY_SUCCESSOR)
    for name in ("observations", "running", *wanted):
        if name not in arrays:
            return f"it has no array {name}"
        if arrays[name].dtype.kind not in "iuf" or not np.isfinite(arrays[name]).all():
            return f"its array {name} must hold finite numbers"
    return (
        _fault_of_states(arrays["observations"], arrays["running"])
        or (_fault_of_sums(arrays) if context_length is None else None)
        or (_fault_of_columns(arrays, context_length) if context_length is not None else None)
    )


def _fault_of_states(observations: NDArray[Any], running: NDArray[Any]) -> str | None:
    n_states = len(observations) if observations.ndim else 0
    if observations.ndim != 2 and observations.shape != (0,):
        return f"its observations must have shape (states, numbers), got {observations.shape}"
    if running.shape != (3,) or running.dtype.kind not in "iu":
        return f"its array running must hold three integers, got {running.tolist()!r:.80}"
    present, *flags = running.tolist()
    if not -1 <= present < n_states:
        return f"its present state must be one of {n_states} or -1, got {present}"
    if not set(flags) <= {0, 1}:
        return f"its flags must be 0 or 1, got {flags}"
    return None


def _fault_of_sums(arrays: Arrays) -> str | None:
    observations = arrays["observations"]
    n_states, n_successors = len(observations), arrays["source"].shape
    if n_states and len(np.unique(observations, axis=0)) < n_states:
        return "its observations must differ"
    for name in _BY_STATE:
        if arrays[name].shape != (n_states,):
            return f"its array {name} must have shape ({n_states},), got {arrays[name].shape}"
    for name in _BY_SUCCESSOR:
        if arrays[name].ndim != 1 or arrays[name].shape != n_successors:
            return "its arrays source, next_state and continues must have the same length"
    for name in ("source", "next_state"):
        if not _are_indices(arrays[name], n_states) or arrays[name].dtype.kind not in "iu":
            return f"its array {name} must hold integers in 0 .. {n_states - 1}"
    for name in ("counts", "continues"):
        if not _are_whole(arrays[name]):
            return f"its array {name} must hold whole numbers that are not negative"
    source, counts = arrays["source"].astype(np.intp), arrays["counts"]
    if (np.bincount(source, arrays["continues"], n_states) > counts).any():
        return "more of its transitions go on from a state than left it"
    if (arrays["reward_sum"][counts == 0] != 0).any():
        return "it has rewards of a state that nothing left"
    return None


def _fault_of_columns(arrays: Arrays, context_length: int) -> str | None:
    columns, n_states = arrays["columns"], len(arrays["observations"])
    if columns.ndim != 2 or columns.shape[1] != 4 or len(columns) > context_length:
        return f"its columns must have shape (at most {context_length}, 4), got {columns.shape}"
    source, next_state, reward, continues = columns.T
    ends = source == NO_STATE
    if not _are_indices(source[~ends], n_states) or not _are_indices(next_state[~ends], n_states):
        return f"its columns must name states in 0 .. {n_states - 1}, or {NO_STATE} where an episode ends"
    if ends.any() and not n_states:
        return "an episode of its columns ends in no state"
    if not (np.abs(reward) < FLOAT32_OVERFLOW).all():
        return "its columns must hold rewards that are finite in float32"
    if not np.isin(continues, (0.0, 1.0)).all():
        return "its columns must say 0 or 1 where a transition ends or goes on"
    return None


def _are_whole(numbers: NDArray[Any]) -> bool:
    return bool(((numbers >= 0) & (numbers == np.round(numbers))).all())


def _are_indices(numbers: NDArray[Any], n: int) -> bool:
    return _are_whole(numbers) and bool((numbers < n).all())
