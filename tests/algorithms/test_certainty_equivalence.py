"""Certainty equivalence, and what batch TD and least squares have in common with it."""

from __future__ import annotations

import numpy as np
import pytest

from icrl_agent.algorithms import batch_td, certainty_equivalence, lstd

GAMMA = 0.85


def fill_in_of(history, never_left):
    """Value of every state that was never left, by the rules in words."""
    left = {int(history.states[k]) for k in history.sources}
    ended = {int(history.states[k + 1]) for k in history.sources if history.continues[k] == 0}
    went_on = {int(history.states[k + 1]) for k in history.sources if history.continues[k] > 0}
    mean = sum(history.rewards[k] for k in history.sources) / len(history.sources) / (1 - GAMMA)
    rest = {"mean": mean, "zero": 0.0, "nan": mean}[never_left]
    return {s: 0.0 if s in ended - went_on else rest for s in range(history.n_states) if s not in left}, ended - went_on


def check_certainty_equivalence(estimate, history, never_left="mean"):
    """Apply the empirical Bellman operator until it stands still."""
    fixed, terminal = fill_in_of(history, never_left)
    v = [fixed.get(s, 0.0) for s in range(history.n_states)]
    visits = [[k for k in history.sources if history.states[k] == s] for s in range(history.n_states)]
    for _ in range(300):  # 0.85^300 < 1e-21
        v = [
            fixed[s]
            if s in fixed
            else sum(history.rewards[k] + GAMMA * history.continues[k] * v[history.states[k + 1]] for k in visits[s])
            / len(visits[s])
            for s in range(history.n_states)
        ]
    if never_left == "nan":
        v = [np.nan if s in fixed and s not in terminal else value for s, value in enumerate(v)]
    found = estimate(history.states, history.rewards, GAMMA, history.n_states, never_left=never_left, **history.masks)
    np.testing.assert_allclose(found, v, atol=1e-10)


def short(random_history, seed=3, n_states=12):
    """A short history: states never left, some of them entered, some only as ends."""
    history = random_history(np.random.default_rng(seed), 14, n_states=n_states, padding=2, p_terminated=0.25)
    assert len({int(history.states[k]) for k in history.sources}) < n_states
    return history


@pytest.mark.parametrize("never_left", ["mean", "zero", "nan"])
@pytest.mark.parametrize("seed", range(8))
def test_equals_the_iterated_bellman_operator(random_history, never_left, seed):
    check_certainty_equivalence(certainty_equivalence, short(random_history, seed), never_left)
    check_certainty_equivalence(
        certainty_equivalence, random_history(np.random.default_rng(seed), 80, n_states=6), never_left
    )


def without(argument):
    def run(*positional, **options):
        options.pop(argument)
        return certainty_equivalence(*positional, **options)

    return run


def columns_shifted(states, rewards, gamma, n_states, **options):
    return certainty_equivalence(states, np.roll(rewards, 1), gamma, n_states, **options)


@pytest.mark.parametrize(
    "double", [without("continues"), without("source_mask"), without("never_left"), columns_shifted]
)
def test_the_check_catches(random_history, double):
    with pytest.raises(AssertionError):
        check_certainty_equivalence(double, short(random_history), "zero")


def test_states_that_only_terminated_transitions_enter_are_worth_zero():
    # 0 -> 1 terminates, 0 -> 2 is cut: 1 is an end, 2 an unknown.
    states, source, continues = [0, 1, 0, 2, 0], [1, 0, 1, 0, 0], [0, 1, 1, 1, 1]
    for never_left, unknown in (("mean", 2.0 / 0.5), ("zero", 0.0), ("nan", np.nan)):
        v = certainty_equivalence(
            states, [3.0, 0.0, 1.0, 0.0], 0.5, 3, source_mask=source, continues=continues, never_left=never_left
        )
        np.testing.assert_allclose(v[1:], [0.0, unknown])
        # The unknown state is solved with its mean fill even where it is reported as NaN.
        assert v[0] == pytest.approx(2.0 + 0.25 * (0.0 if never_left == "zero" else 4.0))


def test_no_transition_at_all():
    np.testing.assert_array_equal(certainty_equivalence([0], [], 0.9, 2), [0.0, 0.0])
    np.testing.assert_array_equal(certainty_equivalence([0], [], 0.9, 2, never_left="nan"), [np.nan, np.nan])


# gamma 1 -------------------------------------------------------------------------------------------------------------


def test_gamma_one_where_every_episode_ends():
    # 0 -> 1 -> end, twice; undiscounted sums.
    states, source, continues = [0, 1, 2, 0, 1, 2], [1, 1, 0, 1, 1, 0], [1, 0, 1, 1, 0, 1]
    v = certainty_equivalence(states, [1, 2, 0, 3, 4], 1.0, 3, source_mask=source, continues=continues)
    np.testing.assert_allclose(v, [2 + 3, 3, 0])


def test_gamma_one_needs_an_end():
    with pytest.raises(ValueError, match="surely ends"):
        certainty_equivalence([0, 1, 0], [1.0, 1.0], 1.0, 2)
    with pytest.raises(ValueError, match="needs gamma < 1"):
        certainty_equivalence([0, 1], [1.0], 1.0, 2, never_left="mean")


def test_gamma_one_with_zero_fill_stops_at_the_unknown():
    np.testing.assert_allclose(certainty_equivalence([0, 1], [1.0], 1.0, 2, never_left="zero"), [1.0, 0.0])


# Relatives -----------------------------------------------------------------------------------------------------------


def zero_filled(history):
    return certainty_equivalence(
        history.states, history.rewards, GAMMA, history.n_states, never_left="zero", **history.masks
    )


@pytest.mark.parametrize("step_size", [1.0, 0.5])
def test_batch_td_converges_to_it(random_history, step_size):
    for history in (short(random_history), random_history(np.random.default_rng(1), 80)):
        found = batch_td(
            history.states, history.rewards, GAMMA, history.n_states,
            step_size=step_size, n_iterations=600, **history.masks,
        )  # fmt: skip
        np.testing.assert_allclose(found, zero_filled(history), atol=1e-10)  # 0.925^600 < 1e-20


def check_lstd(estimate, history):
    left = np.unique(history.states[history.sources])
    found = estimate(history.states, history.rewards, GAMMA, history.n_states, ridge=0.0, **history.masks)
    np.testing.assert_allclose(found[left], zero_filled(history)[left], atol=1e-10)


@pytest.mark.parametrize("seed", range(8))
def test_one_hot_least_squares_without_ridge_is_it(random_history, seed):
    check_lstd(lstd, random_history(np.random.default_rng(seed), 80, n_states=6))
    check_lstd(lstd, short(random_history, seed))


def test_the_least_squares_check_catches_a_ridge(random_history):
    with pytest.raises(AssertionError):
        check_lstd(lambda *a, **options: lstd(*a, **{**options, "ridge": 1.0}), short(random_history))


@pytest.mark.parametrize("ridge", [1e-3, 2.0])
def test_least_squares_solves_its_equations(random_history, ridge):
    history = random_history(np.random.default_rng(2), 40, padding=2)
    X = np.random.default_rng(3).normal(size=(history.n_states, 3))
    A, b = ridge * np.eye(3), np.zeros(3)
    for k in history.sources:
        x, x_next = X[history.states[k]], X[history.states[k + 1]]
        A += np.outer(x, x - GAMMA * history.continues[k] * x_next)
        b += x * history.rewards[k]
    found = lstd(history.states, history.rewards, GAMMA, history.n_states, features=X, ridge=ridge, **history.masks)
    np.testing.assert_allclose(found, X @ np.linalg.inv(A) @ b, atol=1e-9)


def test_least_squares_without_ridge_is_the_limit_of_small_ridges(random_history):
    history = short(random_history)
    X = np.random.default_rng(4).normal(size=(history.n_states, 20))  # more features than states
    options = {"features": X, **history.masks}
    limit = lstd(history.states, history.rewards, GAMMA, history.n_states, ridge=0.0, **options)
    near = lstd(history.states, history.rewards, GAMMA, history.n_states, ridge=1e-8, **options)
    np.testing.assert_allclose(limit, near, atol=1e-5)
