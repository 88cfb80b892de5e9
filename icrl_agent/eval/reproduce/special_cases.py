"""What weighted softmax TD becomes: tabular TD, TD with a kernel smoother, linear batch TD."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from icrl_agent.algorithms.classical import batch_td
from icrl_agent.algorithms.weighted_softmax_td import weighted_softmax_td
from icrl_agent.eval.reproduce.chains import generator
from icrl_agent.eval.reproduce.claim import Check, Outcome, exactly
from icrl_agent.eval.reproduce.rounding import layer_error, propagated
from icrl_agent.figures import COLOURS, new_figure

__all__ = ["FULL", "QUICK", "Measurements", "Sizes", "claim", "judge", "measure"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

#: Sharpness of one-hot features; beyond 745 the weight exp(-tau) of another state is 0 in float64.
SHARPNESS = (1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 800.0)
UNIT = float(np.finfo(np.float64).eps) / 2


@dataclass(frozen=True)
class Sizes:
    """How much is tested."""

    n_contexts: int
    n_transitions: int = 60
    n_states: int = 5
    feature_dim: int = 3
    n_iterations: int = 30


QUICK, FULL = Sizes(40), Sizes(400)


class Context(NamedTuple):
    """Random moves among states that are all left, with terminations."""

    states: IntArray
    rewards: FloatArray
    continues: FloatArray
    features: FloatArray
    """(S, d)."""
    gamma: float
    step_size: float


class Measurements(NamedTuple):
    """Largest gaps over iterations and columns, and their bounds, one per context."""

    tabular: FloatArray
    """(len(SHARPNESS), B)."""
    tabular_bound: FloatArray
    """What attention to other states and rounding may do."""
    kernel: FloatArray
    kernel_bound: FloatArray
    linear: FloatArray
    linear_bound: FloatArray


def measure(sizes: Sizes, run: Callable[..., FloatArray] = weighted_softmax_td, seed: int = 0) -> Measurements:
    """Run weighted softmax TD beside the three algorithms, each written on its own."""
    rng = generator(2, seed)
    contexts = [_draw_context(rng, sizes) for _ in range(sizes.n_contexts)]
    tabular = [[_tabular(run, context, tau, sizes.n_iterations) for context in contexts] for tau in SHARPNESS]
    kernel = [_kernel(run, context, sizes.n_iterations) for context in contexts]
    linear = [_linear(run, context, sizes.n_iterations) for context in contexts]
    parts = (np.moveaxis(np.array(pairs), -1, 0) for pairs in (tabular, kernel, linear))
    (t, t_bound), (k, k_bound), (x, x_bound) = parts
    return Measurements(t, t_bound, k, k_bound, x, x_bound)


def judge(measured: Measurements) -> list[Check]:
    """Every gap is within its bound."""
    return [
        exactly(
            f"tabular TD: gap at sharpness {SHARPNESS[-1]:g} over what rounding may do",
            float((measured.tabular[-1] / measured.tabular_bound[-1]).max()),
            "at most",
            1.0,
        ),
        exactly(
            "tabular TD: gap at any sharpness over what attention to other states may do",
            float((measured.tabular / measured.tabular_bound).max()),
            "at most",
            1.0,
        ),
        exactly(
            "kernel TD: gap over what rounding may do",
            float((measured.kernel / measured.kernel_bound).max()),
            "at most",
            1.0,
        ),
        exactly(
            "linear batch TD: gap over what rounding may do",
            float((measured.linear / measured.linear_bound).max()),
            "at most",
            1.0,
        ),
    ]


def claim(quick: bool) -> Outcome:
    """Measure, judge, draw."""
    measured = measure(QUICK if quick else FULL)
    rows: Mapping[str, tuple[FloatArray, FloatArray]] = {
        f"tabular TD (one-hot, sharpness {SHARPNESS[-1]:g})": (measured.tabular[-1], measured.tabular_bound[-1]),
        "TD with a Gaussian kernel smoother (g = log k)": (measured.kernel, measured.kernel_bound),
        "linear batch TD (no normaliser)": (measured.linear, measured.linear_bound),
    }
    table = [
        {"special case": name, "largest gap": f"{gap.max():.2g}", "smallest bound": f"{bound.min():.2g}"}
        for name, (gap, bound) in rows.items()
    ]
    caption = (
        f"One-hot features: largest gap between weighted softmax TD and tabular batch TD over {QUICK.n_iterations}"
        f" iterations and {measured.kernel.size} contexts, against the sharpness, and the bound: attention to other"
        " states is at most (n - N(s)) exp(-tau) / N(s)."
    )
    return Outcome(judge(measured), {"tabular": (_draw(measured), caption)}, table)


def _draw_context(rng: np.random.Generator, sizes: Sizes) -> Context:
    n, n_states = sizes.n_transitions, sizes.n_states
    states = rng.integers(n_states, size=n + 1)
    states[rng.permutation(n)[:n_states]] = np.arange(n_states)  # every state is left
    return Context(
        states,
        rng.normal(size=n),
        (rng.random(n + 1) < 0.9).astype(np.float64),
        rng.normal(size=(n_states, sizes.feature_dim)),
        float(rng.uniform(0.0, 0.99)),
        float(rng.uniform(0.2, 1.0)),
    )


def _tabular(run: Callable[..., FloatArray], c: Context, tau: float, n: int) -> tuple[float, float]:
    n_states = len(c.features)
    x = np.sqrt(tau) * np.eye(n_states)[c.states]
    values = run(x, c.rewards, c.gamma, n, step_size=c.step_size, continues=c.continues)
    options = {"step_size": c.step_size, "continues": c.continues}
    expected = np.stack(
        [batch_td(c.states, c.rewards, c.gamma, n_states, n_iterations=t, **options) for t in range(n + 1)]  # type: ignore[arg-type]
    )
    visits = np.bincount(c.states[:-1], minlength=n_states).astype(np.float64)
    attention = np.exp(-tau * (c.states[:-1] != np.arange(n_states)[:, None]))
    attention /= attention.sum(axis=1, keepdims=True)
    leak = ((len(c.rewards) - visits) * np.exp(-tau) / visits).max()
    bound = _bound(c, attention, expected, n_states, tau, 1.0, leak)
    return _gap(values, expected[:, c.states]), bound


def _kernel(run: Callable[..., FloatArray], c: Context, n: int) -> tuple[float, float]:
    """The Nadaraya-Watson smoother of the TD errors, without logarithm or softmax."""

    def log_kernel(query: FloatArray, source: FloatArray) -> FloatArray:
        return np.asarray(-0.5 * ((query[:, None] - source[None]) ** 2).sum(axis=2))

    x = c.features[c.states]
    k = np.exp(log_kernel(c.features, x[:-1]))
    weights = k / k.sum(axis=1, keepdims=True)
    expected = _smoothed(c, weights, n)
    options = {"step_size": c.step_size, "continues": c.continues}
    values = run(x, c.rewards, c.gamma, n, score=log_kernel, **options)
    largest = float(np.abs(log_kernel(c.features, x[:-1])).max())
    return _gap(values, expected[:, c.states]), _bound(c, weights, expected, x.shape[1], largest, 1.0, 0.0)


def _linear(run: Callable[..., FloatArray], c: Context, n: int) -> tuple[float, float]:
    """Linear batch TD on the parameters: w <- w + (alpha / n) sum_k delta_k x(S_{k-1}), v = X w."""
    x, n_steps = c.features[c.states], len(c.rewards)
    w, rows = np.zeros(x.shape[1]), []
    for _ in range(n + 1):
        rows.append(c.features @ w)
        v = x @ w
        delta = c.rewards + c.gamma * c.continues[:-1] * v[1:] - v[:-1]
        w = w + c.step_size / n_steps * (delta @ x[:-1])
    expected = np.stack(rows)
    options = {"step_size": c.step_size, "continues": c.continues, "weighting": "linear"}
    values = run(x, c.rewards, c.gamma, n, **options)
    weights = c.features @ x[:-1].T / n_steps
    bound = _bound(c, weights, expected, x.shape[1], 1.0, float(np.abs(weights).sum(axis=1).max()), 0.0)
    return _gap(values, expected[:, c.states]), bound


def _smoothed(c: Context, weights: FloatArray, n: int) -> FloatArray:
    values = np.zeros((n + 1, len(weights)))
    for t in range(n):
        v = values[t, c.states]
        delta = c.rewards + c.gamma * c.continues[:-1] * v[1:] - v[:-1]
        values[t + 1] = values[t] + c.step_size * weights @ delta
    return np.asarray(values)


def _gap(values: FloatArray, expected: FloatArray) -> float:
    return float(np.abs(values - expected).max())


def _bound(
    c: Context, weights: FloatArray, values: FloatArray, dim: int, largest_score: float, total: float, leak: float
) -> float:
    """Bound of the gap of two computations: rounding of both, and ``leak``, the attention that goes elsewhere.

    ``weights`` are those of the layers that are run, ``values`` those of the algorithm they are compared with.
    """
    n_states = len(weights)
    to_source, to_next = np.eye(n_states)[c.states[:-1]], np.eye(n_states)[c.states[1:]]
    T = np.eye(n_states) + c.step_size * weights @ (c.gamma * c.continues[:-1, None] * to_next - to_source)
    largest = np.abs(values[:-1]).max(axis=1, keepdims=True)
    td_scale = total * (np.abs(c.rewards).max() + 2 * largest)
    local = layer_error(UNIT, len(c.rewards), dim, np.array([largest_score]), td_scale, largest)
    # A leak is lost on the own visits and spent elsewhere.
    return float(propagated(T[None], 2 * local + 2 * leak * td_scale).max())


def _draw(measured: Measurements) -> Figure:
    figure, axis = new_figure()
    tau = np.array(SHARPNESS[:-1])
    gap, bound = measured.tabular[:-1].max(axis=1), measured.tabular_bound[:-1].max(axis=1)
    axis.plot(tau, gap, "o-", color=COLOURS[0], linewidth=1.8, label="largest gap")
    axis.plot(tau, bound, "--", color="#000000", linewidth=1.2, label="bound")
    axis.axhline(
        measured.tabular[-1].max(), color=COLOURS[1], linestyle=":", label=f"largest gap at sharpness {SHARPNESS[-1]:g}"
    )
    axis.set_yscale("log")
    axis.set_xlabel("sharpness of one-hot features")
    axis.set_ylabel("gap to tabular batch TD")
    axis.legend(frameon=False, fontsize=8)
    return figure
