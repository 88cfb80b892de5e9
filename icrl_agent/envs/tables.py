"""Finite tasks as tables: the decision process ``TabularMDP`` and the reward process ``TabularMRP`` a policy induces.

Both are frozen and float64; a ``TabularMDP`` is validated, and its ``policy_mrp`` makes the ``TabularMRP``. A terminal
state is stored as a self-loop with reward 0, so that formulas that forget the ``terminal`` flags still see a state
that earns nothing.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

__all__ = ["TabularMDP", "TabularMRP", "check_policy"]

FloatArray = NDArray[np.float64]

#: Rows may miss the sum 1 by this much (float32 rounding); they are then divided by their sum.
ROW_SUM_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class TabularMRP:
    """A finite Markov reward process: what a fixed policy makes of a ``TabularMDP``.

    Args:
        transition: P[s, s'], rows sum to 1, float64 (S, S).
        reward: r[s], expected reward of a step that leaves s, float64 (S,).
        initial: distribution of the first state, float64 (S,).
        terminal: True where an episode ends, bool (S,).
    """

    transition: FloatArray
    reward: FloatArray
    initial: FloatArray
    terminal: NDArray[np.bool_]

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.reward)


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """A finite Markov decision process.

    Args:
        transition: p[s, a, s'], shape (S, A, S); (S, S) is taken as one action. Rows must sum to 1 within 1e-4 and
            are then normalised exactly. Rows of terminal states are replaced by self-loops.
        reward: r[s, a], expected reward of the step that leaves s by a, shape (S, A); (S,) holds for every action.
        initial: distribution of the first state, shape (S,), none of it on a terminal state.
        terminal: True where an episode ends, shape (S,); None = nowhere.

    Raises:
        ValueError: if a shape, a number, a row or the initial distribution is not as above.

    >>> mdp = TabularMDP(transition=[[0.0, 1.0], [1.0, 0.0]], reward=[1.0, -1.0], initial=[1.0, 0.0])
    >>> mdp.n_states, mdp.n_actions
    (2, 1)
    """

    transition: FloatArray
    reward: FloatArray
    initial: FloatArray
    terminal: NDArray[np.bool_] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        transition = _numbers(self.transition, "transition")
        if transition.ndim == 2:
            transition = transition[:, None, :]
        if transition.ndim != 3 or transition.shape[0] != transition.shape[2] or transition.size == 0:
            raise ValueError(f"transition must have shape (S, A, S) or (S, S), got {np.shape(self.transition)}")
        n_states, n_actions, _ = transition.shape
        reward = _numbers(self.reward, "reward")
        if reward.shape == (n_states,):
            reward = np.repeat(reward[:, None], n_actions, axis=1)
        if reward.shape != (n_states, n_actions):
            raise ValueError(f"reward must have shape ({n_states}, {n_actions}) or ({n_states},), got {reward.shape}")
        terminal = np.zeros(n_states, bool) if self.terminal is None else np.array(self.terminal)
        if terminal.shape != (n_states,) or terminal.dtype != np.bool_:
            raise ValueError(
                f"terminal must be {n_states} booleans, got {terminal.dtype} numbers of shape {terminal.shape}"
            )
        transition[terminal] = np.eye(n_states)[terminal][:, None, :]
        reward[terminal] = 0.0
        if not np.isfinite(reward).all():
            state, action = np.argwhere(~np.isfinite(reward))[0]
            raise ValueError(f"reward[{state}, {action}] is {reward[state, action]}, it must be finite")
        transition = _distributions(transition, "transition")
        initial = _numbers(self.initial, "initial")
        if initial.shape != (n_states,):
            raise ValueError(f"initial must have shape ({n_states},), got {initial.shape}")
        initial = _distributions(initial, "initial")
        if initial[terminal].any():
            bad = int(np.flatnonzero(terminal & (initial > 0))[0])
            raise ValueError(f"initial gives probability {initial[bad]:.3g} to terminal state {bad}, it must give 0")
        for name, array in zip(
            ("transition", "reward", "initial", "terminal"), (transition, reward, initial, terminal), strict=True
        ):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def n_states(self) -> int:
        """Number of states."""
        return int(self.transition.shape[0])

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return int(self.transition.shape[1])

    def policy_mrp(self, policy: ArrayLike | None = None) -> TabularMRP:
        """Fold a policy in: P(s, s') = sum_a pi(a|s) p(s'|s, a), r(s) = sum_a pi(a|s) r(s, a).

        Args:
            policy: pi[s, a], rows sum to 1, shape (S, A); None = uniformly random.

        Raises:
            ValueError: for a policy of another shape or with a row that is no distribution.
        """
        if policy is None:
            probabilities = np.full((self.n_states, self.n_actions), 1.0 / self.n_actions)
        else:
            probabilities = check_policy(policy, self.n_states, self.n_actions)
        transition = np.einsum("sa,sat->st", probabilities, self.transition)
        reward = (probabilities * self.reward).sum(axis=1)
        for array in (transition, reward):
            array.setflags(write=False)
        return TabularMRP(transition, reward, self.initial, self.terminal)

    def same_tables(self, other: TabularMDP) -> bool:
        """Whether two processes have exactly equal tables."""
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("transition", "reward", "initial", "terminal")
        )

    def to_npz(self, path: str | Path) -> None:
        """Write the four tables to an ``.npz`` file, under exactly this name."""
        with Path(path).open("wb") as file:  # np.savez would append a missing suffix to a name
            np.savez(file, transition=self.transition, reward=self.reward, initial=self.initial, terminal=self.terminal)

    @classmethod
    def from_npz(cls, path: str | Path) -> TabularMDP:
        """Read the tables that ``to_npz`` wrote (``terminal`` may be missing).

        Raises:
            ValueError: if the file is missing, cannot be read as .npz, lacks a table, or holds bad tables.
        """
        try:
            with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                names = ("transition", "reward", "initial", *(["terminal"] if "terminal" in file.files else []))
                tables: dict[str, Any] = {name: file[name] for name in names}
        except KeyError as error:
            raise ValueError(f"{path} lacks a table: {error.args[0]}") from error
        except (OSError, EOFError, TypeError, AttributeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} cannot be read as an .npz file of tables: {error}") from error
        return cls(**tables)

    @classmethod
    def from_gymnasium(cls, env: gym.Env[Any, Any]) -> TabularMDP:
        """Read the tables of a toy-text environment (FrozenLake, CliffWalking, Taxi): ``env.unwrapped.P``.

        ``P[s][a]`` is a list of (probability, next state, reward, terminated). Rewards become their expectation per
        (s, a); a state that a terminated transition enters is terminal.

        Raises:
            ValueError: if the environment has no such table or its states do not start at 0.
        """
        raw: Any = env.unwrapped
        states, actions = raw.observation_space, raw.action_space
        if getattr(raw, "fickle_passenger", False):
            raise ValueError("Taxi with fickle_passenger=True has transitions that its table P does not hold")
        if not (
            hasattr(raw, "P")
            and hasattr(raw, "initial_state_distrib")
            and isinstance(states, spaces.Discrete)
            and isinstance(actions, spaces.Discrete)
        ):
            raise ValueError(
                f"{raw} has no toy-text tables: P and initial_state_distrib over Discrete spaces are needed"
            )
        if states.start != 0 or actions.start != 0:
            raise ValueError(f"tables need spaces with start=0, got start={states.start} and start={actions.start}")
        n_states, n_actions = int(states.n), int(actions.n)
        transition = np.zeros((n_states, n_actions, n_states))
        reward = np.zeros((n_states, n_actions))
        terminal = np.zeros(n_states, bool)
        for state, by_action in raw.P.items():
            for action, outcomes in by_action.items():
                _check_outcomes(state, action, outcomes)
                for probability, next_state, outcome_reward, terminated in outcomes:
                    transition[state, action, next_state] += probability
                    reward[state, action] += probability * outcome_reward
                    terminal[next_state] |= bool(terminated)
        return cls(transition, reward, np.asarray(raw.initial_state_distrib, np.float64), terminal)


def check_policy(policy: ArrayLike, n_states: int, n_actions: int) -> FloatArray:
    """Return a policy table as float64 (S, A) with rows that sum to exactly 1.

    Raises:
        ValueError: for another shape, or a row (named) that is no probability distribution.
    """
    try:
        table = np.array(policy, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a policy table holds numbers of shape ({n_states}, {n_actions}): {error}") from error
    if table.shape != (n_states, n_actions):
        raise ValueError(
            f"a policy table must have shape (n_states, n_actions) = ({n_states}, {n_actions}), got {table.shape}"
        )
    return _distributions(table, "policy")


def _numbers(table: ArrayLike, name: str) -> FloatArray:
    """Copy a table to float64, naming it where it holds anything but real numbers in rows of equal length."""
    try:
        return np.array(table, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers: {error}") from error


def _distributions(table: FloatArray, name: str) -> FloatArray:
    """Check that the last axis holds probability distributions and normalise rounding away."""
    sums = table.sum(axis=-1)
    good = np.isfinite(table).all(axis=-1) & (table >= 0).all(axis=-1) & (np.abs(sums - 1) <= ROW_SUM_TOLERANCE)
    if not good.all():
        where = tuple(int(i) for i in np.argwhere(~good)[0])
        row = f"{name}[{', '.join(map(str, where))}]" if where else name
        raise ValueError(
            f"{row} must be non-negative and sum to 1, got {np.array2string(table[where], threshold=8, precision=4)}"
            f" with sum {float(sums[where]):.6g}"
        )
    return np.asarray(table / sums[..., None])


def _check_outcomes(state: Any, action: Any, outcomes: Any) -> None:
    good = isinstance(outcomes, list | tuple) and all(
        isinstance(outcome, list | tuple) and len(outcome) == 4 for outcome in outcomes
    )
    if not good:
        raise ValueError(
            f"P[{state}][{action}] must be a list of (probability, next state, reward, terminated), got {outcomes!r}"
        )
