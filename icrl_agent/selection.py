"""Sharpness and lengthscale without tuning: chosen inside the context, by held-out returns; no gradient, no truth.

The context is cut into blocks of successive transitions (``successive_blocks``), which are dealt to two halves A and
B. The layers, run on A, give values v_A for each candidate theta. Transition t of a block of B has the return

    G_t = R_{t+1} + gamma c_{t+1} G_{t+1},        after the block's last transition G = v_A of the state entered

whose noise A knows nothing of, so that the mean over B of (G_t - v_A(S_t))^2 is the squared error of v_A plus a
variance that hardly depends on theta; the share gamma^k of v_A in a target k transitions before the end is what does
depend. The squared TD error, where the share is gamma everywhere, would favour what is too smooth (double sampling,
Baird 1995). A and B exchange roles. With all n transitions instead of the half's m the variance of the values is m / n
of that, and half the mean squared difference of v_A and v_B estimates it, so candidates are judged by

    U(theta) = mean (G_t - v(S_t))^2 - (1 - m / n) mean (v_A - v_B)^2 / 2

Of the candidates whose U is above the smallest by no more than one standard error of the difference, over blocks, the
sharpest is chosen: what a blunt kernel smears no amount of data mends. That is the one-standard-error rule of Breiman
et al. (1984); holding out returns is the classical way to judge value functions; the pairing and the extrapolation are
ours. Candidates whose layers diverge on a half are out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl_agent.context import Context
from icrl_agent.depth import FIXED_POINT, Depth
from icrl_agent.trails import successive_blocks

__all__ = [
    "DEFAULT_SHARPNESS",
    "FEWEST",
    "LENGTHSCALE_FACTORS",
    "SHARPNESSES",
    "block_returns",
    "held_out_errors",
    "held_out_halves",
    "held_out_values",
    "ranked",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

#: Candidates of sharpness="auto".
SHARPNESSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
#: Candidates of lengthscale="auto", in median distances.
LENGTHSCALE_FACTORS = (0.5, 1.0, 2.0)
#: Contexts of fewer transitions say too little: they get this sharpness, and the median lengthscale.
FEWEST, DEFAULT_SHARPNESS = 64, 8.0
#: Transitions per half times distinct states: what the choice may cost.
LARGEST_MATRIX = 1500 * 3000
#: Share of v_A in the target of a full block's first transition.
LAST_SHARE = 0.1


def held_out_errors(
    context: Context,
    attention: FloatArray,
    sharpnesses: Sequence[float],
    gamma: float,
    step_size: float,
    reward_scale: float,
    n_layers: Depth,
) -> FloatArray:
    """U by block, (len(sharpnesses), blocks), whose sum over blocks is U with the largest reward as unit.

    A candidate whose layers diverge has inf.

    Args:
        context: the transitions, at least 2, merged by state; their order does not matter.
        attention: feature block of A, (d, d), which a sharpness multiplies.
        sharpnesses: the candidates.
        gamma, step_size, reward_scale: of a layer, see ``effective_step``.
        n_layers: depth.
    """
    reward_scale = reward_scale / (float(np.abs(context.rewards).max()) or 1.0)
    halves = held_out_halves(context, gamma)
    inside, outside, squares = [], [], []
    for half, held_out in (halves, halves[::-1]):
        train, test = np.concatenate(half), np.concatenate(held_out)
        last = np.array([block[-1] for block in held_out])
        states = context.source_state[train], context.source_state[test], context.next_state[last]
        values = held_out_values(
            context, train, np.concatenate(states), attention, sharpnesses, gamma, step_size, reward_scale, n_layers
        )
        v_train, v_test, v_end = np.split(values, np.cumsum([len(part) for part in states])[:-1], axis=1)
        squares.append((block_returns(context, held_out, v_end, gamma, reward_scale) - v_test) ** 2)
        inside.append(v_train)
        outside.append(v_test)
    sizes = [len(block) for half in reversed(halves) for block in half]
    left_out = 1 - sum(sizes) / 2 / len(context.rewards)
    # What is held out first is trained on second.
    differences = np.concatenate([outside[0] - inside[1], outside[1] - inside[0]], axis=1)
    by_transition = np.concatenate(squares, axis=1) - left_out * differences**2 / 2
    by_block = np.add.reduceat(by_transition, np.cumsum([0, *sizes[:-1]]), axis=1) / sum(sizes)
    return np.where(np.isfinite(by_block).all(axis=1, keepdims=True), by_block, np.inf)


def ranked(errors: FloatArray, sharpnesses: Sequence[float]) -> IntArray:
    """Order of candidates by the one-standard-error rule: those as good as the best, sharpest first; then by U.

    Args:
        errors: U by block, (C, blocks).
        sharpnesses: of the candidates, (C,).

    >>> ranked(np.array([[1.0, 1.2], [1.1, 0.9], [1.3, 0.8], [4.0, 5.0]]), [1.0, 2.0, 3.0, 4.0]).tolist()
    [2, 1, 0, 3]
    """
    U = errors.sum(axis=1)
    best = int(np.argmin(U))
    with np.errstate(invalid="ignore"):
        differences = errors - errors[best]
        n_blocks = errors.shape[1]
        stderr = differences.std(axis=1, ddof=1) * math.sqrt(n_blocks) if n_blocks > 1 else np.zeros(len(U))
        as_good = differences.sum(axis=1) <= stderr
    as_good[best] = True
    return np.lexsort((np.where(as_good, -np.asarray(sharpnesses), U), ~as_good))


def block_returns(
    context: Context, blocks: Sequence[IntArray], v_end: FloatArray, gamma: float, reward_scale: float
) -> FloatArray:
    """G of every transition of the blocks in their order, (C, m), from values (C, len(blocks)) of where they end."""
    returns = np.empty((len(v_end), sum(map(len, blocks))))
    at = returns.shape[1]
    for block, G in zip(reversed(blocks), v_end.T[::-1], strict=True):
        for t in block[::-1]:
            at -= 1
            G = reward_scale * context.rewards[t] + gamma * context.continues[t] * G
            returns[:, at] = G
    return returns


def held_out_halves(context: Context, gamma: float) -> tuple[list[IntArray], list[IntArray]]:
    """Two disjoint random sets of blocks, the same whatever order the transitions are in."""
    n = len(context.rewards)
    horizon = n if gamma >= 1 else 1 if gamma <= 0 else math.ceil(math.log(LAST_SHARE) / math.log(gamma))
    # At least two blocks.
    blocks = successive_blocks(context, max(1, min(horizon, n // 2)))
    dealt = np.random.default_rng(1).permutation(len(blocks))
    most = max(FEWEST // 2, LARGEST_MATRIX // len(context.features))
    halves: tuple[list[IntArray], list[IntArray]] = [], []
    sizes = [0, 0]
    for k in dealt:
        smaller = int(sizes[1] < sizes[0])
        if sizes[smaller] < most:
            halves[smaller].append(blocks[k])
            sizes[smaller] += len(blocks[k])
    return halves


def held_out_values(
    context: Context,
    train: IntArray,
    asked: IntArray,
    attention: FloatArray,
    sharpnesses: Sequence[float],
    gamma: float,
    step_size: float,
    reward_scale: float,
    n_layers: Depth,
) -> FloatArray:
    """Values of some states from some of a context's transitions, (len(sharpnesses), len(asked)), NaN if divergent.

    With u_l(s) the sum of the mean TD errors of source s over the layers below l, v_l = K u_l, and a layer is
    u <- u + step_size (r_hat + (gamma P_hat K - K) u) on the sources alone. Computed in single precision.
    """
    sources, source = np.unique(context.source_state[train], return_inverse=True)
    train = train[np.argsort(source, kind="stable")]
    counts = np.bincount(source)
    starts = np.cumsum(counts) - counts
    states, at = np.unique(np.concatenate([sources, context.next_state[train], asked]), return_inverse=True)
    at_sources, at_next, at_asked = np.split(at, [len(sources), len(sources) + len(train)])
    # score(query, source) = x(source)' A x(query)
    x = context.features.astype(np.float32)
    scores = x[states] @ (x[sources] @ attention.astype(np.float32)).T
    reward = _mean_by_source((reward_scale * context.rewards[train]).astype(np.float32)[:, None], starts)[:, 0]
    discounts = (gamma * context.continues[train]).astype(np.float32)[:, None]
    values = np.full((len(sharpnesses), len(asked)), np.nan)
    for row, sharpness in enumerate(sharpnesses):
        K = _softmax(np.float32(sharpness) * scores, counts.astype(np.float32))
        target = K[at_next]
        target *= discounts
        backup = _mean_by_source(target, starts)
        backup -= K[at_sources]
        u, change = _iterated(backup, reward, step_size, n_layers)
        # Where the layers converge, the last changes values less than the first, which brings mean rewards.
        if np.isfinite(change).all() and np.abs(K @ change).max() <= np.abs(reward).max():
            values[row] = (K @ u)[at_asked]
    return values


def _iterated(
    backup: NDArray[np.float32], reward: NDArray[np.float32], step_size: float, n_layers: Depth
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """Sums of the sources' TD errors after all layers, and the last layer's."""
    if n_layers == FIXED_POINT:
        return np.linalg.lstsq(-backup, reward)[0], np.zeros_like(reward)
    u, change = np.zeros_like(reward), reward
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(n_layers):
            change = np.float32(step_size) * (reward + backup @ u)
            u = u + change
    return u, change


def _softmax(scores: NDArray[np.float32], counts: NDArray[np.float32]) -> NDArray[np.float32]:
    """Attention by state, (queries, sources), a source standing for ``counts`` transitions."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores *= counts
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def _mean_by_source(rows: NDArray[np.float32], starts: IntArray) -> NDArray[np.float32]:
    """Means over the transitions of each source, which begin at ``starts``; the rows themselves if each has one."""
    if len(starts) == len(rows):
        return rows
    counts = np.diff(starts, append=len(rows)).astype(np.float32)
    return np.asarray(np.add.reduceat(rows, starts, axis=0) / counts[:, None])
