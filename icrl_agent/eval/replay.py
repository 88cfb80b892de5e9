"""A recorded history played back as an environment, so that every method sees the same transitions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from icrl_agent.features import FeatureMap
from icrl_agent.transitions import Transitions
from icrl_agent.wrappers.policy import check_only_action

__all__ = ["ReplayEnv"]


class ReplayEnv(gym.Env[Any, int]):
    """Plays the transitions of one environment copy in order; the only action is 0.

    Terminations, truncations and resets come as they were recorded. At the end of the record it starts again from
    the first transition, so that a training loop that overshoots has something to step through.

    Args:
        transitions: the record, of one copy.
        observation_space: of the recorded observations.
        feature_map: turn observations into float32 features; None = as recorded.

    Raises:
        ValueError: for a record of several copies.
    """

    def __init__(
        self, transitions: Transitions, observation_space: spaces.Space[Any], feature_map: FeatureMap | None = None
    ) -> None:
        if len(np.unique(transitions.copy)) != 1:
            raise ValueError("a record of several copies cannot be played back as one environment")
        self._observations = _shown(transitions.observations, feature_map)
        self._next_observations = _shown(transitions.next_observations, feature_map)
        self._transitions = transitions
        self._position = 0
        self.action_space = spaces.Discrete(1)  # type: ignore[assignment]
        self.observation_space = observation_space
        if feature_map is not None:
            self.observation_space = spaces.Box(-np.inf, np.inf, (feature_map.dim,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the observation that the next recorded transition leaves."""
        super().reset(seed=seed)
        return self._present(self._observations), {}

    def step(self, action: int = 0) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play the next transition.

        Raises:
            ValueError: for an action that is not 0.
        """
        check_only_action(action)
        at, record = self._position, self._transitions
        following = self._present(self._next_observations)
        self._position = (at + 1) % len(record)
        terminated = bool(record.terminated[at])
        # Both flags mean terminated; the jump back to the start of the record is a cut.
        cut = bool(record.truncated[at]) or self._position == 0
        return following, float(record.rewards[at]), terminated, cut and not terminated, {}

    def _present(self, observations: NDArray[Any]) -> Any:
        observation = observations[self._position]
        return int(observation) if np.ndim(observation) == 0 else np.array(observation)


def _shown(observations: NDArray[Any], feature_map: FeatureMap | None) -> NDArray[Any]:
    return observations if feature_map is None else feature_map(observations).astype(np.float32)
