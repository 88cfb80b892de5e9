"""Transitions in succession, from a context that may have lost their order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icrl_agent.context import Context

__all__ = ["successive_blocks"]

IntArray = NDArray[np.intp]


def successive_blocks(context: Context, longest: int, seed: int = 0) -> list[IntArray]:
    """Cut a context into blocks of transitions, each of which leaves the state that the one before it entered.

    The arrivals at a state are paired with the departures from it, one to one and at random; by the Markov property
    what follows an arrival is distributed as it is in the trajectory itself. Where every state is left at most once,
    as states of continuous observations are, this is the trajectory. The pairs make trails, which end where a
    transition terminated or no departure is left, and are cut after every ``longest`` transitions. Source: ours.

    Args:
        context: n transitions; their order does not matter.
        longest: most transitions in a block, at least 1.
        seed: of the pairing.

    Returns:
        Indices of transitions, each block in its own order; every transition is in exactly one block.

    >>> from icrl_agent.features import OneHot
    >>> from icrl_agent.context import build_context
    >>> from icrl_agent.logged_data import transitions_from_arrays
    >>> walk = transitions_from_arrays([2, 0, 1], [0.0] * 3, [3, 1, 2], [False] * 3)
    >>> [block.tolist() for block in successive_blocks(build_context(walk, OneHot(4), walk.observations[:0]), 2)]
    [[1, 2], [0]]
    """
    order = np.lexsort((context.continues, context.rewards, context.next_state, context.source_state))
    order = order[np.random.default_rng(seed).permutation(len(order))]
    following = _following(context, order)
    preceded = np.zeros(len(order), bool)
    preceded[following[following >= 0]] = True
    placed = np.zeros(len(order), bool)
    blocks = []
    # Trails from their beginnings; what is left then are cycles, which may be entered anywhere.
    for beginning in (*order[~preceded[order]].tolist(), *order.tolist()):
        trail, at = [], beginning
        while at >= 0 and not placed[at]:
            placed[at] = True
            trail.append(at)
            at = int(following[at])
        blocks += [np.array(trail[start : start + longest]) for start in range(0, len(trail), longest)]
    return blocks


def _following(context: Context, order: IntArray) -> IntArray:
    """The transition paired with each transition's arrival, (n,); -1 = none."""
    departures = order[np.argsort(context.source_state[order], kind="stable")]
    going_on = order[context.continues[order] > 0]
    arrivals = going_on[np.argsort(context.next_state[going_on], kind="stable")]
    n_states = len(context.features)
    n_departures = np.bincount(context.source_state, minlength=n_states)
    n_arrivals = np.bincount(context.next_state[going_on], minlength=n_states)
    state = context.next_state[arrivals]
    rank = np.arange(len(arrivals)) - (np.cumsum(n_arrivals) - n_arrivals)[state]
    paired = rank < n_departures[state]
    following = np.full(len(order), -1)
    following[arrivals[paired]] = departures[((np.cumsum(n_departures) - n_departures)[state] + rank)[paired]]
    return following
