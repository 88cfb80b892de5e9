"""TD(0), linear TD, batch TD and Monte Carlo against loops of their own."""

from __future__ import annotations

import numpy as np
import pytest

from icrl_agent.algorithms import batch_td, linear_td, lstd, monte_carlo, tabular_td

GAMMA = 0.8
ATOL = 1e-12


def histories(random_history):
    return [
        random_history(np.random.default_rng(seed), n, padding=padding, p_terminated=p, p_truncated=0.1)
        for seed, (n, padding, p) in enumerate([(0, 0, 0.0), (1, 0, 0.0), (30, 4, 0.2), (60, 0, 0.0)])
    ]


def compare(estimate, expected, history, **options):
    found = estimate(history.states, history.rewards, GAMMA, history.n_states, **history.masks, **options)
    assert found.shape == (history.n_states,)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=ATOL)


# TD(0) ---------------------------------------------------------------------------------------------------------------


def test_td_steps_by_hand():
    # s0 -1-> s1 -2-> s0 -3-> s2: deltas 1, 2 + 0.5 * 0.5, 3 - 0.5.
    np.testing.assert_allclose(tabular_td([0, 1, 0, 2], [1, 2, 3], 0.5, 3, step_size=0.5), [1.75, 1.125, 0.0])


def test_td_step_size_may_be_a_function_of_the_step():
    alpha = [1.0, 0.5, 0.25]
    # Deltas 1, 2 + 0.5 * 1, 3 - 1.
    np.testing.assert_allclose(tabular_td([0, 1, 0, 2], [1, 2, 3], 0.5, 3, step_size=alpha.__getitem__), [1.5, 1.25, 0])


def test_td_counts_its_steps_over_transitions_not_columns():
    seen = []
    tabular_td([0, 1, 0, 1], [1, 0, 1], 0.5, 2, source_mask=[1, 0, 1, 0], step_size=lambda k: seen.append(k) or 0.1)
    assert seen == [0, 1]


def check_linear_td(estimate, history, features):
    w = np.zeros(features.shape[1])
    for k in history.sources:
        x_tm1, x_t = features[history.states[k]], features[history.states[k + 1]]
        w = w + 0.3 * (history.rewards[k] + GAMMA * history.continues[k] * x_t @ w - x_tm1 @ w) * x_tm1
    compare(estimate, features @ w, history, features=features, step_size=0.3)


def td_against_the_new_state(states, rewards, gamma, n_states, *, features, step_size, source_mask, continues):
    w = np.zeros(features.shape[1])
    for k in np.flatnonzero(source_mask):
        x_tm1, x_t = features[states[k]], features[states[k + 1]]
        w = w + step_size * (rewards[k] + gamma * continues[k] * x_t @ w - x_t @ w) * x_tm1
    return features @ w


def test_linear_td_equals_its_loop(random_history):
    for history in histories(random_history):
        check_linear_td(linear_td, history, np.random.default_rng(1).normal(size=(history.n_states, 3)))
    with pytest.raises(AssertionError):
        check_linear_td(td_against_the_new_state, history, np.eye(history.n_states))


def test_one_hot_linear_td_is_tabular_td(random_history):
    for history in histories(random_history):
        expected = linear_td(
            history.states, history.rewards, GAMMA, history.n_states, features=np.eye(history.n_states), **history.masks
        )
        compare(tabular_td, expected, history)


# Batch TD ------------------------------------------------------------------------------------------------------------


def check_batch_td(estimate, history, step_size, n_iterations):
    v = [0.0] * history.n_states
    for _ in range(n_iterations):
        new = list(v)
        for s in range(history.n_states):
            deltas = [
                history.rewards[k] + GAMMA * history.continues[k] * v[history.states[k + 1]] - v[s]
                for k in history.sources
                if history.states[k] == s
            ]
            if deltas:
                new[s] = v[s] + step_size * sum(deltas) / len(deltas)
        v = new
    compare(estimate, v, history, step_size=step_size, n_iterations=n_iterations)


def without(argument, estimate):
    """Drops one argument of an estimator."""

    def run(states, rewards, gamma, n_states, **options):
        options.pop(argument)
        return estimate(states, rewards, gamma, n_states, **options)

    return run


@pytest.mark.parametrize(("step_size", "n_iterations"), [(1.0, 0), (1.0, 1), (0.4, 20), (1.7, 7)])
def test_batch_td_equals_its_loop(random_history, step_size, n_iterations):
    for history in histories(random_history):
        check_batch_td(batch_td, history, step_size, n_iterations)


@pytest.mark.parametrize("argument", ["continues", "source_mask", "step_size", "n_iterations"])
def test_the_batch_check_catches_a_dropped_argument(random_history, argument):
    with pytest.raises(AssertionError):
        check_batch_td(without(argument, batch_td), histories(random_history)[2], 0.4, 20)


# Monte Carlo ---------------------------------------------------------------------------------------------------------


def check_monte_carlo(estimate, history):
    """Forward sums: a return goes on while the next column starts a transition and nothing terminated."""
    returns = [[] for _ in range(history.n_states)]
    for first in history.sources:
        total, factor, k = 0.0, 1.0, first
        while True:
            total += factor * history.rewards[k]
            if history.continues[k] == 0 or not history.source_mask[k + 1]:
                break
            factor *= GAMMA
            k += 1
        returns[history.states[first]].append(total)
    compare(estimate, [sum(group) / len(group) if group else 0.0 for group in returns], history)


def first_visit_monte_carlo(states, rewards, gamma, n_states, *, source_mask, continues):
    following = [0.0] * (len(states) + 1)
    for k in reversed(range(len(states) - 1)):
        following[k] = rewards[k] + gamma * continues[k] * following[k + 1] if source_mask[k] else 0.0
    first = {int(states[k]): following[k] for k in reversed(np.flatnonzero(source_mask).tolist())}
    return np.array([first.get(s, 0.0) for s in range(n_states)])


def test_monte_carlo_equals_forward_sums(random_history):
    for history in histories(random_history):
        check_monte_carlo(monte_carlo, history)


def unbroken(history):
    """Terminations inside an unbroken row of sources: nothing but ``continues`` tells them."""
    return history._replace(source_mask=np.arange(len(history.states)) < len(history.states) - 1)


@pytest.mark.parametrize(
    ("double", "change"),
    [
        (first_visit_monte_carlo, unbroken),
        (without("continues", monte_carlo), unbroken),
        (without("source_mask", monte_carlo), lambda history: history),
    ],
)
def test_the_monte_carlo_check_catches(random_history, double, change):
    history = change(histories(random_history)[2])
    check_monte_carlo(monte_carlo, history)
    with pytest.raises(AssertionError):
        check_monte_carlo(double, history)


def test_monte_carlo_cuts_returns_at_truncations_and_at_the_end():
    # Episode 1: 0 (r 1), 1 (r 2), truncated in 2; episode 2: 0 (r 4), 1 (r 8), history ends.
    states, rewards = [0, 1, 2, 0, 1, 2], [1.0, 2.0, 0.0, 4.0, 8.0]
    v = monte_carlo(states, rewards, 0.5, 3, source_mask=[1, 1, 0, 1, 1, 0])
    np.testing.assert_allclose(v, [(1 + 0.5 * 2 + 4 + 0.5 * 8) / 2, (2 + 8) / 2, 0.0])


# Nothing seen --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimate", [tabular_td, linear_td, batch_td, monte_carlo, lstd])
def test_no_transition_no_value(estimate):
    np.testing.assert_array_equal(estimate([1], [], GAMMA, 3), np.zeros(3))
    np.testing.assert_array_equal(estimate([1, 2], [7.0], GAMMA, 3, source_mask=[0, 0]), np.zeros(3))
