"""The action values that a context gives at one moment: a function of the observation that stays as it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icrl_agent.control.exploration import Epsilon, Exploration, Optimism, epsilon_greedy
from icrl_agent.control.targets import (
    PairSums,
    Successors,
    Target,
    TargetKind,
    expected_target,
    greedy_target,
    pair_errors,
    recorded_target,
)
from icrl_agent.features import PairFeatures
from icrl_agent.streaming import Stream
from icrl_agent.streaming.layers import Attention, attend, attention_by_state

__all__ = ["Reading", "read"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reading:
    """What the layers made of a context: q(o, a) = K(o, a, :) D, plus the bonus where exploration is optimistic."""

    pair_map: PairFeatures
    attention: FloatArray
    """A's feature blocks, (W, d, d)."""
    sources: FloatArray
    """Features of the pairs that were left, (P, d)."""
    counts: FloatArray
    """Transitions that left each, (P,)."""
    errors: FloatArray
    """D, (W, P)."""
    optimism: Optimism | None = None

    def q_values(self, observations: ArrayLike) -> FloatArray:
        """Values of all actions for observations (m, k), float64 (m, A)."""
        x = self.pair_map.of_all_actions(observations)
        flat = x.reshape(-1, x.shape[2])
        scores = _scores(flat, self.sources, self.attention)
        q = attend(_attentions(scores, self.counts), self.errors).reshape(x.shape[:2])
        if self.optimism is not None:
            q = q + self.optimism.bonus(_mass(flat, scores[0], self.counts, self.attention[0])).reshape(x.shape[:2])
        return np.asarray(q)


def read(
    stream: Stream,
    pair_map: PairFeatures,
    target: TargetKind,
    optimism: Optimism | None = None,
    policy: tuple[Reading | None, float] | None = None,
) -> Reading:
    """Run all layers on a stream of pairs, from zero memory.

    Args:
        stream: its observations are pairs.
        pair_map: its feature map.
        target: what a target memory reads.
        optimism: adds its bonus to the successors' values and to the reading; None = no bonus.
        policy: for "expected": the reading that acts, None for a uniformly random policy, and epsilon.

    Raises:
        ValueError: for layers that diverge.
    """
    history, weights = stream.history, stream.weights
    sums = history.sums
    left = np.flatnonzero(sums.counts > 0)
    touched = np.flatnonzero((sums.counts > 0) | (sums.successors > 0).any(axis=0))
    attention, sources, counts = weights.attention, history.features[left], sums.counts[left]
    if not len(left):
        return Reading(pair_map, attention, sources, counts, np.zeros((len(attention), 0)), optimism)
    pairs = stream.observations
    states, state_of = np.unique(pairs[touched, :-1], axis=0, return_inverse=True)
    n_actions, shape = pair_map.n_actions, (len(states), pair_map.n_actions)
    state, action = np.zeros((2, history.size), np.intp)
    state[touched] = state_of.reshape(-1)
    action[touched] = pairs[touched, -1] - pair_map.start
    source, slot = np.nonzero(sums.successors[left])
    successors = Successors(source, state[slot], action[slot], sums.successors[left[source], slot])
    by_pair = PairSums(state[left] * n_actions + action[left], counts, sums.rewards[left], successors)

    x = pair_map.of_all_actions(states).reshape(-1, pair_map.dim)
    scores = _scores(x, sources, attention)
    bonus = None if optimism is None else optimism.bonus(_mass(x, scores[0], counts, attention[0])).reshape(shape)
    errors = pair_errors(
        _attentions(scores, counts),
        by_pair,
        _target(target, successors, len(left), states, n_actions, policy),
        shape,
        weights.entries,
        stream.gamma,
        stream.n_layers,
        bonus,
        stream.tolerance,
    )
    if not np.isfinite(errors).all():
        raise ValueError(
            f"the values after {stream.n_layers} layers are not finite: the layers diverge on this context, or the"
            " rewards are too large"
        )
    return Reading(pair_map, attention, sources, counts, errors, optimism)


def acting_probabilities(acting: Reading | None, epsilon: float, observations: ArrayLike, n_actions: int) -> FloatArray:
    """pi(a|o) of a reading that acts, uniform without one: (m, A)."""
    q = np.zeros((len(np.asarray(observations)), n_actions)) if acting is None else acting.q_values(observations)
    return epsilon_greedy(q, epsilon)


def current_epsilon(exploration: Exploration, step: int) -> float:
    """Probability of a random action at a step; an optimist takes none."""
    return exploration.at(step) if isinstance(exploration, Epsilon) else 0.0


def _target(
    kind: TargetKind,
    successors: Successors,
    n_pairs: int,
    states: FloatArray,
    n_actions: int,
    policy: tuple[Reading | None, float] | None,
) -> Target:
    if kind == "recorded":
        return partial(recorded_target, successors, n_pairs)
    if kind == "greedy":
        return partial(greedy_target, successors, n_pairs)
    acting, epsilon = (None, 0.0) if policy is None else policy
    probabilities = acting_probabilities(acting, epsilon, states, n_actions)
    return partial(expected_target, successors, n_pairs, probabilities=probabilities)


def _scores(x: FloatArray, sources: FloatArray, attention: FloatArray) -> FloatArray:
    """score(query, source) = x(source)' A x(query): (W, m, P)."""
    return np.asarray(x @ (sources @ attention).swapaxes(1, 2))


def _attentions(scores: FloatArray, counts: FloatArray) -> list[Attention]:
    return [attention_by_state(one, counts) for one in scores]


def _mass(x: FloatArray, scores: FloatArray, counts: FloatArray, attention: FloatArray) -> FloatArray:
    own = ((x @ attention.T) * x).sum(axis=1, keepdims=True)
    return np.asarray(np.exp(np.minimum(scores - own, 0.0)) @ counts)
