"""The batched estimators equal the single-history ones, context by context."""

from __future__ import annotations

import numpy as np
import pytest

from icrl_agent.algorithms.batched import batched_certainty_equivalence, batched_lstd, batched_tabular_td
from icrl_agent.algorithms.classical import certainty_equivalence, lstd, tabular_td

N_CONTEXTS, N_STATES = 12, 6


def histories(n, seed=0):
    """Histories over few enough steps that some states are never left; states, rewards, gamma."""
    rng = np.random.default_rng(seed)
    states = rng.integers(N_STATES, size=(N_CONTEXTS, n + 1))
    states[0] = 2
    return states, rng.normal(size=(N_CONTEXTS, n)), rng.uniform(0.0, 0.95, N_CONTEXTS)


def sums(states, rewards):
    """By loops: counts, reward sums, successor counts."""
    counts, totals = np.zeros((N_CONTEXTS, N_STATES)), np.zeros((N_CONTEXTS, N_STATES))
    successors = np.zeros((N_CONTEXTS, N_STATES, N_STATES))
    for i in range(N_CONTEXTS):
        for k in range(rewards.shape[1]):
            counts[i, states[i, k]] += 1
            totals[i, states[i, k]] += rewards[i, k]
            successors[i, states[i, k], states[i, k + 1]] += 1
    return counts, totals, successors


def step_size(k):
    return 3.0 / (5.0 + k)


ESTIMATORS = {
    "certainty equivalence, mean": (
        lambda states, rewards, gamma: batched_certainty_equivalence(*sums(states, rewards), gamma, never_left="mean"),
        lambda s, r, g: certainty_equivalence(s, r, g, N_STATES, never_left="mean"),
    ),
    "certainty equivalence, zero": (
        lambda states, rewards, gamma: batched_certainty_equivalence(*sums(states, rewards), gamma, never_left="zero"),
        lambda s, r, g: certainty_equivalence(s, r, g, N_STATES, never_left="zero"),
    ),
    "LSTD": (
        lambda states, rewards, gamma: batched_lstd(*sums(states, rewards), gamma, ridge=0.03),
        lambda s, r, g: lstd(s, r, g, N_STATES, ridge=0.03),
    ),
    "tabular TD": (
        lambda states, rewards, gamma: batched_tabular_td(states, rewards, gamma, N_STATES, step_size),
        lambda s, r, g: tabular_td(s, r, g, N_STATES, step_size=step_size),
    ),
}


def check_estimator(batched, single, n):
    states, rewards, gamma = histories(n)
    found = batched(states, rewards, gamma)
    assert found.shape == (N_CONTEXTS, N_STATES)
    assert found.dtype == np.float64
    for i in range(N_CONTEXTS):
        expected = single(states[i], rewards[i], float(gamma[i]))
        # Both solve systems of condition below 2 / (1 - 0.95), or do the same sums in another order.
        np.testing.assert_allclose(found[i], expected, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("n", [1, 4, 60])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_batch_is_a_loop_of_singles(name, n):
    check_estimator(*ESTIMATORS[name], n)


DOUBLES = {
    "the other fill": (ESTIMATORS["certainty equivalence, zero"][0], "certainty equivalence, mean"),
    "the other fill back": (ESTIMATORS["certainty equivalence, mean"][0], "certainty equivalence, zero"),
    "another ridge": (lambda s, r, g: batched_lstd(*sums(s, r), g, ridge=0.04), "LSTD"),
    "successors transposed": (
        lambda s, r, g: batched_lstd(*sums(s, r)[:2], sums(s, r)[2].swapaxes(1, 2), g, ridge=0.03),
        "LSTD",
    ),
    "another context's gamma": (
        lambda s, r, g: batched_certainty_equivalence(*sums(s, r), np.roll(g, 1)),
        "certainty equivalence, mean",
    ),
    "step size late": (
        lambda s, r, g: batched_tabular_td(s, r, g, N_STATES, lambda k: step_size(k + 1)),
        "tabular TD",
    ),
    "reward shifted": (
        lambda s, r, g: batched_tabular_td(s, np.roll(r, 1, axis=1), g, N_STATES, step_size),
        "tabular TD",
    ),
    "state and successor exchanged": (
        lambda s, r, g: batched_tabular_td(s[:, ::-1], r[:, ::-1], g, N_STATES, step_size),
        "tabular TD",
    ),
}


@pytest.mark.parametrize("case", DOUBLES)
def test_the_check_catches(case):
    batched, name = DOUBLES[case]
    with pytest.raises(AssertionError):
        check_estimator(batched, ESTIMATORS[name][1], 4)


def test_without_transitions_every_value_is_zero():
    zeros = np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 3, 3)), np.array([0.0, 0.9])
    for never_left in ("mean", "zero"):
        assert (batched_certainty_equivalence(*zeros, never_left=never_left) == 0).all()
    assert (batched_lstd(*zeros, ridge=0.1) == 0).all()


def test_the_inputs_are_left_alone():
    states, rewards, gamma = histories(9)
    copies = [array.copy() for array in (states, rewards, gamma)]
    for batched, _ in ESTIMATORS.values():
        batched(states, rewards, gamma)
    for array, copy in zip((states, rewards, gamma), copies, strict=True):
        np.testing.assert_array_equal(array, copy)
