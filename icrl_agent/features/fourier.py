"""Random Fourier features of a vector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from icrl_agent.features._checks import FloatArray, check_positive, check_seed, generator, read_only

__all__ = ["AUTO", "CONTEXT", "MEDIAN", "RandomFourier"]

#: Stand for what is found in the context when it is there: mean and standard deviation of the observations left,
#: the median distance between two of them, the lengthscale that held-out returns choose.
CONTEXT: Literal["context"] = "context"
MEDIAN: Literal["median"] = "median"
AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True)
class RandomFourier:
    """Random Fourier features of a vector (or of a state's index): inner products approximate a Gaussian kernel.

    With z = (observation - shift) / scale and frequencies w_i ~ N(0, I) / lengthscale,

        x(o) = (cos w_1'z, sin w_1'z, cos w_2'z, sin w_2'z, ...) / norm,    |x(o)| = 1,
        <x(o), x(o')>  is about  exp(-|z - z'|^2 / (2 lengthscale^2)).

    Neighbouring observations therefore share what is learnt about them, which random directions never do.
    Source: Rahimi and Recht (2007), "Random Features for Large-Scale Kernel Machines", with cosine-sine pairs
    so that the norm is exactly 1.

    Args:
        shift: number or vector subtracted from an observation, observation units; "context" = the mean of the
            observations that the context's transitions leave.
        scale: positive number or vector it is divided by, observation units; "context" = their standard deviation.
        dim: length of a feature vector, at least 1; even numbers use whole pairs.
        lengthscale: distance in scaled units over which the kernel falls to exp(-1/2); positive. "median" = the
            median distance between two observations of the context; "auto" = chosen among multiples of it by
            held-out returns (``icrl_agent.selection``).
        seed: non-negative integer; picks the frequencies.

    Raises:
        ValueError: for a size, scale or lengthscale that is not positive.

    >>> x = RandomFourier(shift=0.0, scale=1.0, dim=4096, lengthscale=1.0, seed=0)([0, 1, 5])
    >>> (x @ x.T).round(1)[0, :2].tolist()  # exp(-1/2) is 0.61
    [1.0, 0.6]
    """

    shift: float | tuple[float, ...] | Literal["context"]
    scale: float | tuple[float, ...] | Literal["context"]
    dim: int
    lengthscale: float | Literal["median", "auto"] = 1.0
    seed: int = 0
    kind: ClassVar[str] = "random_fourier"

    def __post_init__(self) -> None:
        check_positive(dim=self.dim)
        for name in ("shift", "scale"):
            given = getattr(self, name)
            if isinstance(given, str):
                if given != CONTEXT:
                    raise ValueError(f"{name} must be numbers or {CONTEXT!r}, got {given!r}")
                continue
            value = np.asarray(given, dtype=np.float64)
            if value.ndim > 1 or not np.isfinite(value).all() or (name == "scale" and (value <= 0).any()):
                raise ValueError(f"{name} must be a finite{' positive' if name == 'scale' else ''} number or vector")
            object.__setattr__(self, name, float(value) if value.ndim == 0 else tuple(value.tolist()))
        number = isinstance(self.lengthscale, int | float | np.number) and not isinstance(self.lengthscale, bool)
        if self.lengthscale not in (MEDIAN, AUTO) and not (number and 0 < self.lengthscale < math.inf):
            raise ValueError(f"lengthscale must be a positive number, {MEDIAN!r} or {AUTO!r}, got {self.lengthscale!r}")
        check_seed(self.seed)

    @property
    def is_fitted(self) -> bool:
        """Whether all numbers are there, so that the map can be called."""
        return not any(isinstance(value, str) for value in (self.shift, self.scale, self.lengthscale))

    def __call__(self, observations: ArrayLike) -> FloatArray:
        """Map observations of shape (batch,) or (batch, k) to float64 features (batch, dim).

        Raises:
            ValueError: if an observation is not finite, its length differs from that of shift or scale, or the map
                still waits for a context (``fit_fourier`` gives it one).
        """
        if not self.is_fitted:
            raise ValueError(
                "these features take shift, scale or lengthscale from a context: give numbers, or fit them with"
                " fit_fourier"
            )
        raw = np.asarray(observations, dtype=np.float64)
        if raw.ndim == 0 or raw.size == 0:
            raise ValueError(f"observations must be a batch with at least one number, got shape {raw.shape}")
        flat = raw.reshape(len(raw), -1)
        for name in ("shift", "scale"):
            size = np.size(getattr(self, name))
            if size not in (1, flat.shape[1]):
                raise ValueError(f"observations have {flat.shape[1]} numbers each, {name} has {size}")
        if not np.isfinite(flat).all():
            row, column = np.argwhere(~np.isfinite(flat))[0]
            raise ValueError(f"observation {row} is not finite in dimension {column}: {flat[row, column]}")
        scaled = (flat - np.asarray(self.shift, np.float64)) / np.asarray(self.scale, np.float64)
        phase = scaled @ _frequencies((self.dim + 1) // 2, flat.shape[1], self.seed).T / float(self.lengthscale)
        pairs = np.stack([np.cos(phase), np.sin(phase)], axis=2).reshape(len(flat), -1)[:, : self.dim]
        return np.asarray(pairs / np.linalg.norm(pairs, axis=1, keepdims=True))

    def spec(self) -> dict[str, Any]:
        """Return the JSON-able description that ``from_spec`` reads."""

        def plain(value: float | str | tuple[float, ...]) -> float | str | list[float]:
            return list(value) if isinstance(value, tuple) else value

        return {
            "kind": self.kind,
            "shift": plain(self.shift),
            "scale": plain(self.scale),
            "dim": int(self.dim),
            "lengthscale": self.lengthscale if isinstance(self.lengthscale, str) else float(self.lengthscale),
            "seed": int(self.seed),
        }


@lru_cache(maxsize=64)
def _frequencies(n_pairs: int, input_dim: int, seed: int) -> FloatArray:
    # One row per pair, so that a larger dim only appends features.
    return read_only(generator(seed).standard_normal((n_pairs, input_dim)))
