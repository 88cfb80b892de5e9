"""A context by distinct states: what the merged engine needs to know about experience or about a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from icrl_agent.algorithms.kernel import LayerMap, empirical_kernel
from icrl_agent.features import FeatureMap
from icrl_agent.model import MergedContext, merge_transitions
from icrl_agent.prompt import MEMORY_ROWS, feature_rows, reward_row
from icrl_agent.transitions import Transitions

__all__ = ["Context", "build_context", "build_contexts", "prompt_context"]

IntArray = NDArray[np.intp]
FloatArray = NDArray[np.float64]

#: Above this many distinct states the empirical transitions are kept sparse.
LARGEST_DENSE = 512


@dataclass(frozen=True, eq=False)
class Context:
    """n transitions between S distinct states, and m queries among these states.

    Args:
        features: float64 (S, d).
        source_state: state that each transition leaves, (n,).
        next_state: state that it enters, (n,).
        rewards: float64 (n,).
        continues: 0 where the transition terminated, else 1, float64 (n,).
        queries: raw observations of the queries, (m, ...).
        query_state: state of each query, (m,).
    """

    features: FloatArray
    source_state: IntArray
    next_state: IntArray
    rewards: FloatArray
    continues: FloatArray
    queries: NDArray[Any]
    query_state: IntArray

    @property
    def visits(self) -> NDArray[np.int64]:
        """Transitions that left each state, (S,)."""
        return np.bincount(self.source_state, minlength=len(self.features))

    @property
    def query_is_terminal(self) -> NDArray[np.bool_]:
        """Queries seen only as the end of terminated transitions, (m,)."""
        n_states = len(self.features)
        ended = np.bincount(self.next_state[self.continues == 0], minlength=n_states)
        went_on = np.bincount(self.next_state[self.continues > 0], minlength=n_states)
        return np.asarray(((ended > 0) & (went_on == 0) & (self.visits == 0))[self.query_state])

    def never_ending_state(self) -> int | None:
        """A state that was left but from which no recorded path leads to a terminated transition; None if all do."""
        ends = np.zeros(len(self.features), bool)
        ends[self.source_state[self.continues == 0]] = True
        while True:
            reaching = ends.copy()
            reaching[self.source_state[ends[self.next_state]]] = True
            if np.array_equal(reaching, ends):
                break
            ends = reaching
        endless = np.flatnonzero((self.visits > 0) & ~ends)
        return int(endless[0]) if len(endless) else None

    def merged(self, device: torch.device) -> MergedContext:
        """The sums by state that the merged engine works on, a batch of one, float64."""

        def batch_of_one(array: NDArray[Any]) -> torch.Tensor:
            return torch.as_tensor(array, device=device)[None]

        return merge_transitions(
            batch_of_one(self.features),
            batch_of_one(self.source_state),
            batch_of_one(self.next_state),
            batch_of_one(self.rewards),
            batch_of_one(self.continues),
            sparse=len(self.features) > LARGEST_DENSE,
        )

    def layer_map(self, attention: FloatArray) -> LayerMap:
        """The reference's kernel of this context, with score(query, source) = x(source)' A x(query)."""
        columns = self.column_states()
        pairs = columns[: 2 * len(self.rewards)]
        rewards = np.stack([self.rewards, np.zeros_like(self.rewards)], axis=1).reshape(-1)
        return empirical_kernel(
            self.features[pairs],
            rewards[:-1],
            score=lambda query, source: query @ (source @ attention).T,
            continues=np.repeat(self.continues, 2),
            source_mask=np.arange(len(pairs)) % 2 == 0,
            queries=self.features[self.query_state],
        )

    def column_states(self) -> IntArray:
        """States of the columns of ``layer_map``: what each transition leaves and enters, in turn, then the queries."""
        pairs = np.stack([self.source_state, self.next_state], axis=1).reshape(-1)
        return np.concatenate([pairs, self.query_state])


def build_context(transitions: Transitions, feature_map: FeatureMap, queries: NDArray[Any]) -> Context:
    """Merge the observations of transitions and queries into distinct states and map them to features."""
    return build_contexts([transitions], feature_map, queries)[0]


def build_contexts(transitions: Sequence[Transitions], feature_map: FeatureMap, queries: NDArray[Any]) -> list[Context]:
    """One context per copy; all of them number the distinct states of all copies in the same way."""
    sizes = [len(one) for one in transitions]
    sources, successors = (
        np.concatenate([getattr(one, name) for one in transitions]) for name in ("observations", "next_observations")
    )
    distinct, state = _distinct(np.concatenate([sources, successors, queries]))
    features = np.asarray(feature_map(distinct), dtype=np.float64)
    source_state, next_state, query_state = np.split(state, [len(sources), 2 * len(sources)])
    ends = np.cumsum(sizes)[:-1]
    parts = zip(transitions, np.split(source_state, ends), np.split(next_state, ends), strict=True)
    return [
        Context(features, left, entered, one.rewards, one.continues, queries, query_state)
        for one, left, entered in parts
    ]


def prompt_context(observation: Mapping[str, Any], feature_dim: int) -> Context:
    """Read one ``HistoryWrapper`` observation; its last column is the query.

    Raises:
        ValueError: for a missing part or a prompt of another shape.
    """
    missing = [name for name in ("prompt", "source_mask", "continues") if name not in observation]
    if missing:
        raise ValueError(f"an observation needs prompt, source_mask and continues, got no {' and no '.join(missing)}")
    prompt = np.asarray(observation["prompt"], dtype=np.float64)
    if prompt.ndim != 2 or prompt.shape[0] != feature_dim + MEMORY_ROWS:
        raise ValueError(
            f"prompt must have shape (feature_dim + 3, n + 1) with feature_dim = {feature_dim}, got {prompt.shape}"
        )
    n_columns = prompt.shape[1]
    if n_columns == 0 or not np.isfinite(prompt).all():
        raise ValueError("prompt must hold at least the query's column and finite numbers only")
    source_mask = np.asarray(observation["source_mask"]).astype(bool)
    continues = np.asarray(observation["continues"], dtype=np.float64)
    if source_mask.shape != (n_columns,) or continues.shape != (n_columns,) or source_mask[-1]:
        raise ValueError(f"source_mask and continues must have shape ({n_columns},), the last column being no source")
    if not np.isin(continues, (0.0, 1.0)).all():
        raise ValueError("continues must hold 0 and 1 only")
    sources = np.flatnonzero(source_mask)
    columns = np.ascontiguousarray(prompt[feature_rows(feature_dim)].T)
    # Only columns that something reads: sources, their successors, the query.
    features, state = _distinct(np.concatenate([columns[sources], columns[sources + 1], columns[-1:]]))
    return Context(
        features=features,
        source_state=state[: len(sources)],
        next_state=state[len(sources) : -1],
        rewards=prompt[reward_row(feature_dim), sources],
        continues=continues[sources],
        queries=columns[-1:],
        query_state=state[-1:],
    )


def _distinct(rows: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Distinct rows and the index of every row among them."""
    if rows.ndim == 1:
        distinct, state = np.unique(rows, return_inverse=True)
    else:
        flat = rows.reshape(len(rows), -1)
        distinct, state = np.unique(flat, axis=0, return_inverse=True)
        distinct = distinct.reshape(len(distinct), *rows.shape[1:])
    return distinct, state.reshape(-1)
