"""What weighted softmax TD becomes: tabular batch TD, kernel TD, linear batch TD."""

from __future__ import annotations

import math

import numpy as np
import pytest

from icrl_agent.algorithms import batch_td, weighted_softmax_td

GAMMA, N_ITERATIONS = 0.9, 30
# Above 745 the weight exp(-tau) of every other state is exactly 0 in float64.
TAU = 800.0


def cycle_history(random_history, seed=0, **options):
    """Every state is left, the last one included, so that no fill-in enters."""
    history = random_history(np.random.default_rng(seed), 60, n_states=4, **options)
    entered = {int(history.states[j + 1]) for j in history.sources}
    left = {int(history.states[j]) for j in history.sources}
    assert entered | {int(history.states[-1])} <= left
    return history


def one_hot(history, tau):
    return math.sqrt(tau) * np.eye(history.n_states)[history.states]


def check_tabular(history, tau=TAU, step_size=1.0):
    values = weighted_softmax_td(
        one_hot(history, tau), history.rewards, GAMMA, N_ITERATIONS, step_size=step_size, **history.masks
    )
    for t in (1, 2, N_ITERATIONS):
        expected = batch_td(
            history.states, history.rewards, GAMMA, history.n_states,
            step_size=step_size, n_iterations=t, **history.masks,
        )  # fmt: skip
        np.testing.assert_allclose(values[t], expected[history.states], atol=1e-12)


@pytest.mark.parametrize("step_size", [1.0, 0.3])
def test_sharp_one_hot_features_are_tabular_batch_td(random_history, step_size):
    check_tabular(cycle_history(random_history), step_size=step_size)


def test_the_tabular_check_catches_a_blunt_kernel(random_history):
    with pytest.raises(AssertionError):
        check_tabular(cycle_history(random_history), tau=2.0)


def test_the_tabular_check_catches_a_last_state_never_left(random_history):
    history = cycle_history(random_history, p_terminated=0.0, p_truncated=0.0)
    check_tabular(history)
    # The last transition now enters a state that no transition leaves: batch TD keeps it at 0.
    states = history.states.copy()
    states[-1] = history.n_states
    with pytest.raises(AssertionError):
        check_tabular(history._replace(states=states, n_states=history.n_states + 1))


def test_a_state_never_left_averages_all_transitions(random_history):
    history = cycle_history(random_history)
    x = math.sqrt(TAU) * np.eye(history.n_states + 1)
    arguments = {**history.masks}
    columns = weighted_softmax_td(x[history.states], history.rewards, GAMMA, N_ITERATIONS, **arguments)
    query = weighted_softmax_td(x[history.states], history.rewards, GAMMA, N_ITERATIONS, queries=x[-1:], **arguments)
    v = 0.0
    for t in range(N_ITERATIONS):
        deltas = [
            history.rewards[k] + GAMMA * history.continues[k] * columns[t, k + 1] - columns[t, k]
            for k in history.sources
        ]
        v += sum(deltas) / len(deltas)
        assert query[t + 1, 0] == pytest.approx(v, abs=1e-12)


def gaussian_kernel(q, s):
    return np.exp(-((q[:, None] - s[None]) ** 2).sum(-1))


def triangular_kernel(q, s):
    return np.maximum(0.0, 1.0 - np.abs(q[:, None] - s[None]).sum(-1))


def log_of(kernel):
    def score(q, s):
        with np.errstate(divide="ignore"):
            return np.log(kernel(q, s))

    return score


def check_kernel_td(score, kernel, history):
    """The smoother v(s) += sum_k k(s, S_k) delta_k / sum_k k(s, S_k)."""
    x = np.random.default_rng(5).uniform(-1, 1, (history.n_states, 2))[history.states]
    v = np.zeros(len(x))
    for _ in range(N_ITERATIONS):
        new = v.copy()
        for s in range(len(x)):
            k_row = [float(kernel(x[s][None], x[k][None])[0, 0]) for k in history.sources]
            deltas = [history.rewards[k] + GAMMA * history.continues[k] * v[k + 1] - v[k] for k in history.sources]
            if sum(k_row) > 0:
                new[s] += sum(a * b for a, b in zip(k_row, deltas, strict=True)) / sum(k_row)
        v = new
    values = weighted_softmax_td(x, history.rewards, GAMMA, N_ITERATIONS, score=score, **history.masks)
    np.testing.assert_allclose(values[-1], v, atol=1e-10)


@pytest.mark.parametrize("kernel", [gaussian_kernel, triangular_kernel])
def test_log_kernel_scores_are_kernel_smoother_td(random_history, kernel):
    history = random_history(np.random.default_rng(6), 20)
    check_kernel_td(log_of(kernel), kernel, history)
    with pytest.raises(AssertionError):
        check_kernel_td(kernel, kernel, history)


def check_linear(run, history, step_size):
    """Linear batch TD on the weights: w += (alpha / n) sum_k delta_k x(S_{k-1}), v = X w."""
    x = np.random.default_rng(7).normal(size=(history.n_states, 3))[history.states]
    queries = np.random.default_rng(8).normal(size=(4, 3))
    w, n = np.zeros(3), len(history.sources)
    columns = run(x, history.rewards, GAMMA, N_ITERATIONS, step_size=step_size, **history.masks)
    asked = run(x, history.rewards, GAMMA, N_ITERATIONS, step_size=step_size, queries=queries, **history.masks)
    for t in range(N_ITERATIONS + 1):
        np.testing.assert_allclose(columns[t], x @ w, atol=1e-10)
        np.testing.assert_allclose(asked[t], queries @ w, atol=1e-10)
        gradient = np.zeros(3)
        for k in history.sources:
            delta = history.rewards[k] + GAMMA * history.continues[k] * (x[k + 1] @ w) - x[k] @ w
            gradient += delta * x[k]
        w = w + step_size / n * gradient


def linear_td_iterations(x, rewards, gamma, n_iterations, *, step_size, **options):
    return weighted_softmax_td(x, rewards, gamma, n_iterations, weighting="linear", step_size=step_size, **options)


def divided_by_the_columns(x, rewards, gamma, n_iterations, *, step_size, **options):
    smaller = step_size * np.sum(options["source_mask"]) / len(x)
    return linear_td_iterations(x, rewards, gamma, n_iterations, step_size=smaller, **options)


@pytest.mark.parametrize("step_size", [1.0, 0.2])
def test_linear_weighting_is_linear_batch_td(random_history, step_size):
    history = random_history(np.random.default_rng(9), 25, padding=4)
    check_linear(linear_td_iterations, history, step_size)
    for double in (weighted_softmax_td, divided_by_the_columns):
        with pytest.raises(AssertionError):
            check_linear(double, history, step_size)


def test_linear_weighting_without_any_source_gives_zero():
    values = weighted_softmax_td(np.ones((2, 1)), [5.0], 0.9, 3, weighting="linear", source_mask=[0, 0])
    np.testing.assert_array_equal(values, 0.0)
