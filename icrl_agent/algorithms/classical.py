"""Classical policy-evaluation estimators on one recorded history: plain float64 NumPy.

Every function takes a history in column form: ``states`` (n + 1,) integers, ``rewards`` (n,) where rewards[j] is
paid on leaving column j, and two optional arrays of length n + 1: ``source_mask`` (True where a column starts a
real transition to the next column; None = all but the last) and ``continues`` (0 where that transition terminated;
None = all 1). It returns float64 (n_states,) in units of reward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "batch_td",
    "certainty_equivalence",
    "linear_td",
    "lstd",
    "monte_carlo",
    "tabular_td",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
StepSize = float | Callable[[int], float]


class _Transitions(NamedTuple):
    state: IntArray
    reward: FloatArray
    next_state: IntArray
    continues: FloatArray
    column: IntArray


def tabular_td(
    states: ArrayLike,
    rewards: ArrayLike,
    gamma: float,
    n_states: int,
    *,
    continues: ArrayLike | None = None,
    source_mask: ArrayLike | None = None,
    step_size: StepSize = 0.1,
) -> FloatArray:
    """TD(0), one pass from v = 0: v(s) += step_size(k) (r + gamma c v(s') - v(s)) for transition k = 0, 1, ...

    Source: Sutton (1988).

    >>> tabular_td([0, 1, 0], [1.0, 0.0], 0.5, 2, step_size=0.5)
    array([0.5  , 0.125])
    """
    return linear_td(
        states, rewards, gamma, n_states, continues=continues, source_mask=source_mask, step_size=step_size
    )


def linear_td(
    states: ArrayLike,
    rewards: ArrayLike,
    gamma: float,
    n_states: int,
    *,
    continues: ArrayLike | None = None,
    source_mask: ArrayLike | None = None,
    features: ArrayLike | None = None,
    step_size: StepSize = 0.1,
) -> FloatArray:
    """Linear TD(0), one pass from w = 0: w += step_size(k) (r + gamma c x(s')w - x(s)w) x(s); returns X w.

    Args:
        states, rewards, gamma, n_states, continues, source_mask: the history, see the module's docstring.
        features: X, shape (n_states, d); None = one-hot.
        step_size: a number, or a function of the transition's number k = 0, 1, ...

    Source: Sutton (1988). Append a constant feature where a bias is wanted.

    >>> linear_td([0, 1], [1.0], 0.9, 2, features=[[1.0], [2.0]], step_size=0.1)
    array([0.1, 0.2])
    """
    t = _transitions(states, rewards, gamma, n_states, continues, source_mask)
    X = _features(features, n_states)
    if not callable(step_size):
        _check_step(step_size)
    step = step_size if callable(step_size) else lambda _k: step_size
    w = np.zeros(X.shape[1])
    for k in range(len(t.state)):
        x_tm1 = X[t.state[k]]
        delta_t = t.reward[k] + gamma * t.continues[k] * (X[t.next_state[k]] @ w) - x_tm1 @ w
        w += step(k) * delta_t * x_tm1
    return np.asarray(X @ w)


def batch_td(
    states: ArrayLike,
    rewards: ArrayLike,
    gamma: float,
    n_states: int,
    *,
    continues: ArrayLike | None = None,
    source_mask: ArrayLike | None = None,
    step_size: float = 1.0,
    n_iterations: int = 1000,
) -> FloatArray:
    """Tabular batch TD from v = 0: v(s) += step_size * mean of delta over the visits of s, all states at once.

    States never left stay at 0. Converges to certainty equivalence with zero fill.

    >>> batch_td([0, 0], [1.0], 0.5, 1, n_iterations=60).round(6)
    array([2.])
    """
    if n_iterations < 0:
        raise ValueError(f"n_iterations must be at least 0, got {n_iterations}")
    _check_step(step_size)
    t = _transitions(states, rewards, gamma, n_states, continues, source_mask)
    visits = np.maximum(np.bincount(t.state, minlength=n_states), 1)
    v = np.zeros(n_states)
    for _ in range(n_iterations):
        delta = t.reward + gamma * t.continues * v[t.next_state] - v[t.state]
        v = v + step_size * np.bincount(t.state, delta, n_states) / visits
    return v


def lstd(
    states: ArrayLike,
    rewards: ArrayLike,
    gamma: float,
    n_states: int,
    *,
    continues: ArrayLike | None = None,
    source_mask: ArrayLike | None = None,
    features: ArrayLike | None = None,
    ridge: float = 1e-3,
) -> FloatArray:
    """Least-squares TD: w solves (sum x (x - gamma c x')' + ridge I) w = sum x r; returns X w.

    w lies in the span of the features of the states that were left, as it does for every ridge > 0; ridge 0 is the
    limit of small ridges (least squares within that span). ``features`` as in ``linear_td``.
    Source: Bradtke and Barto (1996); Boyan (1999).

    >>> lstd([0, 0], [1.0], 0.5, 1, ridge=0.0).round(6)
    array([2.])
    """
    if not ridge >= 0:
        raise ValueError(f"ridge must be at least 0, got {ridge}")
    t = _transitions(states, rewards, gamma, n_states, continues, source_mask)
    X = _features(features, n_states)
    # Orthonormal rows that span the features of the states left.
    _, singular, rows = np.linalg.svd(X[np.unique(t.state)], full_matrices=False)
    basis = rows[singular > max(X.shape) * np.finfo(np.float64).eps * singular.max(initial=0.0)]
    Y = X @ basis.T
    y, y_next = Y[t.state], Y[t.next_state]
    A = y.T @ (y - gamma * t.continues[:, None] * y_next) + ridge * np.eye(len(basis))
    return np.asarray(Y @ np.linalg.lstsq(A, y.T @ t.reward, rcond=None)[0])


def certainty_equivalence(
    states: ArrayLike,
    rewards: ArrayLike,
    gamma: float,
    n_states: int,
    *,
    continues: ArrayLike | None = None,
    source_mask: ArrayLike | None = None,
    never_left: Literal["mean", "zero", "nan"] = "mean",
) -> FloatArray:
    """Exact values of the empirical process: v_L = (I - gamma P_LL)^-1 (r_L + gamma P_LN v_N).

    L are the states left at least once, with their empirical transitions and mean rewards; N the others, which the
    data say nothing about, so their value v_N is a choice.

    Args:
        states, rewards, gamma, n_states, continues, source_mask: the history, see the module's docstring.
        never_left: "mean" gives N the value mean(r) / (1 - gamma), "zero" gives 0, "nan" solves as "mean" and
            reports N as NaN. States that only terminated transitions enter get 0 in every case.

    Raises:
        ValueError: for gamma 1 where the empirical process does not surely end, or "mean" has states to fill.

    >>> certainty_equivalence([0, 0, 1], [1.0, 1.0], 0.5, 3, never_left="zero").round(4)
    array([1.3333, 0.    , 0.    ])
    """
    if never_left not in ("mean", "zero", "nan"):
        raise ValueError(f"never_left must be 'mean', 'zero' or 'nan', got {never_left!r}")
    t = _transitions(states, rewards, gamma, n_states, continues, source_mask)
    visits = np.bincount(t.state, minlength=n_states)
    left = visits > 0
    P = np.zeros((n_states, n_states))
    np.add.at(P, (t.state, t.next_state), t.continues)
    P[left] /= visits[left, None]
    r = np.bincount(t.state, t.reward, n_states) / np.maximum(visits, 1)
    only_terminal = ~left & np.isin(np.arange(n_states), t.next_state[t.continues == 0])
    only_terminal &= ~np.isin(np.arange(n_states), t.next_state[t.continues > 0])
    unknown = ~left & ~only_terminal
    v = np.zeros(n_states)
    if never_left != "zero" and len(t.state):
        if gamma == 1 and unknown.any():
            raise ValueError("never_left='mean' fills with mean(r) / (1 - gamma), which needs gamma < 1")
        v[unknown] = t.reward.mean() / (1 - gamma) if unknown.any() else 0.0
    P_LL = P[np.ix_(left, left)]
    if gamma == 1 and left.any() and np.abs(np.linalg.eigvals(P_LL)).max() > 1 - 1e-9:
        raise ValueError("gamma 1 needs an empirical process that surely ends: some recorded states never leave")
    v[left] = np.linalg.solve(np.eye(len(P_LL)) - gamma * P_LL, r[left] + gamma * P[np.ix_(left, ~left)] @ v[~left])
    if never_left == "nan":
        v[unknown] = np.nan
    return v


def monte_carlo(
    states: ArrayLike,
    rewards: ArrayLike,
    gamma: float,
    n_states: int,
    *,
    continues: ArrayLike | None = None,
    source_mask: ArrayLike | None = None,
) -> FloatArray:
    """Every-visit Monte Carlo: the mean of the discounted returns that followed the visits of a state.

    A return that the history cuts (its end, a truncation) is used as far as it goes: what would have come later
    counts as 0, which pulls late visits towards 0 by up to gamma^(steps left) |v|. States never left get 0.

    >>> monte_carlo([0, 1, 2], [1.0, 2.0], 0.5, 3, continues=[1, 0, 1])
    array([2., 2., 0.])
    """
    t = _transitions(states, rewards, gamma, n_states, continues, source_mask)
    returns = np.zeros(len(t.state))
    following, following_column = 0.0, -1
    for k in range(len(t.state) - 1, -1, -1):
        joined = t.column[k] + 1 == following_column
        returns[k] = t.reward[k] + (gamma * t.continues[k] * following if joined else 0.0)
        following, following_column = returns[k], t.column[k]
    visits = np.maximum(np.bincount(t.state, minlength=n_states), 1)
    return np.asarray(np.bincount(t.state, returns, n_states) / visits)


def _check_step(step_size: float) -> None:
    if not np.isfinite(step_size):
        raise ValueError(f"step_size must be a finite number, got {step_size}")


def _transitions(
    states: ArrayLike,
    rewards: ArrayLike,
    gamma: float,
    n_states: int,
    continues: ArrayLike | None,
    source_mask: ArrayLike | None,
) -> _Transitions:
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be a number in [0, 1], got {gamma}")
    s, r = np.asarray(states), np.asarray(rewards, dtype=np.float64)
    if s.ndim != 1 or not np.issubdtype(s.dtype, np.integer) or r.shape != (len(s) - 1,):
        raise ValueError(f"states (n + 1,) integers go with rewards (n,), got {s.dtype} {s.shape} and {r.shape}")
    if not np.isfinite(r).all():
        raise ValueError(f"rewards must be finite numbers, rewards[{np.flatnonzero(~np.isfinite(r))[0]}] is not")
    if (s < 0).any() or (s >= n_states).any():
        raise ValueError(f"states must lie in 0 .. {n_states - 1}, got {s[(s < 0) | (s >= n_states)][0]}")
    c = np.ones(len(s)) if continues is None else np.asarray(continues, dtype=np.float64)
    is_source = np.arange(len(s)) < len(s) - 1 if source_mask is None else np.asarray(source_mask, dtype=bool)
    if c.shape != s.shape or is_source.shape != s.shape or is_source[-1]:
        raise ValueError(f"continues and source_mask must have shape {s.shape}, the last column being no source")
    column = np.flatnonzero(is_source)
    return _Transitions(s[column], r[column], s[column + 1], c[column], column)


def _features(features: ArrayLike | None, n_states: int) -> FloatArray:
    X = np.eye(n_states) if features is None else np.asarray(features, dtype=np.float64)
    if X.ndim != 2 or len(X) != n_states:
        raise ValueError(f"features must have shape ({n_states}, d), got {X.shape}")
    if not np.isfinite(X).all():
        raise ValueError("features must be finite numbers")
    return X
