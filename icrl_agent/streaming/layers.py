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

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Attention",
    "LayerWeights",
    "Sums",
    "attend",
    "attention_by_state",
    "endless",
    "error_sums",
    "no_limit",
    "repeat_affine",
]

FloatArray = NDArray[np.float64]

FIXED_POINT: Literal["fixed_point"] = "fixed_point"
#: A number of layers, or the limit of infinitely many.
Depth = int | Literal["fixed_point"]

#: Scores that differ by less share their exponentials between contexts: the smallest is far above underflow.
LARGEST_SPREAD = 300.0
#: Up to this many states I + B K is formed: a layer is then one product, and twice as many layers its square.
LARGEST_SQUARED = 64
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


class Sums(NamedTuple):
    """Transitions summed by state."""

    counts: FloatArray
    """N, (..., S)."""
    rewards: FloatArray
    """R, (..., S)."""
    successors: FloatArray
    """C, (..., S, S)."""


class Attention(NamedTuple):
    """K(s, u) = exponentials(s, u) / normaliser(s), the attention of s to one transition that leaves u."""

    exponentials: FloatArray
    """(m, S) where all contexts share them, else (..., m, S)."""
    normaliser: FloatArray
    """(..., m)."""


def attention_by_state(scores: FloatArray, counts: FloatArray) -> Attention:
    """Attention of m queries to the states that transitions leave: (m, S) scores, counts N (..., S).

    Columns of states never left mean nothing: their TD errors are 0.

    >>> attention_by_state(np.zeros((1, 2)), np.array([3.0, 1.0]))
    Attention(exponentials=array([[1., 1.]]), normaliser=array([4.]))
    """
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if scores.size and (top - scores.min(axis=-1, keepdims=True)).max() > LARGEST_SPREAD:
        scores = np.where(counts[..., None, :] > 0, scores, -np.inf)
        top = scores.max(axis=-1, keepdims=True)
        top = np.where(top > -np.inf, top, 0.0)
    exponentials = np.exp(scores - top)
    normaliser = _times(exponentials, counts)
    return Attention(exponentials, np.where(normaliser > 0, normaliser, 1.0))


def attend(attentions: Sequence[Attention], errors: FloatArray) -> FloatArray:
    """v(s) = sum over the layers' weights w of K_w(s, :) D_w: errors (W, ..., S) -> (..., m)."""
    with np.errstate(over="ignore", invalid="ignore"):
        terms = [_times(a.exponentials, D) / a.normaliser for a, D in zip(attentions, errors, strict=True)]
        return np.asarray(sum(terms[1:], start=terms[0]))


def repeat_affine(T: FloatArray, b: FloatArray, n: int) -> FloatArray:
    """v_n of v_0 = 0, v_{l+1} = T v_l + b, by squaring the map: T (..., S, S), b (..., S).

    In a batch a product of two matrices costs about as much as 16 with a vector.

    >>> repeat_affine(np.array([[0.5]]), np.array([1.0]), 3)
    array([1.75])
    """
    b = b[..., None]
    v, few = np.zeros_like(b), 1 if T.ndim == 2 else 16
    while n > few:
        if n & 1:
            v = T @ v + b
        b = T @ b + b
        T = T @ T
        n >>= 1
    for _ in range(n):
        v = T @ v + b
    return np.asarray(v[..., 0])


def error_sums(
    attentions: Sequence[Attention],
    sums: Sums,
    entries: FloatArray,
    gamma: float,
    n_layers: Depth,
    tolerance: float | None = None,
) -> FloatArray:
    """TD errors by state through all layers, such that K(s, :) D is the value of any s.

    Args:
        attentions: of the S states to themselves, W of them.
        sums: of the transitions by state.
        entries: V's, (W, 3).
        gamma: discount factor in [0, 1].
        n_layers: depth, or "fixed_point" (looped weights only).
        tolerance: stop after a layer that changes no value of a state in the context above it, each context of a
            batch by itself; None = run all.

    Returns:
        D, (W, ..., S): summed over all layers for looped weights, else layer by layer.

    Raises:
        ValueError: without a fixed point; the spectral radius is named.
    """
    n_states, looped = sums.counts.shape[-1], len(attentions) == 1
    if not n_states:
        return np.zeros((len(attentions), *sums.counts.shape))
    if n_layers == FIXED_POINT:
        limit = _solved if n_states <= LARGEST_SOLVED else _iterated
        return limit(attentions[0], sums, entries[0], gamma)[None]
    if looped and tolerance is None and n_states <= LARGEST_SQUARED:
        T = _backup(attentions[0], sums, entries[0], gamma)
        _diagonal(T)[...] += 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            return repeat_affine(T, entries[0][0] * sums.rewards, n_layers)[None]
    errors = np.zeros((len(attentions), *sums.counts.shape))
    values = np.zeros_like(sums.counts)
    running = np.ones((*sums.counts.shape[:-1], 1), bool)
    for layer in range(n_layers):
        at = layer % len(attentions)
        delta, change = _layer(attentions[at], sums, entries[at], gamma, values)
        errors[at] += running * delta
        values += running * change
        if tolerance is not None:
            running = running & (_largest(change, sums) > tolerance)
            if not running.any():
                break
    return errors


def _layer(
    attention: Attention, sums: Sums, entries: FloatArray, gamma: float, values: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """TD errors by state, and the change of the values that they make, each (..., S)."""
    w_reward, w_target, w_current = entries
    with np.errstate(over="ignore", invalid="ignore"):
        following = _times(sums.successors, values)
        delta = w_reward * sums.rewards + w_target * gamma * following + w_current * sums.counts * values
        return delta, attend([attention], delta[None])


def _largest(change: FloatArray, sums: Sums) -> FloatArray:
    """Largest change of a state that the context's transitions touch, (..., 1)."""
    touched = (sums.counts > 0) | (sums.successors > 0).any(axis=-2)
    return np.asarray(np.abs(np.where(touched, change, 0.0)).max(axis=-1, initial=0.0, keepdims=True))


def _backup(attention: Attention, sums: Sums, entries: FloatArray, gamma: float) -> FloatArray:
    """B K, (..., S, S)."""
    _, w_target, w_current = entries
    B = w_target * gamma * sums.successors
    _diagonal(B)[...] += w_current * sums.counts
    B /= attention.normaliser[..., None, :]
    if attention.exponentials.ndim == 2:
        return np.asarray(B.reshape(-1, B.shape[-1]) @ attention.exponentials).reshape(B.shape)
    return np.asarray(B @ attention.exponentials)


def _solved(attention: Attention, sums: Sums, entries: FloatArray, gamma: float) -> FloatArray:
    """D of infinitely many layers, (..., S): -B K D = b on the states that were left, 0 elsewhere."""
    left = sums.counts > 0
    # Rows and columns of states never left are 0: they get radius 0, and D = 0.
    backup = _backup(attention, sums, entries, gamma) * left[..., None, :]
    T = backup.copy()
    _diagonal(T)[...] += left
    radius = float(np.abs(np.linalg.eigvals(T)).max(initial=0.0))
    if not radius < 1:
        raise no_limit(radius, gamma)
    _diagonal(backup)[...] -= ~left
    return np.asarray(np.linalg.solve(-backup, (entries[0] * sums.rewards)[..., None])[..., 0])


def _iterated(attention: Attention, sums: Sums, entries: FloatArray, gamma: float) -> FloatArray:
    errors, values, before, growth = np.zeros_like(sums.counts), np.zeros_like(sums.counts), np.inf, np.nan
    for _ in range(MOST_LAYERS):
        delta, change = _layer(attention, sums, entries, gamma, values)
        errors, values = errors + delta, values + change
        size = float(np.abs(change).max(initial=0.0))
        if not np.isfinite(size):
            break
        growth = size / before if before > 0 else growth
        before = size
        if size <= RELATIVE_CHANGE * np.abs(values).max(initial=0.0):
            return errors
    raise no_limit(growth, gamma)


def endless(gamma: float) -> str:
    """What a message without a limit says about gamma."""
    return "; gamma is 1, then every episode must end" if gamma == 1 else ""


def no_limit(radius: float, gamma: float) -> ValueError:
    """The error of infinite depth where a layer's spectral radius is not below 1."""
    return ValueError(
        f"the layers have no limit on this context: the spectral radius of a layer is {radius:.6g}, not below 1:"
        " ask for a number of layers, or sharpen the attention"
        f"{endless(gamma)}"
    )


def _diagonal(matrix: FloatArray) -> FloatArray:
    """A view of the diagonals (..., S) of matrices (..., S, S)."""
    view: FloatArray = np.einsum("...ii->...i", matrix)
    return view


def _times(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Matrices (..., m, S), or one (m, S) for all, times vectors (..., S)."""
    if matrix.ndim == 2:
        return np.asarray(vector @ matrix.T)
    return np.asarray((matrix @ vector[..., None])[..., 0])
