"""Which environments a controller acts in, and the features of their pairs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from icrl_agent.features import FeatureMap, PairFeatures

__all__ = ["as_pair_map", "control_spaces"]

#: Of larger Discrete spaces only the first and the last state are asked for their features beforehand.
MOST_STATES = 10_000


def control_spaces(env: Any) -> tuple[spaces.Discrete | spaces.Box, spaces.Discrete]:
    """Observation and action space of an environment that a controller can act in.

    Raises:
        TypeError: for something that is no single environment, or other spaces.
    """
    if isinstance(env, VectorEnv) or not isinstance(env, gym.Env):
        advice = ": make one controller per copy" if isinstance(env, VectorEnv) else ""
        raise TypeError(f"a controller acts in one Gymnasium environment, got {_shown(env)}{advice}")
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


def _shown(env: Any) -> str:
    plain = env is None or isinstance(env, str | int | float)
    return repr(env) if plain else type(env).__name__


def as_pair_map(
    feature_map: FeatureMap, observation_space: spaces.Space[Any], action_space: spaces.Discrete, seed: int
) -> PairFeatures:
    """Features of the pairs from those of the observations, or those of the pairs as they are.

    Raises:
        ValueError: for features of other actions, or that lack states of a Discrete space.
    """
    n_actions, start = int(action_space.n), int(action_space.start)
    if isinstance(feature_map, PairFeatures):
        if (feature_map.n_actions, feature_map.start) != (n_actions, start):
            raise ValueError(
                f"the feature map knows {feature_map.n_actions} actions from {feature_map.start}, the environment has"
                f" {n_actions} from {start}"
            )
    else:
        feature_map = PairFeatures(feature_map, n_actions, seed, start)
    if isinstance(observation_space, spaces.Discrete):
        _refuse_lacking(feature_map.observation_map, observation_space)
    return feature_map


def _refuse_lacking(feature_map: FeatureMap, space: spaces.Discrete) -> None:
    first, last = int(space.start), int(space.start) + int(space.n) - 1
    states = np.arange(first, last + 1) if space.n <= MOST_STATES else np.array([first, last])
    try:
        x = np.asarray(feature_map(states[:, None]), np.float64)
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"the feature map lacks features for states {first} to {last}: {error}") from error
    if not np.isfinite(x).all():
        raise ValueError(f"state {states[~np.isfinite(x).all(axis=1)][0]} has features that are not finite")
