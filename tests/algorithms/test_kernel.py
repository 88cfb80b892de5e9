"""The attention kernel summed by state, and one layer as an affine map of the state values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from icrl_agent.algorithms import (
    LayerMap,
    assumption_margin,
    empirical_kernel,
    kernel_diagonality,
    population_kernel,
    softmax_weights,
    weighted_softmax_td,
)

GAMMA = 0.9


def neighbours_only(q, s):
    return np.where(np.abs(q[:, None] - s[None]).sum(-1) < 1.5, 1.0, -np.inf)


CASES = {
    "episodes": {"n_transitions": 40, "padding": 3},
    "unbroken": {"n_transitions": 40, "p_terminated": 0.0, "p_truncated": 0.0},
    "one transition": {"n_transitions": 1},
    "no transition": {"n_transitions": 0, "padding": 2},
}


def context(random_history, case, seed=0):
    rng = np.random.default_rng(seed)
    history = random_history(rng, **CASES[case])
    table = rng.uniform(-1, 1, (history.n_states + 2, 3))
    # One query is a known state, one is not.
    return history, table[history.states], table[[0, -1]]


def by_loops(x, rewards, queries, history, score):
    """M, P, r, by state, from dictionaries of feature vectors."""
    points = [tuple(row) for row in np.concatenate([x, queries])]
    states = list(dict.fromkeys(points))
    index = {point: i for i, point in enumerate(states)}
    S = len(states)
    M, P, r = np.zeros((S, S)), np.zeros((S, S)), np.zeros(S)
    g = score or (lambda q, s: q @ s.T)
    for i, point in enumerate(states):
        scores = [float(g(np.array([point]), x[k][None])[0, 0]) for k in history.sources]
        total = sum(math.exp(a) for a in scores)
        for k, a in zip(history.sources, scores, strict=True):
            share = math.exp(a) / total if total else 0.0
            M[i, index[points[k]]] += share
            P[i, index[points[k + 1]]] += share * history.continues[k]
            r[i] += share * rewards[k]
    return np.array(states), M, P, r


def check_kernel(build, random_history, case, score):
    history, x, queries = context(random_history, case)
    layer_map = build(x, history.rewards, score=score, queries=queries, **history.masks)
    states, M, P, r = by_loops(x, history.rewards, queries, history, score)
    np.testing.assert_array_equal(layer_map.states, states)
    np.testing.assert_array_equal(layer_map.states[layer_map.column_state], np.concatenate([x, queries]))
    np.testing.assert_allclose(layer_map.M, M, atol=1e-13)
    np.testing.assert_allclose(layer_map.P, P, atol=1e-13)
    np.testing.assert_allclose(layer_map.r, r, atol=1e-13)
    # The empirical process: who was left, where it went, what it paid.
    column_state = layer_map.column_state
    left = sorted({int(column_state[k]) for k in history.sources})
    assert layer_map.left.tolist() == left
    for row, s in enumerate(left):
        visits = [k for k in history.sources if column_state[k] == s]
        assert layer_map.reward[row] == pytest.approx(np.mean([history.rewards[k] for k in visits]), abs=1e-13)
        expected = np.zeros(len(states))
        for k in visits:
            expected[column_state[k + 1]] += history.continues[k] / len(visits)
        np.testing.assert_allclose(layer_map.transition[row], expected, atol=1e-13)


def without(argument):
    def build(*positional, **options):
        options.pop(argument)
        return empirical_kernel(*positional, **options)

    return build


def replaced(**changes):
    """The right map with some of its arrays changed."""

    def build(*positional, **options):
        layer_map = empirical_kernel(*positional, **options)
        arrays = {name: getattr(layer_map, name) for name in LayerMap.__dataclass_fields__}
        return LayerMap(**{**arrays, **{name: change(arrays[name]) for name, change in changes.items()}})

    return build


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("score", [None, neighbours_only], ids=["inner product", "neighbours only"])
def test_kernel_equals_its_sums(random_history, case, score):
    check_kernel(empirical_kernel, random_history, case, score)


@pytest.mark.parametrize(
    "double",
    [
        without("continues"),
        without("source_mask"),
        without("score"),
        replaced(M=np.transpose),
        replaced(P=np.transpose),
        replaced(r=lambda r: np.roll(r, 1)),
        replaced(transition=lambda P: P / np.maximum(P.sum(1, keepdims=True), 1e-9)),
    ],
)
def test_the_kernel_check_catches(random_history, double):
    with pytest.raises(AssertionError):
        check_kernel(double, random_history, "episodes", neighbours_only)


def check_affine_layer(build, random_history, case, step_size):
    """One iteration of weighted softmax TD is v + step (r + (gamma P - M) v), whatever the number of columns."""
    history, x, queries = context(random_history, case, seed=1)
    layer_map = build(x, history.rewards, queries=queries, **history.masks)
    everything = np.concatenate(
        [
            weighted_softmax_td(x, history.rewards, GAMMA, 10, step_size=step_size, queries=wanted, **history.masks)
            for wanted in (None, queries)
        ],
        axis=1,
    )
    v = np.zeros(len(layer_map.states))
    for row in everything:
        np.testing.assert_allclose(row, v[layer_map.column_state], atol=1e-11)
        v = v + step_size * (layer_map.r + (GAMMA * layer_map.P - layer_map.M) @ v)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("step_size", [1.0, 0.4])
def test_one_layer_is_affine(random_history, case, step_size):
    check_affine_layer(empirical_kernel, random_history, case, step_size)


@pytest.mark.parametrize("double", [without("continues"), replaced(M=np.transpose), replaced(P=np.transpose)])
def test_the_affine_check_catches(random_history, double):
    with pytest.raises(AssertionError):
        check_affine_layer(double, random_history, "episodes", 1.0)


def test_rows_sum_to_one_with_sources_and_to_zero_without(random_history):
    for case, total in (("episodes", 1.0), ("no transition", 0.0)):
        history, x, queries = context(random_history, case)
        layer_map = empirical_kernel(x, history.rewards, queries=queries, **history.masks)
        np.testing.assert_allclose(layer_map.M.sum(axis=1), total, rtol=1e-14)
        assert (layer_map.P.sum(axis=1) <= total + 1e-14).all()


def test_softmax_is_taken_over_the_last_axis_and_is_shift_invariant():
    scores = np.array([[1.0, 2.0, -np.inf], [1000.0, 1001.0, 0.0]])
    p = 1 / (1 + math.e)
    np.testing.assert_allclose(softmax_weights(scores), [[p, 1 - p, 0], [p, 1 - p, 0]], atol=1e-15)
    assert softmax_weights(np.zeros((3, 0))).shape == (3, 0)


def test_queries_of_another_dimension_are_refused():
    with pytest.raises(ValueError, match=r"queries must have shape \(m, 2\), got \(1, 3\)"):
        empirical_kernel(np.ones((2, 2)), [1.0], queries=np.ones((1, 3)))


# Diagonality ---------------------------------------------------------------------------------------------------------


def test_diagonality_of_hand_made_kernels():
    # State 2 was never left: its column is 0 and its row does not count.
    kernel = [[0.6, 0.4, 0.0], [0.3, 0.7, 0.0], [0.9, 0.1, 0.0]]
    assert kernel_diagonality(kernel) == pytest.approx((0.65, 0.6))
    assert kernel_diagonality(np.eye(4)) == (1.0, 1.0)
    assert kernel_diagonality(np.full((4, 4), 0.25)) == (0.25, 0.25)
    assert np.isnan(kernel_diagonality(np.zeros((2, 2)))).all()


def check_unreached(diagonality, margin):
    """A short feature beside a long parallel one: the short state was left, but even its own attention misses it."""
    layer_map = empirical_kernel([[1.0], [100.0], [1.0]], [1.0, 2.0], score=lambda q, s: 8.0 * q @ s.T)
    assert layer_map.left.tolist() == [0, 1]
    np.testing.assert_array_equal(layer_map.M, [[0.0, 1.0], [0.0, 1.0]])
    assert diagonality(layer_map.M, layer_map.left) == (0.5, 0.0)
    assert margin(layer_map.M, 0.9, layer_map.left) == pytest.approx(-0.95)


def test_a_state_that_no_attention_reaches_counts():
    check_unreached(kernel_diagonality, assumption_margin)
    with pytest.raises(AssertionError):
        check_unreached(lambda M, _left: kernel_diagonality(M), assumption_margin)
    with pytest.raises(AssertionError):
        check_unreached(kernel_diagonality, lambda M, gamma, _left: assumption_margin(M, gamma))


@pytest.mark.parametrize(
    ("diagonal", "gamma", "margin"), [(1.0, 0.9, 0.05), (1.0, 0.0, 0.5), (0.9, 0.9, -0.05), (0.5, 0.0, 0.0)]
)
def test_margin_of_hand_made_kernels(diagonal, gamma, margin):
    kernel = [[diagonal, 1 - diagonal], [0.0, 1.0]]
    assert assumption_margin(kernel, gamma) == pytest.approx(margin, abs=1e-15)


# The long-context limit ----------------------------------------------------------------------------------------------

MU = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
SHARPNESS = 2.0


def check_population_kernel(kernel):
    """Its definition by loops."""
    x = np.random.default_rng(0).uniform(-1, 1, (5, 3))
    M = kernel(x, MU, SHARPNESS)
    for s in range(5):
        terms = [MU[u] * math.exp(SHARPNESS * float(x[s] @ x[u])) for u in range(5)]
        np.testing.assert_allclose(M[s], np.array(terms) / sum(terms), rtol=1e-12)


def check_limit(kernel, n):
    """The empirical kernel is within 5 standard errors of it, a distance that falls as 1 / sqrt(n).

    With counts N ~ Multinomial(n, mu) the delta method gives
    n Var M_n(s, s') = sum_u mu(u) (M(s, s') (1{u = s'} - M(s, u)) / mu(u))^2; the next order is O(1 / n).
    """
    rng = np.random.default_rng(n)
    x = np.random.default_rng(0).uniform(-1, 1, (5, 3))
    visited = rng.choice(5, size=n + 1, p=MU)
    layer_map = empirical_kernel(math.sqrt(SHARPNESS) * x[visited], np.zeros(n))
    number = [int(np.flatnonzero((layer_map.states == math.sqrt(SHARPNESS) * row).all(1))[0]) for row in x[:4]]
    found, M = layer_map.M[np.ix_(number, number)], kernel(x, MU, SHARPNESS)[:4, :4]
    slope = M[:, :, None] * (np.eye(4)[None] - M[:, None, :]) / MU[:4]
    stderr = np.sqrt((MU[:4] * slope**2).sum(axis=2) / n)
    assert (np.abs(found - M) <= 5 * stderr + 50 / n).all()


def uniform_population_kernel(x, mu, sharpness):
    return population_kernel(x, np.where(mu > 0, 0.25, 0.0), sharpness)


@pytest.mark.parametrize("n", [1_000, 10_000, 100_000])
def test_population_kernel_is_the_limit(n):
    check_population_kernel(population_kernel)
    check_limit(population_kernel, n)


def test_the_limit_checks_catch_a_kernel_without_mu_or_without_sharpness():
    for double in (uniform_population_kernel, lambda x, mu, _sharpness: population_kernel(x, mu)):
        with pytest.raises(AssertionError):
            check_population_kernel(double)
        with pytest.raises(AssertionError):
            check_limit(double, 10_000)
