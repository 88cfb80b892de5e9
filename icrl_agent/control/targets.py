"""What a transition's target memory reads, and the layers on sums by pair: the mathematics of in-context control.

With N(u), R(u) the transitions that left pair u and their rewards, K(s, a, u) the attention of any pair to one of them,
and b a bonus (0 unless exploration is optimistic),

    recorded    T(q)(u) = sum over u's transitions of c q(S', A')                     A' the action that was taken next
    expected    T(q)(u) = sum over u's transitions of c sum_a pi(a|S') q(S', a)
    greedy      T(q)(u) = sum over u's transitions of c max_a q(S', a)
    delta_l(u)  = w_reward R(u) + w_target gamma T(q_l + b)(u) + w_current N(u) q_l(u),       q_0 = 0
    q_{l+1}     = q_l + K delta_l

so that q_L = K D_L with D_L the TD errors summed over the layers: any pair, seen or not, has a value. This is
``weighted_softmax_q``, and ``icrl_agent.model.pooled`` on the prompt, whatever the number of transitions. Arrays are
float64; S states of the context, A actions, P pairs that were left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icrl_agent.streaming.layers import FIXED_POINT, MOST_LAYERS, RELATIVE_CHANGE, Attention, Depth, attend, endless

__all__ = [
    "PairSums",
    "Successors",
    "Target",
    "TargetKind",
    "expected_target",
    "greedy_target",
    "pair_errors",
    "recorded_target",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

TargetKind = Literal["recorded", "expected", "greedy"]


class Successors(NamedTuple):
    """Transitions that go on, summed by (pair left, state, action taken next)."""

    source: IntArray
    """Pair that was left, in 0 .. P-1, (k,)."""
    state: IntArray
    """Next state, (k,)."""
    action: IntArray
    """Index of the action taken there, (k,)."""
    continues: FloatArray
    """How many, (k,)."""


class PairSums(NamedTuple):
    """A context summed by pair."""

    pair: IntArray
    """(state, action) of every pair that was left, as the index state * A + action, (P,)."""
    counts: FloatArray
    """N, (P,)."""
    reward_sum: FloatArray
    """R, (P,)."""
    successors: Successors
    """Where its transitions led."""


#: T: values of all pairs (S, A) -> sums by pair (P,).
Target = Callable[[FloatArray], FloatArray]


def recorded_target(successors: Successors, n_pairs: int, q: FloatArray) -> FloatArray:
    """T of the action that was taken next: SARSA, the paper's layer; q (S, A) -> (P,).

    >>> one = Successors(np.array([0]), np.array([0]), np.array([1]), np.array([2.0]))
    >>> q = np.array([[3.0, 1.0]])
    >>> recorded_target(one, 1, q), greedy_target(one, 1, q), expected_target(one, 1, q, np.array([[0.5, 0.5]]))
    (array([2.]), array([6.]), array([4.]))
    """
    return _summed(successors, n_pairs, q[successors.state, successors.action])


def expected_target(successors: Successors, n_pairs: int, q: FloatArray, probabilities: FloatArray) -> FloatArray:
    """T of a policy's own probabilities (S, A): expected SARSA (van Seijen et al., 2009); q (S, A) -> (P,)."""
    return _summed(successors, n_pairs, (probabilities * q).sum(axis=1)[successors.state])


def greedy_target(successors: Successors, n_pairs: int, q: FloatArray) -> FloatArray:
    """T of the best action: Q-learning (Watkins, 1989); q (S, A) -> (P,)."""
    return _summed(successors, n_pairs, q.max(axis=1)[successors.state])


def _summed(successors: Successors, n_pairs: int, q_t: FloatArray) -> FloatArray:
    return np.asarray(np.bincount(successors.source, successors.continues * q_t, n_pairs), np.float64)


def pair_errors(
    attentions: Sequence[Attention],
    sums: PairSums,
    target: Target,
    shape: tuple[int, int],
    entries: FloatArray,
    gamma: float,
    n_layers: Depth,
    bonus: FloatArray | None = None,
    tolerance: float | None = None,
) -> FloatArray:
    """TD errors by pair after all layers, D (W, P) with q = K D.

    Args:
        attentions: of every pair of the context's states (S A) to the pairs that were left (P), W of them.
        sums: of the context.
        target: T.
        shape: (S, A).
        entries: V's, (W, 3).
        gamma: discount factor in [0, 1].
        n_layers: depth, or "fixed_point": until a layer changes no value by more than 1e-12 of the largest.
        bonus: b, (S, A); None = 0.
        tolerance: stop after a layer that changes no value above it; None = run all.

    Raises:
        ValueError: if there is no fixed point.
    """
    most = MOST_LAYERS if n_layers == FIXED_POINT else int(n_layers)
    errors = np.zeros((len(attentions), len(sums.counts)))
    q = np.zeros(shape[0] * shape[1])
    for layer in range(most):
        at = layer % len(attentions)
        w_reward, w_target, w_current = entries[at]
        q_t = q.reshape(shape) if bonus is None else q.reshape(shape) + bonus
        delta = w_reward * sums.reward_sum + w_target * gamma * target(q_t) + w_current * sums.counts * q[sums.pair]
        errors[at] += delta
        step = attend([attentions[at]], delta[None])
        q += step
        if n_layers == FIXED_POINT or tolerance is not None:
            change = float(np.abs(step).max(initial=0.0))
            allowed = tolerance if tolerance is not None else RELATIVE_CHANGE * float(np.abs(q).max(initial=0.0))
            if change <= allowed:
                return errors
            if not np.isfinite(change):
                break
    if n_layers == FIXED_POINT:
        raise ValueError(f"the layers have no limit on this context: their values do not settle{endless(gamma)}")
    return errors
