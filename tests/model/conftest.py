"""Random prompts with episodes, time limits, padding and extra queries, as arrays and as tensors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch


class Context(NamedTuple):
    features: np.ndarray  # (N, d), extra queries included
    rewards: np.ndarray  # (N,)
    source_mask: np.ndarray  # (N,) bool
    continues: np.ndarray  # (N,)
    state: np.ndarray  # (N,) which row of the feature table
    n_queries: int  # columns after the last one of the trajectory

    @property
    def n_columns(self) -> int:
        """Columns of the trajectory itself."""
        return len(self.features) - self.n_queries

    def prompt(self, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Written out row by row: features, rewards, two memories that start at 0."""
        rows = [*self.features.T, self.rewards, np.zeros(len(self.rewards)), np.zeros(len(self.rewards))]
        return torch.tensor(np.array(rows), dtype=dtype)[None]

    def masks(self) -> dict[str, torch.Tensor]:
        return {"source_mask": torch.tensor(self.source_mask)[None], "continues": torch.tensor(self.continues)[None]}


def make_context(
    rng: np.random.Generator,
    n_transitions: int,
    feature_dim: int,
    *,
    n_states: int = 6,
    padding: int = 0,
    n_queries: int = 0,
    p_end: float = 0.25,
    table: np.ndarray | None = None,
) -> Context:
    table = rng.uniform(-1, 1, (n_states, feature_dim)) if table is None else table
    state, rewards, source, continues = [int(s) for s in rng.integers(n_states, size=padding)], [0.0] * padding, [], []
    source, continues = [False] * padding, [1.0] * padding
    here = int(rng.integers(n_states))

    def column(s: int, reward: float, is_source: bool, c: float) -> None:
        state.append(s)
        rewards.append(reward)
        source.append(is_source)
        continues.append(c)

    for _ in range(n_transitions):
        event = rng.random()
        column(here, rng.uniform(-1, 1), True, 0.0 if event < p_end / 2 else 1.0)
        here = int(rng.integers(n_states))
        if event < p_end:
            column(here, 0.0, False, 1.0)
            here = int(rng.integers(n_states))
    column(here, 0.0, False, 1.0)
    for s in rng.integers(n_states, size=n_queries):
        column(int(s), 0.0, False, 1.0)
    index = np.array(state)
    x = table[index]
    x[:padding] = 0.0
    return Context(x, np.array(rewards), np.array(source), np.array(continues), index, n_queries)


@pytest.fixture
def random_context():
    return make_context
