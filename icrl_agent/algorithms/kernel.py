"""The attention kernel summed by state: one layer as an affine map of the state values, and what follows from it.

With the softmax weights K of a context and S distinct feature vectors,

    M_n(s, s') = sum_k K(S_{k-1}, s) 1{S_{k-1} = s'}            attention of s to the visits of s'
    P_n(s, s') = sum_k K(S_{k-1}, s) continues_k 1{S_k = s'}
    r_n(s)     = sum_k K(S_{k-1}, s) R_k

one layer of weighted softmax TD is v <- v + step_size (r_n + (gamma P_n - M_n) v), whatever n is.
Source: Xie et al. (2026), eqs 20-23; the empirical forms with episodes and the |L| x |L| matrix are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icrl_agent.algorithms.weighted_softmax_td import Score, _columns, _query_rows, inner_product, softmax_weights

__all__ = [
    "KernelDiagonality",
    "LayerMap",
    "assumption_margin",
    "empirical_kernel",
    "fixed_point",
    "kernel_diagonality",
    "population_kernel",
    "spectral_radius",
]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LayerMap:
    """One layer on one context, as sums over the S distinct feature vectors.

    Args:
        states: the distinct feature vectors in order of first appearance, (S, d).
        M: attention by source state, (S, S); rows sum to 1 (to 0 without any source).
        P: attention by successor state, terminated transitions left out, (S, S).
        r: attention-weighted reward, (S,).
        left: indices of the states that were left at least once, (L,).
        transition: their empirical transition probabilities, terminated ones left out, (L, S).
        reward: their mean rewards, (L,).
        column_state: index into ``states`` of every column, (n + 1 + m,), queries last.
    """

    states: FloatArray
    M: FloatArray
    P: FloatArray
    r: FloatArray
    left: NDArray[np.intp]
    transition: FloatArray
    reward: FloatArray
    column_state: NDArray[np.intp]


class KernelDiagonality(NamedTuple):
    """How diagonal an attention kernel is, over the states that were left at least once."""

    mean: float
    minimum: float


def empirical_kernel(
    features: ArrayLike,
    rewards: ArrayLike,
    *,
    score: Score | None = None,
    continues: ArrayLike | None = None,
    source_mask: ArrayLike | None = None,
    queries: ArrayLike | None = None,
) -> LayerMap:
    """Sum a context's softmax weights by state: M_n, P_n, r_n.

    Arguments and errors as in ``weighted_softmax_td``. Every distinct feature vector counts as a state, final
    observations and queries included.

    >>> empirical_kernel([[1.0], [2.0], [1.0]], [5.0, 7.0], score=lambda q, s: 0 * q @ s.T).M
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    x, r, c, sources = _columns(features, rewards, continues, source_mask)
    if queries is not None:
        x = np.concatenate([x, _query_rows(queries, x.shape[1])])
    states, column_state = _distinct_rows(x)
    n_states = len(states)
    source_state, next_state = column_state[sources], column_state[sources + 1]
    weights = softmax_weights((score or inner_product)(states, x[sources]))
    to_source = np.zeros((len(sources), n_states))
    to_source[np.arange(len(sources)), source_state] = 1.0
    to_next = np.zeros((len(sources), n_states))
    to_next[np.arange(len(sources)), next_state] = c[sources]
    visits = to_source.sum(axis=0)
    left = np.flatnonzero(visits)
    return LayerMap(
        states=states,
        M=weights @ to_source,
        P=weights @ to_next,
        r=weights @ r[sources],
        left=left,
        transition=(to_source.T @ to_next)[left] / visits[left, None],
        reward=(to_source.T @ r[sources])[left] / visits[left],
        column_state=column_state,
    )


def population_kernel(features: ArrayLike, mu: ArrayLike, sharpness: float = 1.0) -> FloatArray:
    """Kernel of an infinitely long context: M_pi(s, s') proportional to mu(s') exp(sharpness <x(s), x(s')>).

    Args:
        features: x, shape (S, d).
        mu: stationary distribution, shape (S,); states of probability 0 get column 0.
        sharpness: factor of the inner product.

    Source: Xie et al. (2026), eq 20.

    >>> population_kernel(np.eye(2), [0.5, 0.5], sharpness=0.0)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    x = np.asarray(features, dtype=np.float64)
    with np.errstate(divide="ignore"):
        log_mu = np.log(np.asarray(mu, dtype=np.float64))
    return softmax_weights(sharpness * inner_product(x, x) + log_mu)


def kernel_diagonality(M: ArrayLike, left: ArrayLike | None = None) -> KernelDiagonality:
    """Kernel diagonality mean (KDM): mean and minimum of M(s, s) over the states that were left at least once.

    Args:
        M: attention kernel, shape (S, S).
        left: indices of the states left, as in ``LayerMap``. None = those whose column is not 0 throughout, which
            misses a state that no attention reaches.

    Returns:
        Mean and minimum, in [0, 1]; NaN if no state was left.

    >>> kernel_diagonality([[0.9, 0.1, 0.0], [0.3, 0.7, 0.0], [0.5, 0.5, 0.0]])
    KernelDiagonality(mean=0.8, minimum=0.7)
    """
    kernel = np.asarray(M, dtype=np.float64)
    diagonal = np.diagonal(kernel)[(kernel > 0).any(axis=0) if left is None else np.asarray(left)]
    if not diagonal.size:
        return KernelDiagonality(float("nan"), float("nan"))
    return KernelDiagonality(float(diagonal.mean()), float(diagonal.min()))


def assumption_margin(M: ArrayLike, gamma: float, left: ArrayLike | None = None) -> float:
    """C = min_s M(s, s) - (1 + gamma) / 2, over the states that were left; Assumption 5.1 holds where it is positive.

    ``M`` and ``left`` as in ``kernel_diagonality``. The sup-norm of the layer map is then at most 1 - 2 C for the
    population kernel. Source: Xie et al. (2026).

    >>> round(assumption_margin([[1.0, 0.0], [0.0, 1.0]], gamma=0.9), 3)
    0.05
    """
    return kernel_diagonality(M, left).minimum - (1.0 + gamma) / 2.0


def spectral_radius(layer_map: LayerMap, gamma: float, step_size: float = 1.0) -> float:
    """Spectral radius of I - step_size (E - gamma P_hat) K, the map of the TD errors from layer to layer.

    L are the states left at least once, K = M_n[:, L] (S x L), E the identity's rows of L, P_hat (L x S) the
    empirical transitions. Iterating from v = 0 converges when it is below 1. NaN without any transition.

    >>> one_state = empirical_kernel([[1.0], [1.0]], [2.0])
    >>> spectral_radius(one_state, gamma=0.9)
    0.9
    """
    if not len(layer_map.left):
        return float("nan")
    _, backup = _error_map(layer_map, gamma)
    return float(np.abs(np.linalg.eigvals(np.eye(len(backup)) - step_size * backup)).max())


def fixed_point(layer_map: LayerMap, gamma: float) -> FloatArray:
    """Values of an infinitely deep transformer: v = K u with u = [(E - gamma P_hat) K]^-1 r_hat, every state included.

    It is the limit from v = 0 wherever ``spectral_radius`` is below 1 for some step size. All 0 without transitions.

    Returns:
        float64 (S,), ordered like ``layer_map.states``.

    Raises:
        ValueError: if the system is singular.

    >>> fixed_point(empirical_kernel([[1.0], [1.0]], [2.0]), gamma=0.5)
    array([4.])
    """
    if not len(layer_map.left):
        return np.zeros(len(layer_map.states))
    K, backup = _error_map(layer_map, gamma)
    try:
        return np.asarray(K @ np.linalg.solve(backup, layer_map.reward))
    except np.linalg.LinAlgError as error:
        raise ValueError("the layers have no unique fixed point on this context: the system is singular") from error


def _error_map(layer_map: LayerMap, gamma: float) -> tuple[FloatArray, FloatArray]:
    """Return K = M[:, L] and (E - gamma P_hat) K."""
    K = layer_map.M[:, layer_map.left]
    return K, K[layer_map.left] - gamma * layer_map.transition @ K


def _distinct_rows(x: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """Distinct rows in order of first appearance, and the index of every row among them."""
    _, first, inverse = np.unique(x, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return x[first[order]], rank[inverse.reshape(-1)]
