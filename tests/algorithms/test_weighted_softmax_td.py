"""Weighted softmax TD equals its definition, written out as a loop over iterations, states and transitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from icrl_agent.algorithms import inner_product, softmax_weights, weighted_softmax_td

# Rounding: some 40 terms of size 10 per sum, 12 iterations, 2e-16 each.
TOLERANCE = 1e-11

BILINEAR = np.array([[1.0, -2.0, 0.5], [0.0, 1.5, 1.0], [2.0, 0.3, -1.0]])

SCORES = {
    "inner product": None,
    "bilinear": lambda q, s: q @ BILINEAR @ s.T,
    "gaussian": lambda q, s: -0.5 * ((q[:, None] - s[None]) ** 2).sum(-1),
    "neighbours only": lambda q, s: np.where(np.abs(q[:, None] - s[None]).sum(-1) < 2.0, 0.0, -np.inf),
    "nobody": lambda q, s: np.full((len(q), len(s)), -np.inf),
}


def triple_loop(x, rewards, gamma, n_iterations, *, score, step_size, continues, source_mask, queries):
    points = [*x, *([] if queries is None else queries)]
    transitions = [k for k in range(len(x)) if source_mask[k]]
    g = score or (lambda q, s: np.array([[float(np.dot(q[0], s[0]))]]))
    v = [[0.0] * len(points)]
    for t in range(n_iterations):
        row = []
        for s, point in enumerate(points):
            scores = [float(g(point[None], x[k][None])[0, 0]) for k in transitions]
            top = max((a for a in scores if a > -math.inf), default=0.0)
            shares = [math.exp(a - top) for a in scores]
            update = 0.0
            for k, share in zip(transitions, shares, strict=True):
                delta = rewards[k] + gamma * continues[k] * v[t][k + 1] - v[t][k]
                update += delta * share / sum(shares) if share else 0.0
            row.append(v[t][s] + step_size * update)
        v.append(row)
    values = np.array(v)
    return values[:, : len(x)] if queries is None else values[:, len(x) :]


def flawed_td(flaw):
    """The algorithm in matrix form with one mistake."""

    def run(x, rewards, gamma, n_iterations, *, score, step_size, continues, source_mask, queries):
        points = x if queries is None else np.concatenate([x, queries])
        k = np.flatnonzero(source_mask if flaw != "mask ignored" else np.arange(len(x)) < len(x) - 1)
        g = score or (lambda q, s: q @ s.T)
        scores = g(x[k], points).T if flaw == "score arguments swapped" else g(points, x[k])
        weights = softmax_weights(scores.T).T if flaw == "softmax over the queries" else softmax_weights(scores)
        c = np.ones(len(x)) if flaw == "continues ignored" else continues
        alpha = 1.0 if flaw == "step size dropped" else step_size
        successor = k if flaw == "target not shifted" else k + 1
        v = np.zeros((n_iterations + 1, len(points)))
        for t in range(n_iterations):
            v[t + 1] = v[t]
            if flaw == "states updated one after the other":
                for s in range(len(points)):
                    delta = rewards[k] + gamma * c[k] * v[t + 1, successor] - v[t + 1, k]
                    v[t + 1, s] += alpha * weights[s] @ delta
            else:
                v[t + 1] += alpha * weights @ (rewards[k] + gamma * c[k] * v[t, successor] - v[t, k])
        return v[:, : len(x)] if queries is None else v[:, len(x) :]

    return run


def check_definition(run, history, *, score=None, step_size=0.7, gamma=0.85, n_queries=0, seed=0):
    rng = np.random.default_rng(seed)
    table = rng.uniform(-1, 1, (history.n_states, 3))
    x = table[history.states]
    queries = rng.uniform(-1, 1, (n_queries, 3)) if n_queries else None
    arguments = {"score": score, "step_size": step_size, "queries": queries, **history.masks}
    expected = triple_loop(x, history.rewards, gamma, 12, **arguments)
    np.testing.assert_allclose(
        run(x, history.rewards, gamma, 12, **arguments), expected, atol=TOLERANCE, rtol=TOLERANCE
    )


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES.keys())
@pytest.mark.parametrize("n_queries", [0, 4])
def test_equals_the_triple_loop(random_history, score, n_queries):
    history = random_history(np.random.default_rng(1), 25, padding=3)
    check_definition(weighted_softmax_td, history, score=score, n_queries=n_queries)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("step_size", [0.1, 1.0, 1.5])
def test_every_gamma_and_step_size(random_history, gamma, step_size):
    history = random_history(np.random.default_rng(2), 15, padding=1)
    check_definition(weighted_softmax_td, history, gamma=gamma, step_size=step_size)


@pytest.mark.parametrize("n_transitions", [0, 1, 2, 40])
def test_every_length(random_history, n_transitions):
    check_definition(weighted_softmax_td, random_history(np.random.default_rng(3), n_transitions))


@pytest.mark.parametrize(
    "flaw",
    [
        "softmax over the queries",
        "target not shifted",
        "continues ignored",
        "mask ignored",
        "score arguments swapped",
        "step size dropped",
        "states updated one after the other",
    ],
)
def test_the_check_catches(random_history, flaw):
    history = random_history(np.random.default_rng(1), 25, padding=3)
    score = SCORES["bilinear"]
    check_definition(flawed_td(None), history, score=score)
    with pytest.raises(AssertionError):
        check_definition(flawed_td(flaw), history, score=score)


def test_masks_default_to_an_unbroken_trajectory():
    rng = np.random.default_rng(4)
    x, rewards = rng.normal(size=(7, 2)), rng.normal(size=6)
    explicit = weighted_softmax_td(
        x, rewards, 0.9, 5, continues=np.ones(7), source_mask=[True] * 6 + [False], score=inner_product
    )
    np.testing.assert_array_equal(weighted_softmax_td(x, rewards, 0.9, 5), explicit)


def test_starts_at_zero_and_returns_every_iteration():
    values = weighted_softmax_td(np.ones((3, 1)), [1.0, 1.0], 0.5, 4)
    assert values.shape == (5, 3)
    assert values.dtype == np.float64
    # Equal features make one state: v_t is the truncated geometric series.
    np.testing.assert_allclose(values[:, 0], [sum(0.5**i for i in range(t)) for t in range(5)], rtol=1e-15)


def test_large_scores_do_not_overflow():
    x = np.array([[1e3], [-1e3], [1e3]])
    values = weighted_softmax_td(x, [1.0, 2.0], 0.0, 1)
    np.testing.assert_array_equal(values[1], [1.0, 2.0, 1.0])


X, R = np.ones((4, 2)), np.ones(3)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((X, np.ones(4), 0.9, 3, {}), r"rewards \(n,\), got shapes \(4, 2\) and \(4,\)"),
        ((np.ones(4), R, 0.9, 3, {}), r"features \(n \+ 1, d\)"),
        ((X, R, 1.1, 3, {}), r"gamma in \[0, 1\], got 3 and 1.1"),
        ((X, R, float("nan"), 3, {}), r"gamma in \[0, 1\]"),
        ((X, R, 0.9, -1, {}), "n_iterations >= 0"),
        ((X, R, 0.9, 3, {"weighting": "cubic"}), "'softmax' or 'linear', got 'cubic'"),
        ((X, R, 0.9, 3, {"continues": np.ones(3)}), r"shape \(4,\), got \(3,\)"),
        ((X, R, 0.9, 3, {"source_mask": np.ones(5)}), r"shape \(4,\), got \(4,\) and \(5,\)"),
        ((X, R, 0.9, 3, {"source_mask": np.ones(4)}), "last column has no successor"),
        ((X, R, 0.9, 3, {"queries": np.ones((2, 3))}), r"queries must have shape \(m, 2\), got \(2, 3\)"),
    ],
)
def test_bad_inputs_are_named(arguments, match):
    *positional, options = arguments
    with pytest.raises(ValueError, match=match):
        weighted_softmax_td(*positional, **options)
