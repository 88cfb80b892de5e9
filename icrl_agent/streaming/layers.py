"""Looped layers on sums by state, in the space of the TD errors: what every query can read its value from.

With N(u), R(u), C(u, u') the transitions that left u, their rewards and their continues by successor, and

    K(s, u) = exp(score(s, u)) / sum_w exp(score(s, w)) N(w)       attention of s to one transition that leaves u,
    delta_l = w_reward R + (w_target gamma C + w_current diag N) v_l        TD errors of layer l, summed by state,

the layer is v_{l+1} = v_l + K delta_l, so that from v_0 = 0

    v_L = K D_L     with     D_{l+1} = (I + B K) D_l + w_reward R,     B = w_target gamma C + w_current diag N.

D_L is one number per state and knows no query: any s, seen or not, has the value K(s, :) D_L. Layers with weights of
their own have one K and one delta each instead of a sum. Source: Xie et al. (2026), eqs 8-9 and 20; the error form is
ours. All arrays are float64; ``...`` are batch axes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ErrorSums", "LayerWeights", "attention_by_state", "error_sums", "repeat_affine", "values_by_errors"]

FloatArray = NDArray[np.float64]

FIXED_POINT: Literal["fixed_point"] = "fixed_point"
#: A number of layers, or the limit of infinitely many.
Depth = int | Literal["fixed_point"]

#: Up to this many states I + B K is formed: a layer is then one product, and L layers log2(L) squarings.
LARGEST_SQUARED = 32
#: Up to this many states the limit of infinitely many layers is solved for directly.
LARGEST_SOLVED = 500
#: Beyond, layers are iterated until none changes a value by more than this part of the largest.
RELATIVE_CHANGE, MOST_LAYERS = 1e-12, 100_000


class LayerWeights(NamedTuple):
    """What of a model acts: A's feature block and V's three entries, once (looped) or for every layer."""

    attention: FloatArray
    """(W, d, d); score(query, source) = x(source)' A x(query)."""
    entries: FloatArray
    """(W, 3): weights of reward, target memory and current memory."""

    @property
    def shared(self) -> bool:
        """Whether all layers share one pair."""
        return len(self.attention) == 1


class ErrorSums(NamedTuple):
    """TD errors summed by state: over all layers for looped weights, else layer by layer."""

    errors: FloatArray
    """D, (W, ..., S)."""
    n_layers: Depth
    """Layers that ran."""


def attention_by_state(scores: FloatArray, counts: FloatArray) -> FloatArray:
    """K(s, u), the attention of s to one transition that leaves u; rows weighted by the counts sum to 1.

    Args:
        scores: (..., m, S).
        counts: N, (..., S); columns of states never left get 0, and so does a context without transitions.

    >>> attention_by_state(np.zeros((1, 3)), np.array([3.0, 1.0, 0.0]))
    array([[0.25, 0.25, 0.  ]])
    """
    sources = np.where(counts[..., None, :] > 0, scores, -np.inf)
    top = sources.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(sources - np.where(top > -np.inf, top, 0.0))
    normaliser = exponentials @ counts[..., None]
    return np.asarray(exponentials / np.where(normaliser > 0, normaliser, 1.0))


def repeat_affine(T: FloatArray, b: FloatArray, n: int) -> FloatArray:
    """v_n of v_0 = 0, v_{l+1} = T v_l + b, in log2(n) squarings of the map; T (..., S, S), b (..., S).

    >>> repeat_affine(np.array([[0.5]]), np.array([1.0]), 3)
    array([1.75])
    """
    power, offset = T, b[..., None]
    v = np.zeros_like(offset)
    while True:
        if n & 1:
            v = power @ v + offset
        n >>= 1
        if not n:
            return np.asarray(v[..., 0])
        offset = power @ offset + offset
        power = power @ power


def error_sums(
    K: FloatArray,
    counts: FloatArray,
    reward_sum: FloatArray,
    successors: FloatArray,
    entries: FloatArray,
    gamma: float,
    n_layers: Depth,
    tolerance: float | None = None,
) -> ErrorSums:
    """TD errors by state after all layers, such that K(s, :) D is the value of any s.

    Args:
        K: ``attention_by_state`` of the S states, (W, ..., S, S).
        counts: N, (..., S).
        reward_sum: R, (..., S).
        successors: C, (..., S, S).
        entries: V's, (W, 3).
        gamma: discount factor in [0, 1].
        n_layers: depth, or "fixed_point" (looped weights only, no batch axes).
        tolerance: stop after a layer that changes no value of a state in the context above it; None = run all.

    Raises:
        ValueError: without a fixed point; the spectral radius is named.
    """
    (w_reward, w_target, w_current), S = entries[0], counts.shape[-1]
    squared = len(K) == 1 and tolerance is None and S <= LARGEST_SQUARED
    if squared or n_layers == FIXED_POINT:
        B = w_target * gamma * successors + w_current * counts[..., None, :] * np.eye(S)
        if n_layers == FIXED_POINT:
            return ErrorSums(_limit(K[0], B, w_reward * reward_sum)[None], FIXED_POINT)
        return ErrorSums(repeat_affine(np.eye(S) + B @ K[0], w_reward * reward_sum, n_layers)[None], n_layers)
    touched = (counts > 0) | (successors > 0).any(axis=-2)
    errors = np.zeros((len(K), *counts.shape))
    values = np.zeros_like(counts)
    for layer in range(n_layers):
        at = layer % len(K)
        w_reward, w_target, w_current = entries[at]
        delta = w_reward * reward_sum + w_target * gamma * _times(successors, values) + w_current * counts * values
        errors[at] += delta
        change = _times(K[at], delta)
        values += change
        if tolerance is not None and np.abs(change[touched]).max(initial=0.0) <= tolerance:
            return ErrorSums(errors, layer + 1)
    return ErrorSums(errors, n_layers)


def values_by_errors(K: FloatArray, errors: FloatArray) -> FloatArray:
    """v(s) = sum over the layers' weights w of K_w(s, :) D_w: K (W, ..., m, S), errors (W, ..., S) -> (..., m)."""
    return np.asarray(_times(K, errors).sum(axis=0))


def _times(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    return np.asarray((matrix @ vector[..., None])[..., 0])


def _limit(K: FloatArray, B: FloatArray, b: FloatArray) -> FloatArray:
    """D of infinitely many layers, (S,): -B K D = b on the states that were left, 0 elsewhere."""
    errors = np.zeros(len(b))
    left = np.flatnonzero(K.any(axis=0))
    if len(b) > LARGEST_SOLVED:
        return _iterated(K, B, b)
    if len(left):
        backup = B[left] @ K[:, left]
        radius = float(np.abs(np.linalg.eigvals(np.eye(len(left)) + backup)).max())
        if not radius < 1:
            raise _diverges(radius)
        errors[left] = np.linalg.solve(-backup, b[left])
    return errors


def _iterated(K: FloatArray, B: FloatArray, b: FloatArray) -> FloatArray:
    errors, values, before, growth = np.zeros_like(b), np.zeros_like(b), np.inf, np.nan
    for _ in range(MOST_LAYERS):
        with np.errstate(over="ignore", invalid="ignore"):
            delta = B @ values + b
            change = K @ delta
        errors, values = errors + delta, values + change
        size = float(np.abs(change).max())
        if not np.isfinite(size):
            break
        growth = size / before if before > 0 else growth
        before = size
        if size <= RELATIVE_CHANGE * np.abs(values).max():
            return errors
    raise _diverges(growth)


def _diverges(radius: float) -> ValueError:
    return ValueError(
        f"the layers have no limit on this context: the spectral radius of a layer is {radius:.4g}, it must be below 1"
    )
