"""Random histories in column form, with episodes, time limits and padding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest


class History(NamedTuple):
    states: np.ndarray  # (N,)
    rewards: np.ndarray  # (N - 1,)
    source_mask: np.ndarray  # (N,)
    continues: np.ndarray  # (N,)
    n_states: int

    @property
    def masks(self) -> dict[str, np.ndarray]:
        return {"source_mask": self.source_mask, "continues": self.continues}

    @property
    def sources(self) -> list[int]:
        return [int(j) for j in np.flatnonzero(self.source_mask)]


def make_history(
    rng: np.random.Generator,
    n_transitions: int,
    n_states: int = 5,
    *,
    p_terminated: float = 0.12,
    p_truncated: float = 0.12,
    padding: int = 0,
) -> History:
    """Uniformly random moves; an ended episode's last state has a column of its own, the query is last."""
    states, rewards = rng.integers(n_states, size=padding).tolist(), rng.normal(size=padding).tolist()
    source, continues = [False] * padding, rng.integers(2, size=padding).astype(float).tolist()

    def column(state: int, reward: float, is_source: bool, c: float) -> None:
        states.append(state)
        rewards.append(reward)
        source.append(is_source)
        continues.append(c)

    state = int(rng.integers(n_states))
    for _ in range(n_transitions):
        successor, event = int(rng.integers(n_states)), rng.random()
        terminated = event < p_terminated
        column(state, float(rng.normal()), True, 0.0 if terminated else 1.0)
        state = successor
        if terminated or event < p_terminated + p_truncated:
            column(successor, 0.0, False, 1.0)
            state = int(rng.integers(n_states))
    column(state, 0.0, False, 1.0)
    return History(np.array(states), np.array(rewards[:-1]), np.array(source), np.array(continues), n_states)


@pytest.fixture
def random_history():
    return make_history
