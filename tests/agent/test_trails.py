"""Successive blocks: every transition once, each leaves where the one before arrived, order does not matter."""

from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest

from icrl_agent import trails
from icrl_agent.collect import collect
from icrl_agent.context import build_context
from icrl_agent.features import OneHot, RandomFourier
from icrl_agent.logged_data import transitions_from_arrays
from icrl_agent.trails import successive_blocks


def walk(n=400, n_states=6, seed=0):
    """Moves between few states, a tenth of which terminate."""
    rng = np.random.default_rng(seed)
    state, entered = rng.integers(n_states, size=(2, n))
    t = transitions_from_arrays(state, rng.normal(size=n), entered, rng.random(n) < 0.1)
    return build_context(t, OneHot(n_states), t.observations[:0])


def check_blocks(blocks, context, longest):
    n = len(context.rewards)
    assert sorted(np.concatenate(blocks)) == list(range(n))
    assert max(map(len, blocks)) <= longest
    for block in blocks:
        np.testing.assert_array_equal(context.next_state[block[:-1]], context.source_state[block[1:]])
        assert context.continues[block[:-1]].all()


@pytest.mark.parametrize("longest", [1, 7, 400])
def test_blocks_of_few_states_are_successions(longest):
    for seed in range(5):
        context = walk(seed=seed)
        check_blocks(successive_blocks(context, longest), context, longest)


def test_departures_are_used_up():
    """The pairing leaves no arrival without a departure while there is one: trails are as long as they can be."""
    context = walk()
    ends = [block[-1] for block in successive_blocks(context, 400)]
    going_on = [t for t in ends if context.continues[t]]
    arrivals = np.bincount(context.next_state[context.continues > 0], minlength=6)
    departures = np.bincount(context.source_state, minlength=6)
    # Cycles end where they were entered; every other trail that goes on lacks a departure.
    lacking = np.maximum(arrivals - departures, 0).sum()
    n_cycles = sum(
        bool(context.continues[block[-1]]) and context.next_state[block[-1]] == context.source_state[block[0]]
        for block in successive_blocks(context, 400)
    )
    assert lacking <= len(going_on) <= lacking + n_cycles


def test_ends_cut(monkeypatch):
    original = trails._following

    def through_ends(context, order):
        return original(type(context)(**{**vars(context), "continues": np.ones(len(order))}), order)

    monkeypatch.setattr(trails, "_following", through_ends)
    with pytest.raises(AssertionError):
        check_blocks(successive_blocks(walk(), 400), walk(), 400)


def test_states_that_are_left_once_make_the_trajectory():
    t = collect(gym.make("CartPole-v1"), None, 200, 3)
    mixed = np.random.default_rng(0).permutation(200)
    shuffled = transitions_from_arrays(
        t.observations[mixed], t.rewards[mixed], t.next_observations[mixed], t.terminated[mixed], t.truncated[mixed]
    )
    context = build_context(shuffled, RandomFourier(0.0, 1.0, 8), t.observations[:0])
    found = {tuple(mixed[block]) for block in successive_blocks(context, 200)}
    cuts = sorted({0, 200, *(np.flatnonzero(t.terminated | t.truncated) + 1)})
    assert found == {tuple(range(first, last)) for first, last in pairwise(cuts)}


def test_rows_order_does_not_matter():
    context = walk()
    mixed = np.random.default_rng(1).permutation(400)
    names = ("source_state", "next_state", "rewards", "continues")
    other = type(context)(**{**vars(context), **{name: getattr(context, name)[mixed] for name in names}})
    for block, same in zip(successive_blocks(context, 9), successive_blocks(other, 9), strict=True):
        np.testing.assert_array_equal(context.rewards[block], other.rewards[same])
