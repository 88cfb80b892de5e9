"""What streams ask of raw observations and of what they return."""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl_agent.streaming.layers import Depth

__all__ = [
    "as_array",
    "checked_flag",
    "checked_flags",
    "checked_length",
    "checked_reward",
    "checked_rewards",
    "finite_number",
    "finite_values",
    "observation_key",
    "observation_keys",
    "observations_of",
]

FloatArray = NDArray[np.float64]

#: Numbers of this size and more round to infinity in float32: half a step above its largest.
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103


def as_array(values: Any) -> NDArray[Any] | None:
    """An array, None for what is none (lists of different lengths)."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError):
        return None


def finite_number(value: Any) -> float | None:
    """One real number that is finite in float32, as a float; None for anything else.

    >>> finite_number(2), finite_number("2"), finite_number([2.0]), finite_number(1e308)
    (2.0, None, None, None)
    """
    if not isinstance(value, numbers.Real | np.bool_):
        array = as_array(value) if getattr(value, "shape", None) == () else None
        if array is None or array.dtype.kind not in "biuf":
            return None
        value = array.item()
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < FLOAT32_OVERFLOW else None


def checked_reward(reward: Any) -> float:
    """The reward as a float.

    Raises:
        ValueError: for anything but one real number that is finite in float32.
    """
    number = finite_number(reward)
    if number is None:
        raise ValueError(f"rewards must be finite float32 numbers, got {reprlib.repr(reward)}")
    return number


def checked_rewards(rewards: Any, chosen: NDArray[np.intp], num_envs: int) -> FloatArray:
    """The chosen ones of one reward per environment.

    Raises:
        ValueError: for another shape, and as ``checked_reward``.
    """
    given = as_array(rewards)
    if given is None or given.shape != (num_envs,):
        shape = "" if given is None else f" of shape {given.shape}"
        raise ValueError(f"rewards must be finite float32 numbers of shape ({num_envs},), got {rewards!r}{shape}")
    if given.dtype.kind in "biuf":
        numeric = given[chosen].astype(np.float64)
        if (np.abs(numeric) < FLOAT32_OVERFLOW).all():
            return numeric
    return np.array([checked_reward(reward) for reward in given[chosen].tolist()], np.float64)


def checked_flag(name: str, flag: Any) -> bool:
    """The flag as a bool.

    Raises:
        TypeError: for anything but True or False, numpy's included.
    """
    if isinstance(flag, np.ndarray) and flag.shape == () and flag.dtype == np.bool_:
        return bool(flag)
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {flag!r}")
    return bool(flag)


def checked_flags(name: str, flags: Any, num_envs: int) -> NDArray[np.bool_]:
    """One flag per environment; a single one is that of all.

    Raises:
        TypeError: for anything but True or False.
        ValueError: for another number of them.
    """
    given = as_array(flags)
    if given is None or given.dtype != np.bool_:
        raise TypeError(f"{name} must be True or False for each environment, got {flags!r}")
    if given.shape not in ((), (num_envs,)):
        raise ValueError(f"{name} must have shape ({num_envs},), got {given.shape}")
    return np.broadcast_to(given, num_envs)


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
