"""The prompt matrix: which row holds what, and how a trajectory becomes columns.

A prompt of n transitions with d features is a (d + 3) x (n + 1) matrix; column j stands for state S_j:

    rows 0 .. d-1   x(S_j)          features
    row  d          R_{j+1}         reward of the transition that leaves S_j (0 in the last column, the query)
    row  d+1        target memory   starts at 0, will hold gamma * continues_j * v(S_{j+1})
    row  d+2        current memory  starts at 0, will hold v(S_j)

Two arrays of length n + 1 travel with it. ``source_mask[j]`` says that column j starts a real transition
(False for padding, for the last state of an episode and for queries). ``continues[j]`` is 0 where the transition
j -> j+1 terminated, else 1. This module is the only place that knows the row indices. The layout is that of
Xie et al. (2026), eqs 1-3; masks, padding and episode ends are this project's extension.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "MEMORY_ROWS",
    "Prompt",
    "PromptBuffer",
    "VectorPromptBuffer",
    "append_queries",
    "build_prompt",
    "current_row",
    "feature_rows",
    "reward_row",
    "target_row",
]

#: Rows below the features: reward, target memory, current memory.
MEMORY_ROWS = 3


def feature_rows(feature_dim: int) -> slice:
    """Rows of the features."""
    return slice(0, feature_dim)


def reward_row(feature_dim: int) -> int:
    """Row of the rewards."""
    return feature_dim


def target_row(feature_dim: int) -> int:
    """Row of the target memory, gamma * continues_j * v(S_{j+1})."""
    return feature_dim + 1


def current_row(feature_dim: int) -> int:
    """Row of the current memory, v(S_j): the output."""
    return feature_dim + 2


class Prompt(NamedTuple):
    """A prompt and the two arrays that travel with it; leading axes, if any, are batch axes."""

    matrix: NDArray[Any]
    """(..., d + 3, n + 1), floating."""
    source_mask: NDArray[np.bool_]
    """(..., n + 1), True where a column starts a real transition."""
    continues: NDArray[Any]
    """(..., n + 1), 0 where the transition terminated, else 1; the matrix's dtype."""


def build_prompt(features: NDArray[Any], rewards: ArrayLike) -> NDArray[Any]:
    """Write one unbroken trajectory S_0, R_1, S_1, ..., R_n, S_n as a prompt matrix (Xie et al. 2026, eqs 1-3).

    Args:
        features: x(S_0) .. x(S_n), shape (..., n + 1, d), floating.
        rewards: R_1 .. R_n, shape (..., n).

    Returns:
        The matrix Z_0, shape (..., d + 3, n + 1), of the features' dtype.

    Raises:
        ValueError: if there is not exactly one reward per transition.

    >>> import numpy as np
    >>> build_prompt(np.eye(2), [10.0])
    array([[ 1.,  0.],
           [ 0.,  1.],
           [10.,  0.],
           [ 0.,  0.],
           [ 0.,  0.]])
    """
    features = np.asarray(features)
    rewards = np.asarray(rewards)
    if features.ndim < 2 or rewards.shape != (*features.shape[:-2], features.shape[-2] - 1):
        raise ValueError(
            "features of shape (..., n + 1, d) go with rewards of shape (..., n),"
            f" got {features.shape} and {rewards.shape}"
        )
    *batch, n_columns, feature_dim = features.shape
    dtype = features.dtype if np.issubdtype(features.dtype, np.floating) else np.float64
    matrix = np.zeros((*batch, feature_dim + MEMORY_ROWS, n_columns), dtype)
    matrix[..., feature_rows(feature_dim), :] = np.swapaxes(features, -1, -2)
    matrix[..., reward_row(feature_dim), :-1] = rewards
    return matrix


def append_queries(prompt: Prompt, features: NDArray[Any]) -> Prompt:
    """Append query columns, which are never sources, so that many states are evaluated in one forward pass.

    Args:
        prompt: a prompt without batch axes.
        features: x of the query states, shape (m, d).

    Returns:
        The prompt with m more columns: rewards 0, memories 0, source_mask False, continues 1.

    Raises:
        ValueError: if the queries' feature dimension differs from the prompt's.
    """
    feature_dim = prompt.matrix.shape[0] - MEMORY_ROWS
    features = np.asarray(features)
    if features.ndim != 2 or features.shape[1] != feature_dim:
        raise ValueError(f"queries have shape (m, {feature_dim}) to match the prompt, got {features.shape}")
    columns = np.zeros((feature_dim + MEMORY_ROWS, len(features)), prompt.matrix.dtype)
    columns[feature_rows(feature_dim)] = features.T
    return Prompt(
        np.concatenate([prompt.matrix, columns], axis=1),
        np.concatenate([prompt.source_mask, np.zeros(len(features), bool)]),
        np.concatenate([prompt.continues, np.ones(len(features), prompt.continues.dtype)]),
    )


class VectorPromptBuffer:
    """The last ``context_length`` columns of ``num_envs`` independent histories, kept as ring buffers.

    Every environment has a query (its present state) and up to ``context_length`` columns before it. Calls take
    arrays with one row per environment and, where given, a boolean ``where`` that selects the environments that
    are meant; the others stay as they are.

    - ``append`` turns the query into a source column and makes the next state the query;
    - ``reset`` makes a new first state the query. If the episode before it had at least one step, its last
      state first becomes a column that is no source: after a termination or truncation, and also in mid-episode,
      which therefore counts as a truncation. An episode without a step leaves no column.

    Args:
        num_envs: number of histories, at least 1.
        context_length: number of columns before the query, at least 1.
        feature_dim: length of a feature vector, at least 1.

    Raises:
        ValueError: for a size below 1.
    """

    def __init__(self, num_envs: int, context_length: int, feature_dim: int) -> None:
        for name, value in (("num_envs", num_envs), ("context_length", context_length), ("feature_dim", feature_dim)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        self.num_envs, self.context_length, self.feature_dim = int(num_envs), int(context_length), int(feature_dim)
        n = self.context_length
        self._features = np.zeros((num_envs, n, feature_dim), np.float32)
        self._rewards = np.zeros((num_envs, n), np.float32)
        self._is_source = np.zeros((num_envs, n), bool)
        self._continues = np.ones((num_envs, n), np.float32)
        self._query = np.zeros((num_envs, feature_dim), np.float32)
        self._next_slot = np.zeros(num_envs, np.intp)
        self._has_query = np.zeros(num_envs, bool)
        self._has_steps = np.zeros(num_envs, bool)
        self._has_ended = np.zeros(num_envs, bool)

    def clear(self, where: NDArray[np.bool_] | None = None) -> None:
        """Forget everything, the query included; ``reset`` comes next."""
        chosen = self._chosen(where)
        self._features[chosen] = 0.0
        self._rewards[chosen] = 0.0
        self._is_source[chosen] = False
        self._continues[chosen] = 1.0
        self._query[chosen] = 0.0
        self._has_query[chosen] = self._has_steps[chosen] = self._has_ended[chosen] = False

    def reset(self, features: ArrayLike, where: NDArray[np.bool_] | None = None) -> None:
        """Start an episode at a state with these features, shape (num_envs, feature_dim); keeps the history.

        Raises:
            ValueError: for features of another shape or not finite; the buffer is then unchanged.
        """
        chosen = self._chosen(where)
        query = self._checked(features, (self.num_envs, self.feature_dim), "features", chosen)
        ended = chosen[self._has_steps[chosen]]
        self._push(ended, rewards=0.0, is_source=False, continues=1.0)
        self._query[chosen] = query[chosen]
        self._has_query[chosen] = True
        self._has_steps[chosen] = self._has_ended[chosen] = False

    def append(
        self,
        rewards: ArrayLike,
        next_features: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        where: NDArray[np.bool_] | None = None,
    ) -> None:
        """Record one transition: rewards (num_envs,), next states' features (num_envs, feature_dim), two flags.

        With both flags set the transition terminated.

        Raises:
            ValueError: for a wrong shape or a number that is not finite; the buffer is then unchanged.
            RuntimeError: if an environment has no running episode (``reset`` comes first).
        """
        chosen = self._chosen(where)
        reward = self._checked(rewards, (self.num_envs,), "rewards", chosen)
        query = self._checked(next_features, (self.num_envs, self.feature_dim), "next_features", chosen)
        terminated = np.broadcast_to(np.asarray(terminated, bool), self.num_envs)
        truncated = np.broadcast_to(np.asarray(truncated, bool), self.num_envs)
        if not self._has_query[chosen].all() or self._has_ended[chosen].any():
            raise RuntimeError("append needs a running episode: call reset with its first state before")
        self._push(chosen, reward[chosen], is_source=True, continues=np.where(terminated, 0.0, 1.0)[chosen])
        self._query[chosen] = query[chosen]
        self._has_steps[chosen] = True
        self._has_ended[chosen] = (terminated | truncated)[chosen]

    def cut(self, where: NDArray[np.bool_] | None = None) -> None:
        """End the running episodes here, without a transition; ``reset`` comes next."""
        self._has_ended[self._chosen(where)] = True

    def observation(self) -> dict[str, NDArray[Any]]:
        """Return prompt float32 (num_envs, d + 3, n + 1), source_mask int8 and continues float32 (num_envs, n + 1).

        Padding stands on the left, the newest column on the right, the query last. The arrays are copies.
        """
        n, d = self.context_length, self.feature_dim
        # The slot that is overwritten next is the oldest; slots never filled hold padding already.
        order = (self._next_slot[:, None] + np.arange(n)) % n
        row = np.arange(self.num_envs)[:, None]
        matrix = np.zeros((self.num_envs, d + MEMORY_ROWS, n + 1), np.float32)
        matrix[:, feature_rows(d), :n] = self._features[row, order].transpose(0, 2, 1)
        matrix[:, feature_rows(d), n] = self._query
        matrix[:, reward_row(d), :n] = self._rewards[row, order]
        source_mask = np.zeros((self.num_envs, n + 1), np.int8)
        source_mask[:, :n] = self._is_source[row, order]
        continues = np.ones((self.num_envs, n + 1), np.float32)
        continues[:, :n] = self._continues[row, order]
        return {"prompt": matrix, "source_mask": source_mask, "continues": continues}

    def _chosen(self, where: NDArray[np.bool_] | None) -> NDArray[np.intp]:
        return np.arange(self.num_envs) if where is None else np.flatnonzero(where)

    def _push(self, chosen: NDArray[np.intp], rewards: ArrayLike, *, is_source: bool, continues: ArrayLike) -> None:
        slot = self._next_slot[chosen]
        self._features[chosen, slot] = self._query[chosen]
        self._rewards[chosen, slot] = rewards
        self._is_source[chosen, slot] = is_source
        self._continues[chosen, slot] = continues
        self._next_slot[chosen] = (slot + 1) % self.context_length

    @staticmethod
    def _checked(values: ArrayLike, shape: tuple[int, ...], name: str, chosen: NDArray[np.intp]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            array = np.asarray(values).astype(np.float32)
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
        if not np.isfinite(array[chosen]).all():
            raise ValueError(f"{name} must be finite float32 numbers, got {np.asarray(values)[chosen]}")
        return array


class PromptBuffer:
    """The last ``context_length`` columns of one history; ``VectorPromptBuffer`` for a single environment.

    Args:
        context_length: number of columns before the query, at least 1.
        feature_dim: length of a feature vector, at least 1.

    >>> buffer = PromptBuffer(context_length=2, feature_dim=1)
    >>> buffer.reset([0.5])
    >>> buffer.append(reward=7.0, x_next=[0.25], terminated=False, truncated=False)
    >>> buffer.observation()["prompt"][:2]  # features and rewards: padding, the transition, the query
    array([[0.  , 0.5 , 0.25],
           [0.  , 7.  , 0.  ]], dtype=float32)
    """

    def __init__(self, context_length: int, feature_dim: int) -> None:
        self._buffer = VectorPromptBuffer(1, context_length, feature_dim)

    @property
    def context_length(self) -> int:
        """Number of columns before the query."""
        return self._buffer.context_length

    @property
    def feature_dim(self) -> int:
        """Length of a feature vector."""
        return self._buffer.feature_dim

    def clear(self) -> None:
        """Forget everything, the query included; ``reset`` comes next."""
        self._buffer.clear()

    def reset(self, x: ArrayLike) -> None:
        """Start an episode at a state with features x, shape (feature_dim,); keeps the history.

        Raises:
            ValueError: for features of another shape or not finite; the buffer is then unchanged.
        """
        self._buffer.reset(np.asarray(x)[None])

    def append(self, reward: float, x_next: ArrayLike, terminated: bool, truncated: bool) -> None:
        """Record the transition from the present query to a state with features x_next, shape (feature_dim,).

        Raises:
            ValueError: for a wrong shape or a number that is not finite; the buffer is then unchanged.
            RuntimeError: without a running episode (``reset`` comes first).
        """
        self._buffer.append(np.asarray(reward)[None], np.asarray(x_next)[None], terminated, truncated)

    def cut(self) -> None:
        """End the running episode here, without a transition; ``reset`` comes next."""
        self._buffer.cut()

    def observation(self) -> dict[str, NDArray[Any]]:
        """Return prompt float32 (d + 3, n + 1), source_mask int8 (n + 1,), continues float32 (n + 1,)."""
        return {name: array[0] for name, array in self._buffer.observation().items()}
