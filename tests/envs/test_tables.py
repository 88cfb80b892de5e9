"""TabularMDP: what it refuses, what it repairs, and the reward process that a policy makes of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from icrl_agent.envs import TabularMDP, TabularMRP, check_policy, garnet_mdp

GOOD: dict[str, Any] = {
    "transition": [[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.25, 0.75]]],
    "reward": [[1.0, 2.0], [3.0, 4.0]],
    "initial": [1.0, 0.0],
    "terminal": None,
}
BAD = {
    "row sums to 1.01": ({"transition": [[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.25, 0.76]]]}, r"transition\[1, 1\]"),
    "negative entry": ({"transition": [[[0.5, 0.5], [-0.5, 1.5]], [[1.0, 0.0], [0.0, 1.0]]]}, r"transition\[0, 1\]"),
    "nan entry": ({"transition": [[[np.nan, 1.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]]}, r"transition\[0, 0\]"),
    "infinite entry": ({"transition": [[[1.0, 0.0], [0.0, 1.0]], [[np.inf, 0.0], [0.0, 1.0]]]}, r"transition\[1, 0\]"),
    "not square": ({"transition": np.ones((2, 2, 3)) / 3}, r"transition must have shape .*\(2, 2, 3\)"),
    "one axis": ({"transition": [1.0]}, r"transition must have shape .*\(1,\)"),
    "no states": ({"transition": np.zeros((0, 1, 0))}, r"transition must have shape .*\(0, 1, 0\)"),
    "ragged transition": ({"transition": [[1.0, 0.0], [1.0]]}, "transition must be an array of real numbers"),
    "words for rewards": ({"reward": ["a", "b"]}, "reward must be an array of real numbers"),
    "rewards of another shape": (
        {"reward": [[1.0], [2.0]]},
        r"reward must have shape \(2, 2\) or \(2,\), got \(2, 1\)",
    ),
    "nan reward": ({"reward": [[1.0, 2.0], [np.nan, 4.0]]}, r"reward\[1, 0\] is nan"),
    "infinite reward": ({"reward": [[1.0, -np.inf], [3.0, 4.0]]}, r"reward\[0, 1\] is -inf"),
    "initial of another shape": ({"initial": [1.0, 0.0, 0.0]}, r"initial must have shape \(2,\), got \(3,\)"),
    "initial sums to 2": ({"initial": [1.0, 1.0]}, "initial must be non-negative and sum to 1"),
    "start in a terminal state": ({"terminal": [True, False]}, "terminal state 0"),
    "terminal as numbers": ({"terminal": [0, 1]}, "terminal must be 2 booleans, got int64"),
    "terminal of another shape": ({"terminal": [False]}, r"terminal must be 2 booleans, got bool .*\(1,\)"),
}


def check_refused(make: Callable[..., Any], change: dict[str, Any], message: str) -> None:
    try:
        make(**{**GOOD, **change})
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert re.search(message, str(error))  # noqa: PT017
    else:
        raise AssertionError("bad tables were accepted")


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_bad_tables_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    check_refused(TabularMDP, change, message)
    TabularMDP(**GOOD)  # the unchanged tables are fine


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_refusal_check_catches_tables_that_are_not_validated(change: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError):
        check_refused(TabularMRP, change, message)


def check_repaired(make: Callable[..., TabularMDP], dtype: type) -> None:
    """Rows rounded to ``dtype`` come out as float64 distributions: sums off by at most S rounding units."""
    exact = garnet_mdp(n_states=40, n_actions=2, branching=37, task_seed=5)
    mdp = make(exact.transition.astype(dtype), exact.reward, exact.initial.astype(dtype))
    assert mdp.transition.dtype == mdp.initial.dtype == mdp.reward.dtype == np.float64
    for row in [*mdp.transition.reshape(-1, 40), mdp.initial]:
        assert abs(sum(row.tolist()) - 1) <= 40 * np.finfo(np.float64).eps
    assert np.abs(mdp.transition - exact.transition).max() <= 40 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounded_rows_are_repaired(dtype: type) -> None:
    check_repaired(TabularMDP, dtype)


def test_repair_check_catches_rows_left_as_they_are() -> None:
    def unrepaired(transition: Any, reward: Any, initial: Any) -> Any:
        return TabularMRP(np.asarray(transition, np.float64), reward, np.asarray(initial, np.float64), None)

    with pytest.raises(AssertionError):
        check_repaired(unrepaired, np.float32)


def check_terminal_rows(mdp: Any) -> None:
    for s in np.flatnonzero(mdp.terminal):
        for a in range(mdp.transition.shape[1]):
            assert mdp.transition[s, a].tolist() == [float(t == s) for t in range(len(mdp.transition))]
            assert mdp.reward[s, a] == 0.0


def test_terminal_rows_become_loops_without_reward() -> None:
    transition = np.array(GOOD["transition"])
    transition[1] = np.nan  # whatever stands in a terminal row
    tables = (transition, [[1.0, 2.0], [np.inf, 4.0]], [1.0, 0.0], np.array([False, True]))
    check_terminal_rows(TabularMDP(*tables))
    with pytest.raises(AssertionError):
        check_terminal_rows(TabularMRP(np.array(GOOD["transition"]), np.array(GOOD["reward"]), None, tables[3]))


def test_short_forms_hold_for_one_action_and_for_every_action() -> None:
    one_action = TabularMDP([[0.0, 1.0], [1.0, 0.0]], [1.0, -1.0], [1.0, 0.0])
    assert one_action.transition.shape == (2, 1, 2)
    assert one_action.reward.tolist() == [[1.0], [-1.0]]
    assert one_action.terminal.tolist() == [False, False]
    assert TabularMDP(**{**GOOD, "reward": [5.0, 6.0]}).reward.tolist() == [[5.0, 5.0], [6.0, 6.0]]


def check_frozen(tables: Any) -> None:
    for name in ("transition", "reward", "initial", "terminal"):
        array = getattr(tables, name)
        with pytest.raises(ValueError, match="read-only"):
            array[...] = array
        with pytest.raises(AttributeError):
            setattr(tables, name, array)


def test_tables_are_frozen_and_leave_the_callers_arrays_alone(example_mdp: TabularMDP) -> None:
    check_frozen(example_mdp)
    check_frozen(example_mdp.policy_mrp())
    mine = np.array([[0.0, 1.0], [1.0, 0.0]])
    mdp = TabularMDP(mine, [1.0, 0.0], [1.0, 0.0])
    mine[0] = [1.0, 0.0]
    assert mdp.transition[0, 0].tolist() == [0.0, 1.0]


def test_frozen_check_catches_writable_arrays(example_mdp: TabularMDP) -> None:
    writable = TabularMRP(*(np.array(getattr(example_mdp, n)) for n in ("transition", "reward", "initial", "terminal")))
    with pytest.raises(pytest.fail.Exception):
        check_frozen(writable)


def check_policy_mrp(fold: Callable[[TabularMDP, Any], TabularMRP], mdp: TabularMDP, policy: Any) -> None:
    """Sums over actions in plain loops; each of A products may be off by a rounding unit."""
    probabilities = [[1.0 / mdp.n_actions] * mdp.n_actions] * mdp.n_states if policy is None else policy
    mrp = fold(mdp, policy)
    tolerance = 4 * mdp.n_actions * np.finfo(np.float64).eps
    for s in range(mdp.n_states):
        r = sum(probabilities[s][a] * mdp.reward[s, a] for a in range(mdp.n_actions))
        assert abs(mrp.reward[s] - r) <= tolerance
        for t in range(mdp.n_states):
            p = sum(probabilities[s][a] * mdp.transition[s, a, t] for a in range(mdp.n_actions))
            assert abs(mrp.transition[s, t] - p) <= tolerance
    assert np.array_equal(mrp.initial, mdp.initial)
    assert np.array_equal(mrp.terminal, mdp.terminal)


POLICIES = {"uniform": None, "table": [[0.1, 0.9], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_policy_mrp_equals_loops(example_mdp: TabularMDP, policy: Any) -> None:
    check_policy_mrp(TabularMDP.policy_mrp, example_mdp, policy)


def test_policy_check_catches_a_dropped_policy_and_swapped_actions(example_mdp: TabularMDP) -> None:
    with pytest.raises(AssertionError):
        check_policy_mrp(lambda mdp, policy: mdp.policy_mrp(), example_mdp, POLICIES["table"])
    with pytest.raises(AssertionError):
        check_policy_mrp(lambda mdp, policy: mdp.policy_mrp(np.flip(policy, axis=1)), example_mdp, POLICIES["table"])


BAD_POLICIES = {
    "shape": ([[1.0, 0.0]], r"shape \(n_states, n_actions\) = \(2, 2\), got \(1, 2\)"),
    "row sum": ([[1.0, 0.0], [0.5, 0.6]], r"policy\[1\] must be non-negative and sum to 1"),
    "negative": ([[1.5, -0.5], [0.5, 0.5]], r"policy\[0\] must be non-negative"),
    "words": ("left", r"a policy table holds numbers of shape \(2, 2\)"),
}


@pytest.mark.parametrize(("policy", "message"), BAD_POLICIES.values(), ids=BAD_POLICIES)
def test_bad_policies_are_refused_by_row(policy: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TabularMDP(**GOOD).policy_mrp(policy)
    with pytest.raises(ValueError, match=message):
        check_policy(policy, 2, 2)


def test_same_tables_sees_every_table(example_mdp: TabularMDP) -> None:
    names = ("transition", "reward", "initial", "terminal")
    arrays = {name: np.array(getattr(example_mdp, name)) for name in names}
    assert example_mdp.same_tables(TabularMDP(**arrays))
    for name, changed in {
        "transition": np.roll(arrays["transition"], 1, axis=1),
        "reward": arrays["reward"] + ~arrays["terminal"][:, None],
        "initial": arrays["initial"][[1, 0, 2, 3]],
        "terminal": np.array([False, False, False, False]),
    }.items():
        assert not example_mdp.same_tables(TabularMDP(**{**arrays, name: changed})), name
