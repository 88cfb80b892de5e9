"""What streams ask of raw observations and of what they return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl_agent.streaming.layers import Depth

__all__ = ["checked_length", "finite_values", "observation_key", "observation_keys", "observations_of"]

FloatArray = NDArray[np.float64]


def checked_length(context_length: int | None) -> int | None:
    """Return the window's length, None for an unbounded one.

    Raises:
        ValueError: for a length below 1.
    """
    if context_length is None:
        return None
    if isinstance(context_length, bool) or not isinstance(context_length, int | np.integer) or context_length < 1:
        raise ValueError(f"context_length must be an integer of at least 1 or None, got {context_length!r}")
    return int(context_length)


def observation_key(observation: NDArray[Any]) -> bytes:
    """What equal observations have in common: integers of any size, numbers of any precision."""
    return _comparable(observation).tobytes()


def observation_keys(rows: NDArray[Any]) -> tuple[list[bytes], NDArray[np.intp], NDArray[np.intp]]:
    """Keys of the distinct rows (k, ...), where each of them stands first, and the number of every row among them.

    >>> keys, first, number = observation_keys(np.array([5, 3, 5]))
    >>> len(keys), first.tolist(), number.tolist()
    (2, [1, 0], [1, 0, 1])
    """
    flat = _comparable(rows).reshape(len(rows), math.prod(rows.shape[1:]))
    # One opaque item per row: distinct bytes are distinct observations.
    items = flat if flat.shape[1] == 1 else flat.view(np.dtype((np.void, flat.itemsize * flat.shape[1])))
    _, first, number = np.unique(items[:, 0], return_index=True, return_inverse=True)
    return [flat[row].tobytes() for row in first], first, number


def observations_of(keys: Sequence[bytes], integers: bool, shape: tuple[int, ...]) -> NDArray[Any]:
    """The observations (k, ...) that keys were made from.

    >>> observations_of([observation_key(np.array([5, 3]))], integers=True, shape=(2,))
    array([[5, 3]])
    """
    return np.frombuffer(b"".join(keys), np.int64 if integers else np.float64).reshape(len(keys), *shape)


def _comparable(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind in "biu":
        return np.ascontiguousarray(array, np.int64)
    return np.ascontiguousarray(array, np.float64) + 0.0  # no negative zero


def finite_values(values: FloatArray, n_layers: Depth) -> FloatArray:
    """The values themselves.

    Raises:
        ValueError: if one is not finite.
    """
    if not np.isfinite(values).all():
        raise ValueError(
            f"the values after {n_layers} layers are not finite: the layers diverge on this context, or the rewards are"
            " too large"
        )
    return values
