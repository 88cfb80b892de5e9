"""What the feature maps share: checks of their arguments, their random generator."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["FloatArray", "check_positive", "check_seed", "check_start", "generator", "read_only"]

FloatArray = NDArray[np.float64]


def check_positive(**sizes: int) -> None:
    """Raise ValueError unless every size is an integer of at least 1."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")


def check_seed(seed: int) -> None:
    """Raise ValueError unless the seed is a non-negative integer."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a non-negative integer, got {seed!r}")


def check_start(start: int) -> None:
    """Raise ValueError unless the smallest observation is an integer."""
    if isinstance(start, bool) or not isinstance(start, int | np.integer):
        raise ValueError(f"start must be an integer, got {start!r}")


def generator(seed: int, block: int = 0) -> np.random.Generator:
    """The random generator of a feature map, one per block of states.

    A stream of its own: an environment reset with the same seed draws from SeedSequence(seed).
    """
    return np.random.default_rng([seed, zlib.crc32(b"features"), block])


def read_only(array: FloatArray) -> FloatArray:
    """The array itself, closed for writing."""
    array.setflags(write=False)
    return array
