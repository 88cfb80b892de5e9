"""Which environments a controller acts in, and the features of their pairs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from icrl_agent.features import FeatureMap, PairFeatures

__all__ = ["as_pair_map", "control_spaces"]


def control_spaces(env: Any) -> tuple[spaces.Discrete | spaces.Box, spaces.Discrete]:
    """Observation and action space of an environment that a controller can act in.

    Raises:
        TypeError: for something that is no single environment, or other spaces.
    """
    if isinstance(env, VectorEnv) or not isinstance(env, gym.Env):
        raise TypeError(
            f"a controller acts in one Gymnasium environment, got {type(env).__name__}: make one controller per copy"
        )
    observations, actions = env.observation_space, env.action_space
    if not isinstance(actions, spaces.Discrete):
        raise TypeError(f"action space {actions} is not supported: a controller chooses among Discrete actions")
    vector = isinstance(observations, spaces.Box) and len(observations.shape) <= 1
    if not (vector or isinstance(observations, spaces.Discrete)):
        raise TypeError(
            f"observation space {observations} is not supported: a controller reads Discrete or one-dimensional Box"
            " observations; flatten others with gymnasium.wrappers.FlattenObservation"
        )
    return observations, actions  # type: ignore[return-value]


def as_pair_map(feature_map: FeatureMap, action_space: spaces.Discrete, seed: int) -> PairFeatures:
    """Features of the pairs from those of the observations, or those of the pairs as they are.

    Raises:
        ValueError: for features of other actions.
    """
    n_actions, start = int(action_space.n), int(action_space.start)
    if not isinstance(feature_map, PairFeatures):
        return PairFeatures(feature_map, n_actions, seed, start)
    if (feature_map.n_actions, feature_map.start) != (n_actions, start):
        raise ValueError(
            f"the feature map knows {feature_map.n_actions} actions from {feature_map.start}, the environment has"
            f" {n_actions} from {start}"
        )
    return feature_map
