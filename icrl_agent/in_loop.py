"""A frozen model in a loop: histories that answer at every step, and policies that live in a context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
from gymnasium import spaces

from icrl_agent.control import Controller
from icrl_agent.control.exploration import DEFAULT_EXPLORATION, Exploration, as_exploration
from icrl_agent.control.loop import checked_records, run_control
from icrl_agent.control.result import ControlResult
from icrl_agent.control.spaces import as_pair_map, control_spaces
from icrl_agent.control.targets import TargetKind
from icrl_agent.depth import Depth, check_tolerance, layer_weights, resolve_depth
from icrl_agent.envs.solve import check_gamma
from icrl_agent.features import FeatureMap
from icrl_agent.features.fourier import AUTO
from icrl_agent.frozen import FrozenModel, checked_seed
from icrl_agent.streaming import LayerWeights, Stream, VectorStream

__all__ = ["ModelInLoop", "positive_integer"]


class ModelInLoop(FrozenModel):
    """A frozen model whose context grows while an environment runs: ``stream``, ``vector_stream``, ``controller``."""

    def stream(
        self,
        feature_map: FeatureMap | Mapping[str, Any],
        gamma: float = 0.9,
        context_length: int | None = None,
        n_layers: Depth | None = None,
        tolerance: float | None = None,
    ) -> Stream:
        """Return an empty history that is filled step by step and answers at every step, see ``Stream``.

        Args:
            feature_map: of the raw observations, or its spec.
            gamma: discount factor in [0, 1].
            context_length: columns in the sliding window, as in ``HistoryWrapper``; None = unbounded.
            n_layers: depth; None = the model's own; "fixed_point" = the limit of infinitely many layers.
            tolerance: stop after a layer that changes no value of a state in the context above it; None = run all.

        Raises:
            ValueError: for an argument out of its range or features of another dimension than the weights'.
            TypeError: for something that is no feature map.
        """
        return Stream(*self._stream_arguments(feature_map, gamma, context_length, n_layers, tolerance))

    def vector_stream(
        self,
        num_envs: int,
        feature_map: FeatureMap | Mapping[str, Any],
        gamma: float = 0.9,
        context_length: int | None = None,
        n_layers: Depth | None = None,
        tolerance: float | None = None,
    ) -> VectorStream:
        """Return ``num_envs`` empty histories that are filled and asked together; the rest as in ``stream``."""
        arguments = self._stream_arguments(feature_map, gamma, context_length, n_layers, tolerance)
        return VectorStream(*arguments, num_envs)

    def _stream_arguments(
        self,
        feature_map: FeatureMap | Mapping[str, Any],
        gamma: float,
        context_length: int | None,
        n_layers: Depth | None,
        tolerance: float | None,
    ) -> tuple[LayerWeights, FeatureMap, float, int | None, Depth, float | None]:
        depth = resolve_depth(self.model, n_layers)
        if feature_map is None:
            raise TypeError("a stream needs a feature map or its spec: it knows no observation space to choose one for")
        self._refuse_auto("stream", None)
        return (
            layer_weights(self.model, depth),
            self._feature_map(feature_map, None),
            check_gamma(gamma),
            context_length,
            depth,
            check_tolerance(tolerance, depth),
        )

    def _refuse_auto(self, kind: str, default_features_of: Any) -> None:
        """Refuse what is chosen for a context that is there: weights, and default features of vectors."""
        if self.auto_sharpness:
            raise ValueError(
                f"a {kind}'s weights stay as they are: build the agent with a number as sharpness, not 'auto'"
            )
        if isinstance(default_features_of, spaces.Box) and self.lengthscale == AUTO:
            raise ValueError(
                f"a {kind}'s features stay as they are: build the agent with a number as lengthscale, not 'auto', or"
                " pass a feature_map"
            )

    def controller(
        self,
        env: Any,
        gamma: float = 0.9,
        target: TargetKind = "greedy",
        exploration: float | Exploration = DEFAULT_EXPLORATION,
        context_length: int | None = None,
        refresh_every: int = 20,
        n_layers: Depth | None = None,
        feature_map: FeatureMap | Mapping[str, Any] | None = None,
        seed: int | None = None,
        tolerance: float | None = None,
    ) -> Controller:
        """Return a policy for an environment that lives in its context, empty to begin with; see ``Controller``.

        Args:
            env: a single Gymnasium environment, for its spaces: Discrete or Box observations, Discrete actions.
            gamma: discount factor in [0, 1]; with 1, for episodes that end, values are those after ``n_layers``.
            target: what a target memory reads: "greedy" the best next action, "expected" the policy's own
                probabilities, "recorded" the action taken next, which is the paper's layer untouched.
            exploration: a constant probability of a random action, ``Epsilon``, or ``Optimism``, whose scale is in
                units of reward.
            context_length: columns in the sliding window; None = unbounded.
            refresh_every: steps between forward passes that steer the actions, at least 1.
            n_layers: depth; None = the model's own; "fixed_point" = until no layer changes anything.
            feature_map: of the observations or (``PairFeatures``) of the pairs, or its spec; None = the default.
            seed: of the random choices; None = fresh entropy.
            tolerance: stop after a layer that changes no value above it; None = run all.

        Raises:
            ValueError: for an argument out of its range, features of another dimension than the weights' or that lack
                states of a Discrete space, an agent whose sharpness or lengthscale is "auto".
            TypeError: for something that is no environment, or a space that is not supported.
        """
        gamma, depth = check_gamma(gamma), resolve_depth(self.model, n_layers)
        tolerance = check_tolerance(tolerance, depth)
        observation_space, action_space = control_spaces(env)
        if target not in get_args(TargetKind):
            raise ValueError(f"target must be one of {get_args(TargetKind)}, got {target!r}")
        self._refuse_auto("controller", observation_space if feature_map is None else None)
        refresh_every, seed = positive_integer("refresh_every", refresh_every), checked_seed(seed)
        chosen = self._fixed_feature_map(feature_map, observation_space)
        pair_map = as_pair_map(chosen, observation_space, action_space, self.feature_seed)
        stream = Stream(layer_weights(self.model, depth), pair_map, gamma, context_length, depth, tolerance)
        explores = as_exploration(exploration)
        return Controller(stream, observation_space, action_space, target, explores, refresh_every, seed)

    def control(
        self,
        env: Any,
        n_steps: int,
        gamma: float = 0.9,
        target: TargetKind = "greedy",
        exploration: float | Exploration = DEFAULT_EXPLORATION,
        context_length: int | None = None,
        refresh_every: int = 20,
        n_layers: Depth | None = None,
        feature_map: FeatureMap | Mapping[str, Any] | None = None,
        seed: int | None = None,
        tolerance: float | None = None,
        record_at: Sequence[int] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> ControlResult:
        """Act in an environment for ``n_steps`` steps, improving in context alone: no gradient, no parameter changes.

        Resets the environment first and whenever an episode ends. Where its tables are known the greedy policy is
        compared with the best one, exactly.

        Args:
            env, gamma, target, exploration, context_length, refresh_every, n_layers, feature_map, tolerance: as in
                ``controller``.
            n_steps: environment steps, at least 1.
            seed: of the environment's first reset and of the random choices; None = unseeded.
            record_at: steps after which the policy is judged, in 1 .. n_steps; None = twenty of them, evenly spaced.
            progress: called with the step at every record.

        Raises:
            ValueError, TypeError: as ``controller``, and for steps that are not in their range.

        >>> import gymnasium as gym, icrl_agent
        >>> agent = icrl_agent.ICRLAgent.from_theory(feature_dim=64)
        >>> result = agent.control(gym.make("RandomMDP-v0", task_seed=3), n_steps=500, seed=0)
        >>> result.q_values.shape, result.records[-1].normalised_return > 0.9
        ((10, 4), True)
        """
        n_steps, seed = positive_integer("n_steps", n_steps), checked_seed(seed)
        steps = checked_records(record_at, n_steps)
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be a function of the step or None, got {progress!r}")
        controller = self.controller(
            env, gamma, target, exploration, context_length, refresh_every, n_layers, feature_map, seed, tolerance
        )
        return run_control(controller, env, n_steps, steps, seed, progress)


def positive_integer(name: str, value: int) -> int:
    """Return a size as a Python int.

    Raises:
        ValueError: for anything but an integer of at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    return int(value)
