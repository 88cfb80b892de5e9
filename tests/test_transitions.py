"""Transitions in column form against a slow loop: interleaved copies, episode ends, the record's end."""

import numpy as np
import pytest

from icrl_agent.transitions import Columns, Transitions


def record(n, lengths, kinds, *, shape=(), seed=0):
    """Interleaved episodes of fixed lengths; copy c's states are 1000 c, 1000 c + 1, ... and never repeat."""
    rng = np.random.default_rng(seed)
    state, age = [1000 * c for c in range(len(lengths))], [0] * len(lengths)
    rows = []
    for k in range(n):
        c = k % len(lengths)
        left, state[c], age[c] = state[c], state[c] + 1, age[c] + 1
        ended = age[c] == lengths[c]
        rows.append(
            (left, rng.normal(), state[c], ended and kinds[c] != "truncated", ended and kinds[c] != "terminated", c)
        )
        if ended:
            state[c], age[c] = state[c] + 1, 0
    left, rewards, entered, terminated, truncated, copy = (np.array(part) for part in zip(*rows, strict=True))

    def observe(states):
        return np.broadcast_to(states.reshape(-1, *[1] * len(shape)), (n, *shape)).copy()

    return Transitions(observe(left), rewards, observe(entered), terminated.astype(bool), truncated.astype(bool), copy)


def slow_columns(transitions):
    """Copy by copy, step by step, appending to lists."""
    observations, rewards, source_mask, continues = [], [], [], []
    for c in sorted(set(transitions.copy.tolist())):
        mine = [k for k in range(len(transitions)) if transitions.copy[k] == c]
        for k in mine:
            observations.append(transitions.observations[k])
            rewards.append(transitions.rewards[k])
            source_mask.append(True)
            continues.append(0.0 if transitions.terminated[k] else 1.0)
            if transitions.terminated[k] or transitions.truncated[k] or k == mine[-1]:
                observations.append(transitions.next_observations[k])
                rewards.append(0.0)
                source_mask.append(False)
                continues.append(1.0)
    return Columns(np.array(observations), np.array(rewards[:-1]), np.array(source_mask), np.array(continues))


def check_columns(to_columns, transitions):
    got, expected = to_columns(transitions), slow_columns(transitions)
    for name, g, e in zip(Columns._fields, got, expected, strict=True):
        assert g.dtype == e.dtype, name
        np.testing.assert_array_equal(g, e, err_msg=name)


def limit_is_termination_double(t):
    return Transitions(
        t.observations, t.rewards, t.next_observations, t.terminated | t.truncated, t.truncated, t.copy
    ).columns()


def one_copy_double(t):
    return Transitions(t.observations, t.rewards, t.next_observations, t.terminated, t.truncated, 0 * t.copy).columns()


def shifted_reward_double(t):
    columns = t.columns()
    return columns._replace(rewards=np.roll(columns.rewards, 1))


def bootstraps_double(t):
    columns = t.columns()
    return columns._replace(continues=np.ones_like(columns.continues))


def next_start_double(t):
    """Puts the next episode's first state where the last state of the ended one belongs."""
    columns = t.columns()
    wrong = columns.observations.copy()
    inner = np.flatnonzero(~columns.source_mask[:-1])
    wrong[inner] = wrong[inner + 1]
    return columns._replace(observations=wrong)


FIELDS = ("observations", "rewards", "next_observations", "terminated", "truncated", "copy")
KINDS = [("terminated", "truncated"), ("truncated", "truncated"), ("both", "terminated"), ("both", "both")]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 13, 14, 15, 100])
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_two_interleaved_copies_with_episodes_of_3_and_7(n, kinds):
    check_columns(Transitions.columns, record(n, (3, 7), kinds))


@pytest.mark.parametrize("shape", [(2,), (2, 3)])
def test_observations_of_any_shape(shape):
    check_columns(Transitions.columns, record(40, (3, 7, 1), ("terminated", "truncated", "both"), shape=shape))


@pytest.mark.parametrize(
    "double",
    [limit_is_termination_double, one_copy_double, shifted_reward_double, bootstraps_double, next_start_double],
)
def test_columns_check_catches(double):
    with pytest.raises(AssertionError):
        check_columns(double, record(40, (3, 7), ("terminated", "truncated")))


def check_neighbours(columns):
    """Every source's successor column is the state it entered: one more, in the same copy."""
    source = np.flatnonzero(columns.source_mask)
    np.testing.assert_array_equal(columns.observations[source + 1], columns.observations[source] + 1)


def test_neither_copy_touches_the_others():
    transitions = record(101, (3, 7), ("truncated", "terminated"))
    columns = transitions.columns()
    check_neighbours(columns)
    for c in (0, 1):
        mine = columns.observations // 1000 == c
        rows = np.flatnonzero(transitions.copy == c)
        parts = (getattr(transitions, name)[rows] for name in FIELDS)
        alone = Transitions(*parts).columns().observations
        np.testing.assert_array_equal(columns.observations[mine], alone)
        assert np.ptp(np.flatnonzero(mine)) == mine.sum() - 1  # side by side
        assert columns.source_mask[mine].sum() == (transitions.copy == c).sum()
    with pytest.raises(AssertionError):
        check_neighbours(next_start_double(transitions))


def test_rows_in_any_order_keep_their_successors():
    transitions = record(40, (3, 7), KINDS[0])
    shuffled = np.random.default_rng(0).permutation(40)
    columns = Transitions(*(getattr(transitions, name)[shuffled] for name in FIELDS)).columns()
    source = np.flatnonzero(columns.source_mask)
    got = {(columns.observations[j], columns.observations[j + 1], columns.rewards[j]) for j in source}
    assert got == set(zip(transitions.observations, transitions.next_observations, transitions.rewards, strict=True))
    check_neighbours(columns)


def test_literal_columns():
    flags = np.array([False, False, False, True]), np.array([False, True, False, True])
    transitions = Transitions(
        np.array([1, 2, 7, 8]), np.array([10.0, 20.0, 70.0, 80.0]), np.array([2, 3, 8, 9]), *flags, np.zeros(4, int)
    )
    columns = transitions.columns()
    assert columns.observations.tolist() == [1, 2, 3, 7, 8, 9]
    assert columns.rewards.tolist() == [10, 20, 0, 70, 80]
    assert columns.source_mask.tolist() == [True, True, False, True, True, False]
    assert columns.continues.tolist() == [1, 1, 1, 1, 0, 1]
    assert transitions.continues.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("n", [1, 5, 20])
def test_first_is_the_record_cut_there(n):
    transitions, shorter = record(20, (3, 7), KINDS[0]), record(n, (3, 7), KINDS[0])
    first = transitions.first(n)
    assert len(first) == n
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(first, name), getattr(shorter, name))


def test_columns_do_not_alias_the_record():
    transitions = record(10, (3, 7), KINDS[0])
    before = transitions.observations.copy()
    transitions.columns().observations[:] = -1
    np.testing.assert_array_equal(transitions.observations, before)
