"""The dynamics that all tabular environments share: a Gymnasium environment that plays a ``TabularMDP``."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from icrl_agent.envs.tables import TabularMDP
from icrl_agent.envs.tasks import check_task_seed

__all__ = ["TASK_SEED", "TabularEnv", "check_options", "check_reward_noise", "cumulative", "draw_task_seed"]

#: Key of ``reset``'s options, and of the info it returns, that says which task is played.
TASK_SEED = "task_seed"


class TabularEnv(gym.Env[int, int]):
    """Base class: states and actions are integers, the reward is that of the state-action pair that is left.

    Subclasses say how a task is made. Attributes: ``mdp`` (the tables), ``task_seed`` (None for fixed tables),
    ``reward_noise``.

    Args:
        mdp: the tables, where they are fixed; None where ``_make_task`` makes them from a seed.
        task_seed: which task; None draws one and records it in ``task_seed``.
        reward_noise: standard deviation of Gaussian noise added to every reward, at least 0.
        render_mode: None, "ansi" or "rgb_array".
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # type: ignore[misc]
    #: Discount factor of the values that ``render`` shows (uniformly random policy).
    render_gamma: ClassVar[float] = 0.9

    observation_space: spaces.Discrete  # type: ignore[assignment]
    action_space: spaces.Discrete  # type: ignore[assignment]

    def __init__(
        self,
        mdp: TabularMDP | None = None,
        task_seed: int | None = None,
        reward_noise: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be None or one of {self.metadata['render_modes']}, got {render_mode!r}")
        self.reward_noise = check_reward_noise(reward_noise)
        self.render_mode = render_mode
        self._state: int | None = None
        self.task_seed: int | None = None
        self._has_fixed_tables = mdp is not None
        if mdp is None:
            self.set_task(draw_task_seed() if task_seed is None else task_seed)
        else:
            self._load(mdp)

    def set_task(self, task_seed: int) -> None:
        """Play another task from the next reset on; the number of states and actions must stay.

        Raises:
            ValueError: if the tables of this environment are fixed, or the seed is no non-negative integer.
        """
        if self._has_fixed_tables:
            raise ValueError(f"{type(self).__name__} has one fixed task, it takes no {TASK_SEED}")
        self.task_seed = check_task_seed(task_seed)
        self._load(self._make_task(self.task_seed))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Start an episode. ``seed`` picks the trajectory, ``options={"task_seed": k}`` another task."""
        check_options(options)
        super().reset(seed=seed)
        if options and TASK_SEED in options:
            self.set_task(options[TASK_SEED])
        state = self._state = bisect_right(self._initial_cumulative, self.np_random.random())
        return state, {} if self.task_seed is None else {TASK_SEED: self.task_seed}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take an action; returns next state, reward, terminated, truncated (always False), info.

        Raises:
            ValueError: for an action outside the action space.
            gymnasium.error.ResetNeeded: before the first reset and after a terminal state.
        """
        state = self._state
        if state is None or self._terminal[state]:
            raise gym.error.ResetNeeded("the episode has not begun or is over: call reset() before step()")
        if not self.action_space.contains(action):
            raise ValueError(f"action must be an integer in 0 .. {self.action_space.n - 1}, got {action!r}")
        action = int(action)
        reward = self._reward[state][action]
        if self.reward_noise > 0:
            reward += self.reward_noise * float(self.np_random.standard_normal())
        self._state = next_state = bisect_right(self._cumulative[state][action], self.np_random.random())
        return next_state, reward, self._terminal[next_state], False, {}

    def render(self) -> Any:
        """Draw the process with its values and the present state: text ("ansi") or an image ("rgb_array")."""
        from icrl_agent.envs import render

        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode: gym.make(id, render_mode='rgb_array') or 'ansi'")
            return None
        draw = render.draw_text if self.render_mode == "ansi" else render.draw_image
        return draw(self.mdp, self._state, self.render_gamma)

    def _make_task(self, task_seed: int) -> TabularMDP:
        """Make the tables of a task; for subclasses without fixed tables."""
        raise NotImplementedError

    def _load(self, mdp: TabularMDP) -> None:
        self.mdp = mdp
        if not hasattr(self, "action_space"):  # another task has the same spaces: a seeded action_space stays seeded
            self.observation_space = spaces.Discrete(mdp.n_states)
            self.action_space = spaces.Discrete(mdp.n_actions)
        # Nested lists: bisect on a list is the fastest way to draw one state.
        self._cumulative: list[list[list[float]]] = cumulative(mdp.transition).tolist()
        self._initial_cumulative: list[float] = cumulative(mdp.initial).tolist()
        self._reward: list[list[float]] = mdp.reward.tolist()
        self._terminal: list[bool] = mdp.terminal.tolist()
        self._state = None


def cumulative(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cumulative sums along the last axis that are exactly 1 from the last possible outcome on.

    The outcome of a draw u in [0, 1) is the number of entries <= u; rounding can then neither lead past the end
    nor to an outcome of probability 0.

    >>> cumulative(np.array([0.5, 0.5, 0.0])).tolist()
    [0.5, 1.0, 1.0]
    """
    sums = np.cumsum(probabilities, axis=-1)
    possible = probabilities > 0
    possible_from_here = np.flip(np.cumsum(np.flip(possible, axis=-1), axis=-1), axis=-1)
    return np.asarray(np.where(possible_from_here > possible, sums, 1.0))


def draw_task_seed() -> int:
    """Draw a task seed from the operating system's entropy; no random generator is touched."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def check_options(options: Any) -> None:
    """Check what ``reset`` is given.

    Raises:
        TypeError: for anything but a mapping or None.
    """
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options must be a dict or None, got {options!r}")


def check_reward_noise(reward_noise: float) -> float:
    """Return the noise's standard deviation as a float.

    Raises:
        ValueError: if it is not a finite number of at least 0.
    """
    if (
        isinstance(reward_noise, bool)
        or not isinstance(reward_noise, int | float | np.number)
        or not (math.isfinite(reward_noise) and reward_noise >= 0)
    ):
        raise ValueError(f"reward_noise must be a finite number of at least 0, got {reward_noise!r}")
    return float(reward_noise)
