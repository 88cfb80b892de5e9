"""The wrappers for Gymnasium vector environments, under the same names; all three autoreset modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from icrl_agent.envs.tabular_env import TASK_SEED
from icrl_agent.features import FeatureMap
from icrl_agent.prompt import VectorPromptBuffer
from icrl_agent.wrappers.observation import as_feature_map, check_flag, feature_space, prompt_space
from icrl_agent.wrappers.policy import BoundPolicy, PolicyLike, check_only_action

__all__ = ["FeatureObservation", "HistoryWrapper", "PolicyWrapper", "autoreset_mode", "final_observations"]

RESET_MASK = "reset_mask"


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """Return a vector environment's autoreset mode.

    Raises:
        ValueError: if its metadata do not say.
    """
    mode = env.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise ValueError(f"{env} does not say its autoreset mode: metadata['autoreset_mode'] is {mode!r}")
    return mode


def final_observations(observations: Any, infos: Mapping[str, Any], done: NDArray[np.bool_]) -> Any:
    """Observations with those of ended copies replaced by ``infos["final_obs"]`` (SAME_STEP mode)."""
    if not done.any():
        return observations
    final = np.array(observations, copy=True)
    final[done] = np.stack([np.asarray(o) for o in np.asarray(infos["final_obs"], dtype=object)[done]])
    return final


class PolicyWrapper(VectorWrapper[Any, Any, Any, Any, Any]):
    """Folds a policy into a vector environment; see ``icrl_agent.wrappers.PolicyWrapper``."""

    def __init__(
        self, env: VectorEnv[Any, Any, Any], policy: PolicyLike, seed: int | None = None, deterministic: bool = True
    ) -> None:
        super().__init__(env)
        self.policy = BoundPolicy(
            policy, env.single_observation_space, env.single_action_space, deterministic=deterministic, seed=seed
        )
        self.single_action_space = spaces.Discrete(1)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._observations: Any = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environments, and with a seed (of a list, the first) the policy's generator too."""
        seeds = [s for s in seed if s is not None] if isinstance(seed, Sequence) else [seed]
        if seeds and seeds[0] is not None:
            self.policy.seed(seeds[0])
        self._observations, infos = self.env.reset(seed=seed, options=options)
        return self._observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Let the policy act once in every copy; actions must be 0."""
        check_only_action(actions)
        if self._observations is None:
            raise gym.error.ResetNeeded("the policy has no observations to act on: call reset() before step()")
        chosen = self.policy.actions(self._observations)
        self._observations, rewards, terminations, truncations, infos = self.env.step(chosen)
        return self._observations, rewards, terminations, truncations, infos


class FeatureObservation(VectorWrapper[Any, Any, Any, Any, Any]):
    """Replaces observations by feature vectors, float32 (num_envs, dim); ``infos["final_obs"]`` as well."""

    def __init__(
        self, env: VectorEnv[Any, Any, Any], feature_map: FeatureMap | Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(env)
        self.feature_map = as_feature_map(feature_map, env.single_observation_space)
        self.single_observation_space = feature_space(self.feature_map.dim)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environments."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._features(observations), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        if "final_obs" in infos:
            final = np.full(self.num_envs, None, dtype=object)
            for index in np.flatnonzero(infos["_final_obs"]):
                final[index] = self._features(np.asarray(infos["final_obs"][index])[None])[0]
            infos = {**infos, "final_obs": final}
        return self._features(observations), rewards, terminations, truncations, infos

    def _features(self, observations: Any) -> NDArray[np.float32]:
        return self.feature_map(observations).astype(np.float32)


class HistoryWrapper(VectorWrapper[Any, Any, Any, Any, Any]):
    """One prompt per copy; see ``icrl_agent.wrappers.HistoryWrapper``.

    Observations have a leading axis (num_envs,). In NEXT_STEP mode the row that only resets is no transition; in
    SAME_STEP mode the last state of an episode comes from ``infos["final_obs"]``, which holds raw observations.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        context_length: int = 64,
        feature_map: FeatureMap | Mapping[str, Any] | None = None,
        keep_across_episodes: bool = True,
    ) -> None:
        super().__init__(env)
        self._mode = autoreset_mode(env)
        check_flag("keep_across_episodes", keep_across_episodes)
        self.feature_map = as_feature_map(feature_map, env.single_observation_space)
        self.keep_across_episodes = keep_across_episodes
        self._buffer = VectorPromptBuffer(self.num_envs, context_length, self.feature_map.dim)
        self.single_observation_space = prompt_space(self.feature_map.dim, context_length)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._done = np.zeros(self.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start episodes (those of ``options["reset_mask"]`` only, where given); keeps the histories without a seed."""
        options = dict(options or {})
        chosen = np.array(options.get(RESET_MASK, np.ones(self.num_envs, bool)), bool)
        new_task = TASK_SEED in options
        observations, infos = self.env.reset(seed=seed, options=options)
        seeded = np.array([s is not None for s in seed]) if isinstance(seed, Sequence) else seed is not None
        self._buffer.clear(chosen & (seeded | new_task | (not self.keep_across_episodes)))
        self._buffer.reset(self.feature_map(observations), chosen)
        self._done &= ~chosen
        return self._buffer.observation(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments and append what really happened to each copy's history."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        done = np.asarray(terminations) | np.asarray(truncations)
        started = self._done if self._mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, bool)
        next_observations = observations
        if self._mode is AutoresetMode.SAME_STEP:
            next_observations = final_observations(observations, infos, done)
        try:
            self._buffer.append(rewards, self.feature_map(next_observations), terminations, truncations, ~started)
        except ValueError:
            # The environments have moved on: appending from here would invent a transition.
            self._buffer.cut()
            raise
        if self._mode is AutoresetMode.SAME_STEP:
            started = done
        if started.any():
            if not self.keep_across_episodes:
                self._buffer.clear(started)
            self._buffer.reset(self.feature_map(observations), started)
        self._done = done
        return self._buffer.observation(), rewards, terminations, truncations, infos

    def clear(self) -> None:
        """Empty all histories; a reset must come next."""
        self._buffer.clear()
