"""A policy that lives in its context: it acts, writes down what happened, and looks again. Nothing is trained."""

from __future__ import annotations

import math
import reprlib
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from icrl_agent.control.exploration import Exploration, Optimism, epsilon_greedy
from icrl_agent.control.reading import Reading, current_epsilon, read
from icrl_agent.control.saved import read_context, write_context
from icrl_agent.control.targets import TargetKind
from icrl_agent.features import PairFeatures
from icrl_agent.streaming import Stream
from icrl_agent.streaming.observations import as_array, checked_flag, checked_reward

__all__ = ["Controller"]

FloatArray = NDArray[np.float64]


class Controller:
    """Acts in one environment on the values that frozen layers give its own history. Made by ``ICRLAgent.controller``.

    State-action pairs under a policy are a Markov reward process, so the layers that evaluate states evaluate pairs:
    the history is one ``Stream`` of pairs. ``act`` and ``observe`` take turns; every ``refresh_every`` steps all layers
    run on the context from zero memory, and the values they give steer the next actions. A step costs O(d), a refresh
    O(S A P L) for S states, A actions and P pairs in the context and L layers, however many transitions there are.

    The next action is drawn when ``observe`` learns of the next state (as SARSA does), so each transition is in the
    context at once. ``act`` with another observation than the last one starts an episode there; a running one is then
    truncated. A truncated episode's last state counts through an action drawn for it; a terminated one's is worth 0.

    Box observations are finite numbers of the space's shape; they may leave its bounds.

    Args:
        stream: an empty history whose feature map is a ``PairFeatures``.
        observation_space: Discrete, or a Box of vectors.
        action_space: Discrete.
        target: "recorded", "expected" or "greedy", see ``icrl_agent.control.targets``.
        exploration: ``Epsilon`` or ``Optimism``.
        refresh_every: steps between refreshes, at least 1.
        seed: of the random choices; None = fresh entropy.

    >>> import gymnasium as gym, icrl_agent
    >>> env = gym.make("RandomMDP-v0", task_seed=3)
    >>> controller = icrl_agent.ICRLAgent.from_theory(feature_dim=64).controller(env, gamma=0.9, seed=0)
    >>> obs, _ = env.reset(seed=0)
    >>> for _ in range(100):
    ...     obs, reward, terminated, truncated, _ = env.step(controller.act(obs))
    ...     controller.observe(reward, obs, terminated, truncated)
    >>> controller.q_values(obs).shape, controller.n_transitions
    ((4,), 100)
    """

    def __init__(
        self,
        stream: Stream,
        observation_space: spaces.Discrete | spaces.Box,
        action_space: spaces.Discrete,
        target: TargetKind,
        exploration: Exploration,
        refresh_every: int,
        seed: int | None,
    ) -> None:
        if not isinstance(stream.feature_map, PairFeatures):
            raise TypeError(f"a controller needs a stream of pairs, got features {type(stream.feature_map).__name__}")
        self.stream, self.pair_map = stream, stream.feature_map
        self.observation_space, self.action_space = observation_space, action_space
        self.target, self.exploration, self.refresh_every = target, exploration, refresh_every
        self._rng = np.random.default_rng(seed)
        self.clear()

    def clear(self) -> None:
        """Forget everything; the exploration's schedule starts again."""
        self.stream.clear()
        self.n_steps = 0
        """Steps observed since the controller was made or cleared."""
        self._acting: Reading | None = None
        self._known: dict[bytes, FloatArray] = {}  # values that act, of the observations met since the last refresh
        self._present: Reading | None = None
        self._refreshed_at: int | None = None
        self._planned: tuple[NDArray[Any], int] | None = None
        self._awaits_outcome = False

    @property
    def n_transitions(self) -> int:
        """Transitions in the context."""
        return self.stream.n_transitions

    def act(self, obs: ArrayLike) -> int:
        """Choose an action, exploring; asked again before ``observe`` it gives the same one.

        Raises:
            ValueError: for an observation outside the space, or layers that diverge.
        """
        row = self._row(obs)
        if self._planned is None or not np.array_equal(self._planned[0], row):
            action = self._draw(row)
            self.stream.reset(np.append(row, action))
            self._planned = row, action
        self._awaits_outcome = True
        return self._planned[1]

    def observe(self, reward: float, next_obs: ArrayLike, terminated: bool, truncated: bool) -> None:
        """Write down what the last action led to.

        Raises:
            RuntimeError: if no action was asked for since the last outcome.
            ValueError: for a reward that is not a finite float32 number, an observation outside the space or without
                finite features, or layers that diverge.
            TypeError: for a flag that is neither True nor False. The controller is unchanged after any of these.
        """
        if not self._awaits_outcome:
            raise RuntimeError("observe tells the outcome of an action: call act before")
        row = self._row(next_obs)
        number = checked_reward(reward)
        ends, cut = checked_flag("terminated", terminated), checked_flag("truncated", truncated)
        action = int(self.action_space.start) if ends else self._draw(row)
        self.stream.append(number, np.append(row, action), ends, cut)
        self.n_steps += 1
        self._present = None
        self._planned = None if ends or cut else (row, action)
        self._awaits_outcome = False

    def q_values(self, obs: ArrayLike) -> FloatArray:
        """Values of all actions by the present context, without any bonus: (A,), or (m, A) for m observations.

        Pairs that were never taken have a blend of all values; ``visits`` tells them.

        Raises:
            ValueError: for an observation outside the space, or layers that diverge.
        """
        rows, single = self._rows(obs)
        q = self._reading().q_values(rows)
        return q[0] if single else q

    def visits(self, obs: ArrayLike) -> NDArray[np.int64]:
        """Transitions in the context by action taken at exactly this observation: (A,), or (m, A)."""
        rows, single = self._rows(obs)
        slots = [[self.stream.slot(np.append(row, action)) for action in self._actions()] for row in rows]
        counts = self.stream.history.sums.counts
        found = np.array([[0 if slot is None else counts[slot] for slot in line] for line in slots], np.int64)
        return found[0] if single else found

    def predict(
        self,
        observation: ArrayLike,
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...] | None]:
        """Actions by the present context, nothing written down: what Stable-Baselines3 asks of a model.

        Args:
            observation: one, or a batch.
            state: returned as it is.
            episode_start: not used.
            deterministic: the best action (the first of equals), without exploration and bonus; otherwise as ``act``.

        Returns:
            The action, int64 () or (m,), and ``state``.

        Raises:
            ValueError: as ``q_values``.
        """
        rows, single = self._rows(observation)
        if deterministic:
            index = self._reading().q_values(rows).argmax(axis=1)
        else:
            probabilities = epsilon_greedy(self._acting_values(rows), current_epsilon(self.exploration, self.n_steps))
            index = np.array([self._rng.choice(len(row), p=row) for row in probabilities])
        actions = index.astype(np.int64) + int(self.action_space.start)
        return (actions[0] if single else actions), state

    def save(self, path: str | Path) -> None:
        """Write the context to an ``.npz`` file: what happened so far, not the weights."""
        write_context(path, self.stream, self.n_steps)

    def load(self, path: str | Path) -> None:
        """Replace the context by a saved one; the next ``act`` starts an episode.

        Raises:
            ValueError: for a file that holds no whole context, or one of other features, actions, or window; the
                controller is then unchanged.
        """
        stream, n_steps = read_context(path, self.stream, self._check_pairs)
        self.clear()
        self.stream, self.n_steps = stream, n_steps

    def _draw(self, row: NDArray[Any]) -> int:
        """One action by the values that act, after refreshing them where it is time.

        Whatever is refused is refused before the generator is used.
        """
        key = row.tobytes()
        if key not in self._known:
            self.stream.check(np.append(row, self.action_space.start))
        if self._refreshed_at is None or self.n_steps - self._refreshed_at >= self.refresh_every:
            self._refresh()
        if key not in self._known:
            self._known[key] = self._acting_values(row[None])[0]
        probabilities = epsilon_greedy(self._known[key], current_epsilon(self.exploration, self.n_steps))
        index = int(np.searchsorted(np.cumsum(probabilities)[:-1], self._rng.random(), side="right"))
        return index + int(self.action_space.start)

    def _acting_values(self, rows: NDArray[Any]) -> FloatArray:
        return np.zeros((len(rows), self.pair_map.n_actions)) if self._acting is None else self._acting.q_values(rows)

    def _refresh(self) -> None:
        if not self.n_transitions:
            return
        if isinstance(self.exploration, Optimism):
            self._acting = read(self.stream, self.pair_map, self.target, self.exploration, self._policy())
        else:
            self._acting = self._reading()
        self._refreshed_at = self.n_steps
        self._known = {}

    def _reading(self) -> Reading:
        """Values by the present context, without bonus."""
        if self._present is None:
            self._present = read(self.stream, self.pair_map, self.target, policy=self._policy())
        return self._present

    def _policy(self) -> tuple[Reading | None, float]:
        return self._acting, current_epsilon(self.exploration, self.n_steps)

    def _actions(self) -> range:
        first = int(self.action_space.start)
        return range(first, first + int(self.action_space.n))

    def _check_pairs(self, observations: NDArray[Any]) -> None:
        """Raise ValueError unless rows of numbers are observations."""
        shape = self.observation_space.shape or ()
        if observations.shape[1] != math.prod(shape):
            raise ValueError(f"its observations have {observations.shape[1]} numbers each, here {math.prod(shape)}")
        self._rows(observations.reshape(len(observations), *shape))

    def _row(self, obs: ArrayLike) -> NDArray[Any]:
        rows, single = self._rows(obs)
        if not single:
            shape = self.observation_space.shape or ()
            raise ValueError(f"one observation of shape {shape} is needed, got shape {np.shape(obs)}")
        return np.array(rows[0])  # the environment may write the next one into the same array

    def _rows(self, obs: ArrayLike) -> tuple[NDArray[Any], bool]:
        """Observations as rows of numbers (m, k), and whether it was a single one."""
        array, space = as_array(obs), self.observation_space
        shape = space.shape or ()
        if array is None or (isinstance(space, spaces.Box) and array.dtype.kind not in "biuf"):
            raise ValueError(f"observations are finite numbers of shape {shape}, got {reprlib.repr(obs)}")
        if array.shape[array.ndim - len(shape) :] != shape or array.ndim - len(shape) not in (0, 1):
            raise ValueError(f"observations of this controller have shape {shape}, got shape {array.shape}")
        single = array.ndim == len(shape)
        if not (single or len(array)):
            raise ValueError(f"at least one observation is needed, got {reprlib.repr(obs)}")
        rows = array.reshape(1 if single else len(array), -1)
        if isinstance(space, spaces.Box):
            if not np.isfinite(rows).all():
                raise ValueError(f"observations are finite numbers of shape {shape}, got {reprlib.repr(obs)}")
        elif not (
            np.issubdtype(rows.dtype, np.integer)
            and ((rows >= int(space.start)) & (rows < int(space.start) + int(space.n))).all()
        ):
            raise ValueError(f"observation {reprlib.repr(obs)} is not in {space}")
        return rows, single
