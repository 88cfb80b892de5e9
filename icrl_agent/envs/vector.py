"""Native NumPy vector environment: many copies of one tabular task, stepped by array operations alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from icrl_agent.envs.boyan import BoyanChainClassicEnv, BoyanChainEnv
from icrl_agent.envs.decision import RandomMDPEnv, TabularMDPEnv
from icrl_agent.envs.tables import TabularMDP
from icrl_agent.envs.tabular_env import TASK_SEED, TabularEnv, check_options, cumulative

__all__ = ["TabularVectorEnv"]

IntArray = NDArray[np.int64]


class TabularVectorEnv(VectorEnv[IntArray, Any, NDArray[Any]]):
    """``num_envs`` copies of one ``TabularMDP``; same contract as ``SyncVectorEnv`` over the single environments.

    All copies play the same task (``mdp``, ``task_seed``) and share one random generator, so their trajectories
    differ. ``gym.make_vec(id, num_envs=...)`` returns this class for every id of this package.

    Args:
        single: the environment whose task is played.
        num_envs: number of copies, at least 1.
        autoreset_mode: what happens after an episode's end. NEXT_STEP: the next step ignores that copy's action,
            resets it and returns reward 0. SAME_STEP: the step that ends resets as well, and ``infos["final_obs"]``
            holds the last observation. DISABLED: the caller resets by ``reset(options={"reset_mask": mask})``.
        max_episode_steps: truncate episodes at this length; None = never.

    Raises:
        ValueError: for num_envs or max_episode_steps below 1, or an unknown autoreset mode.

    >>> import gymnasium as gym, icrl_agent
    >>> envs = gym.make_vec("BoyanChain-v0", num_envs=1024, task_seed=3)
    >>> observations, infos = envs.reset(seed=0)
    >>> observations.shape
    (1024,)
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "render_fps": 4}  # type: ignore[misc]

    def __init__(
        self,
        single: TabularEnv,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
    ) -> None:
        for name, value in (("num_envs", num_envs), ("max_episode_steps", max_episode_steps)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        self.num_envs = int(num_envs)
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError as error:
            allowed = [mode.value for mode in AutoresetMode]
            raise ValueError(f"autoreset_mode must be one of {allowed}, got {autoreset_mode!r}") from error
        self.metadata = {  # type: ignore[misc]
            **type(self).metadata,
            "autoreset_mode": self.autoreset_mode,
        }
        self.max_episode_steps = max_episode_steps
        self.render_mode = None
        self._single = single
        self.single_observation_space: spaces.Discrete = single.observation_space
        self.single_action_space: spaces.Discrete = single.action_space
        self.observation_space = batch_space(single.observation_space, self.num_envs)
        self.action_space = batch_space(single.action_space, self.num_envs)
        self._states: IntArray
        self._n_steps: IntArray
        self._done: NDArray[np.bool_]
        self._started: NDArray[np.bool_]
        self._load()

    @property
    def mdp(self) -> TabularMDP:
        """The tables that all copies play."""
        return self._single.mdp

    @property
    def task_seed(self) -> int | None:
        """Which task all copies play; None for fixed tables."""
        return self._single.task_seed

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[IntArray, dict[str, Any]]:
        """Start episodes in all copies, or in those of ``options["reset_mask"]`` (booleans, shape (num_envs,)).

        ``seed`` seeds the one generator that all copies draw from; a list of one seed per copy counts as a whole.

        Raises:
            ValueError: for a mask of another shape or without a True, or with a new task for some copies only.
        """
        if isinstance(seed, Sequence):
            if len(seed) != self.num_envs:
                raise ValueError(f"a list of seeds needs one per copy, {self.num_envs}, got {len(seed)}")
            if any(isinstance(s, bool) or not isinstance(s, int | np.integer) or s < 0 for s in seed):
                raise ValueError(f"a list of seeds holds non-negative integers, got {seed}")
            seed = int(np.random.SeedSequence(list(seed)).generate_state(1)[0])
        check_options(options)
        super().reset(seed=seed)
        options = options or {}
        mask = options.get("reset_mask")
        if mask is None:
            chosen = np.ones(self.num_envs, bool)
        else:
            chosen = np.asarray(mask)
            if chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_ or not chosen.any():
                raise ValueError(
                    f"options['reset_mask'] must be {self.num_envs} booleans with a True among them, got {mask!r}"
                )
        if TASK_SEED in options:
            if not chosen.all():
                raise ValueError(f"options[{TASK_SEED!r}] changes the task of all copies: reset all of them with it")
            self._single.set_task(options[TASK_SEED])
            self._load()
        self._start(chosen)
        return self._states.copy(), self._task_info(chosen)

    def step(
        self, actions: ArrayLike
    ) -> tuple[IntArray, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Take one action per copy; returns observations, rewards, terminations, truncations, infos.

        Raises:
            ValueError: for actions of another shape, no integers, or outside the action space.
            gymnasium.error.ResetNeeded: before the first reset; with autoreset disabled, if a copy's episode is over.
        """
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or not np.issubdtype(actions.dtype, np.integer):
            raise ValueError(
                f"actions must be {self.num_envs} integers, got {actions.dtype} numbers of shape {actions.shape}"
            )
        n_actions = self.mdp.n_actions
        outside = (actions < 0) | (actions >= n_actions)
        if outside.any():
            raise ValueError(f"actions must lie in 0 .. {n_actions - 1}, got {actions[outside][0]}")
        if not self._started.all() or (self.autoreset_mode is AutoresetMode.DISABLED and self._done.any()):
            raise gym.error.ResetNeeded("a copy's episode has not begun or is over: call reset() before step()")

        pairs = self._states * n_actions + actions
        rewards = self._reward[pairs]
        if self._single.reward_noise > 0:
            rewards = rewards + self._single.reward_noise * self.np_random.standard_normal(self.num_envs)
        resetting = self._done
        self._states = self._draw(self._cumulative[pairs])
        self._n_steps += 1
        terminations = self._terminal[self._states]
        if self.max_episode_steps is None:
            truncations = np.zeros(self.num_envs, bool)
        else:
            truncations = self._n_steps >= self.max_episode_steps
        infos: dict[str, Any] = {}
        if resetting.any():  # NEXT_STEP: these copies' actions are ignored
            self._start(resetting)
            rewards = np.where(resetting, 0.0, rewards)
            terminations = terminations & ~resetting
            truncations = truncations & ~resetting
            infos = self._task_info(resetting)
        self._done = terminations | truncations
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._done.any():
            ended = self._done
            final_obs = np.full(self.num_envs, None, dtype=object)
            final_obs[ended] = self._states[ended]
            self._start(ended)
            infos = {
                **self._task_info(ended),
                "final_obs": final_obs,
                "_final_obs": ended.copy(),
                "final_info": {},
                "_final_info": ended.copy(),
            }
        return self._states.copy(), rewards, terminations, truncations, infos

    def _load(self) -> None:
        mdp = self.mdp
        self._cumulative = cumulative(mdp.transition).reshape(-1, mdp.n_states)
        self._initial_cumulative = cumulative(mdp.initial)
        self._reward = mdp.reward.reshape(-1).copy()
        self._terminal = mdp.terminal
        self._states = np.zeros(self.num_envs, np.int64)
        self._n_steps = np.zeros(self.num_envs, np.int64)
        self._done = np.zeros(self.num_envs, bool)
        self._started = np.zeros(self.num_envs, bool)

    def _start(self, chosen: NDArray[np.bool_]) -> None:
        drawn = np.searchsorted(self._initial_cumulative, self.np_random.random(int(chosen.sum())), side="right")
        self._states[chosen] = drawn
        self._n_steps[chosen] = 0
        self._done = self._done & ~chosen
        self._started |= chosen

    def _draw(self, cumulative_rows: NDArray[np.float64]) -> IntArray:
        draws = self.np_random.random(self.num_envs)
        return np.asarray((cumulative_rows <= draws[:, None]).sum(axis=1))

    def _task_info(self, chosen: NDArray[np.bool_]) -> dict[str, Any]:
        if self.task_seed is None:
            return {}
        return {TASK_SEED: np.where(chosen, self.task_seed, 0), f"_{TASK_SEED}": chosen.copy()}


def _make(
    env_class: type[TabularEnv],
    num_envs: int = 1,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    max_episode_steps: int | None = None,
    render_mode: None = None,
    **kwargs: Any,
) -> TabularVectorEnv:
    if render_mode is not None:
        raise ValueError(f"the vector environment draws nothing, render_mode must be None, got {render_mode!r}")
    return TabularVectorEnv(env_class(**kwargs), num_envs, autoreset_mode, max_episode_steps)


# The vector entry points of the registered ids.
boyan_chain = partial(_make, BoyanChainEnv)
boyan_chain_classic = partial(_make, BoyanChainClassicEnv)
random_mdp = partial(_make, RandomMDPEnv)
tabular_mdp = partial(_make, TabularMDPEnv)
