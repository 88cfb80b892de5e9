"""Wrappers that turn observations into features, and histories into prompts."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from icrl_agent.envs.tabular_env import TASK_SEED
from icrl_agent.features import FeatureMap, feature_map_for, from_spec
from icrl_agent.prompt import MEMORY_ROWS, PromptBuffer

__all__ = ["FeatureObservation", "HistoryWrapper", "as_feature_map", "check_flag", "feature_space", "prompt_space"]

#: Length of the default feature vectors.
DEFAULT_FEATURE_DIM = 32


class FeatureObservation(gym.ObservationWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Replaces an observation by its feature vector, float32 (dim,).

    Args:
        env: the environment.
        feature_map: a feature map or its ``spec()``; None = the default for the observation space, 32 features.

    Raises:
        TypeError: if None is given and the space has no default.

    >>> import gymnasium as gym, icrl_agent
    >>> from icrl_agent.features import OneHot
    >>> FeatureObservation(gym.make("BoyanChain-v0"), OneHot(10)).observation_space.shape
    (10,)
    """

    def __init__(self, env: gym.Env[Any, Any], feature_map: FeatureMap | Mapping[str, Any] | None = None) -> None:
        chosen = as_feature_map(feature_map, env.observation_space)
        gym.utils.RecordConstructorArgs.__init__(self, feature_map=chosen.spec())
        gym.ObservationWrapper.__init__(self, env)
        self.feature_map = chosen
        self.observation_space = feature_space(chosen.dim)

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """Return the features of one observation."""
        return np.asarray(self.feature_map(np.asarray(observation)[None])[0], np.float32)


class HistoryWrapper(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """The observation is the prompt: the last ``context_length`` columns of history and the present state as query.

    Observations hold ``prompt`` float32 (d + 3, n + 1), ``source_mask`` int8 (n + 1,) and ``continues`` float32
    (n + 1,), see ``icrl_agent.prompt``. A seeded reset or one that names a task empties the history, any other reset
    keeps it; a reset in mid-episode counts as a truncation.

    Args:
        env: the environment.
        context_length: number of columns before the query (n), at least 1; an episode's last state takes one.
        feature_map: a feature map or its ``spec()``; None = the default for the observation space, 32 features.
        keep_across_episodes: False empties the history at every reset.

    Raises:
        ValueError: for a context_length below 1.
        TypeError: if no feature map is given and the space has no default.

    >>> import gymnasium as gym, icrl_agent
    >>> env = HistoryWrapper(gym.make("BoyanChain-v0"), context_length=8)
    >>> env.reset(seed=0)[0]["prompt"].shape
    (35, 9)
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        context_length: int = 64,
        feature_map: FeatureMap | Mapping[str, Any] | None = None,
        keep_across_episodes: bool = True,
    ) -> None:
        if isinstance(env, gym.vector.VectorEnv):
            raise TypeError("a vector environment needs icrl_agent.wrappers.vector.HistoryWrapper")
        check_flag("keep_across_episodes", keep_across_episodes)
        chosen = as_feature_map(feature_map, env.observation_space)
        gym.utils.RecordConstructorArgs.__init__(
            self,
            context_length=int(context_length) if isinstance(context_length, np.integer) else context_length,
            feature_map=chosen.spec(),
            keep_across_episodes=keep_across_episodes,
        )
        gym.Wrapper.__init__(self, env)
        self._buffer = PromptBuffer(context_length, chosen.dim)
        self.feature_map = chosen
        self.keep_across_episodes = keep_across_episodes
        self.observation_space = prompt_space(chosen.dim, context_length)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the history stays unless a seed or a task is given."""
        observation, info = self.env.reset(seed=seed, options=options)
        if not self.keep_across_episodes or seed is not None or (options and TASK_SEED in options):
            self._buffer.clear()
        self._buffer.reset(self._features(observation))
        return self._buffer.observation(), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step and append it to the history.

        Raises:
            ValueError: if the reward is not a finite float32 number; the history stays, a reset must come next.
            RuntimeError: before the first reset, after an episode's end, and after ``clear``.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        try:
            self._buffer.append(float(reward), self._features(observation), terminated, truncated)
        except ValueError:
            # The environment has moved on: appending from here would invent a transition.
            self._buffer.cut()
            raise
        return self._buffer.observation(), reward, terminated, truncated, info

    def clear(self) -> None:
        """Empty the history; a reset must come next."""
        self._buffer.clear()

    def _features(self, observation: Any) -> NDArray[np.float64]:
        return np.asarray(self.feature_map(np.asarray(observation)[None])[0])


def as_feature_map(feature_map: FeatureMap | Mapping[str, Any] | None, space: spaces.Space[Any]) -> FeatureMap:
    """Return a feature map given as itself, as its spec, or (None) as the space's default."""
    if feature_map is None:
        return feature_map_for(space, DEFAULT_FEATURE_DIM, seed=0)
    if isinstance(feature_map, Mapping):
        return from_spec(feature_map)
    if not isinstance(feature_map, FeatureMap):
        raise TypeError(f"feature_map must be a feature map, its spec or None, got {reprlib.repr(feature_map)}")
    return feature_map


def feature_space(feature_dim: int) -> spaces.Box:
    """Space of one feature vector: any finite float32 numbers."""
    largest = np.finfo(np.float32).max
    return spaces.Box(-largest, largest, (feature_dim,), np.float32)


def prompt_space(feature_dim: int, context_length: int) -> spaces.Dict:
    """Space of the observation ``{"prompt", "source_mask", "continues"}``, all bounds finite."""
    largest = np.finfo(np.float32).max
    n_columns = int(context_length) + 1
    return spaces.Dict(
        {
            "prompt": spaces.Box(-largest, largest, (feature_dim + MEMORY_ROWS, n_columns), np.float32),
            "source_mask": spaces.Box(0, 1, (n_columns,), np.int8),
            "continues": spaces.Box(0.0, 1.0, (n_columns,), np.float32),
        }
    )


def check_flag(name: str, value: bool) -> None:
    """Raise TypeError unless the value is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
