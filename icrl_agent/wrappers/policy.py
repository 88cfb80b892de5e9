"""Policies: one form for tables, functions and trained models, and the wrapper that folds one into an environment."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from icrl_agent.envs.tables import check_policy
from icrl_agent.envs.tabular_env import cumulative
from icrl_agent.observations import batch_length, single_observations

__all__ = ["BoundPolicy", "PolicyWrapper", "bind_policy"]

FloatArray = NDArray[np.float64]

#: Sets the policy's random stream apart from that of an environment with the same seed.
_POLICY_STREAM = 1

#: What counts as a policy: None, a table (S, A), a function of the raw observation, or a model with ``predict``.
PolicyLike = Any


class BoundPolicy:
    """A policy tied to the spaces of one environment, with a random generator of its own.

    Args:
        policy: None = sample the action space; a table pi[s, a] of shape (n_states, n_actions) over Discrete spaces;
            a callable from a raw observation to an action; or anything with Stable-Baselines3's
            ``predict(observation, deterministic=...)``.
        observation_space: of a single environment.
        action_space: of a single environment.
        deterministic: passed on to ``predict``.
        seed: of the generator; None = fresh entropy.

    Raises:
        TypeError: for something that is none of these, or a table where the spaces are not Discrete.
        ValueError: for a table of the wrong shape or with a row that is no distribution.
    """

    def __init__(
        self,
        policy: PolicyLike,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        deterministic: bool = True,
        seed: int | None = None,
    ) -> None:
        self.observation_space = observation_space
        # A copy: sampling must not move the generator of the environment's own space.
        self.action_space = copy.deepcopy(action_space)
        self.deterministic = deterministic
        self._model: Any = None
        self._function: Callable[[Any], Any] | None = None
        self._probabilities: FloatArray | None = None
        if policy is None:
            pass
        elif isinstance(policy, type):
            raise TypeError(f"a policy is a model, not its class: got the class {policy.__name__}")
        elif hasattr(policy, "predict"):
            self._model = policy
        elif callable(policy):
            self._function = policy
        else:
            self._probabilities = _table(policy, observation_space, action_space)
            self._cumulative = cumulative(self._probabilities)
        self.seed(seed)

    def seed(self, seed: int | None) -> None:
        """Start the generator again."""
        # A stream of its own: an environment reset with the same seed draws from SeedSequence(seed), and equal draws
        # would tie the action to the next state.
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_POLICY_STREAM,)))
        self.action_space.seed(int(self._rng.integers(2**31)))

    def action(self, observation: Any) -> Any:
        """Choose an action for one raw observation.

        Raises:
            ValueError: if a function or model returns an action outside the action space.
        """
        if self._probabilities is not None:
            row = self._cumulative[int(observation) - self._start]
            return int(np.searchsorted(row, self._rng.random(), side="right")) + self._first_action
        if self._function is not None:
            return self._valid(self._function(observation))
        if self._model is not None:
            return self._valid(self._model.predict(observation, deterministic=self.deterministic)[0])
        return self.action_space.sample()

    def actions(self, observations: Any) -> NDArray[Any]:
        """Choose one action per row of a batch of raw observations; errors as in ``action``."""
        if self._probabilities is not None:
            rows = self._cumulative[np.asarray(observations) - self._start]
            chosen = (rows <= self._rng.random(len(rows))[:, None]).sum(axis=1)
            return np.asarray(chosen + self._first_action)
        if self._model is not None:
            chosen = np.asarray(self._model.predict(observations, deterministic=self.deterministic)[0])
            for action in chosen:
                self._valid(action)
            return chosen
        if self._function is not None:
            singles = single_observations(self.observation_space, observations)
            return np.stack([np.asarray(self.action(observation)) for observation in singles])
        n_rows = batch_length(observations)
        if isinstance(self.action_space, spaces.Discrete):
            low = int(self.action_space.start)
            return self._rng.integers(low, low + int(self.action_space.n), n_rows)
        return np.stack([np.asarray(self.action_space.sample()) for _ in range(n_rows)])

    def table(self) -> FloatArray | None:
        """pi[s, a] where it is certain: a table, uniform sampling, or a deterministic model asked once per state.

        None for functions, stochastic models, and spaces that are not Discrete.
        """
        states, actions = self.observation_space, self.action_space
        if not (isinstance(states, spaces.Discrete) and isinstance(actions, spaces.Discrete)):
            return None
        if self._probabilities is not None:
            return self._probabilities
        n_states, n_actions = int(states.n), int(actions.n)
        if self._model is not None and self.deterministic:
            chosen = [self.action(int(states.start) + s) for s in range(n_states)]
            return np.eye(n_actions)[np.asarray(chosen, dtype=np.intp) - int(actions.start)]
        if self._model is None and self._function is None:
            return np.full((n_states, n_actions), 1.0 / n_actions)
        return None

    @property
    def _start(self) -> int:
        return int(self.observation_space.start)  # type: ignore[attr-defined]

    @property
    def _first_action(self) -> int:
        return int(self.action_space.start)  # type: ignore[attr-defined]

    def _valid(self, action: Any) -> Any:
        if isinstance(self.action_space, spaces.Discrete) and np.size(action) == 1:
            action = np.asarray(action).reshape(()).item()
        elif isinstance(self.action_space, spaces.Box) and np.issubdtype(self.action_space.dtype, np.floating):
            action = np.asarray(action, dtype=self.action_space.dtype)
            if action.size == 1 and self.action_space.shape == (1,):
                action = action.reshape(1)
        if not self.action_space.contains(action):
            raise ValueError(f"the policy returned action {action!r}, which is not in {self.action_space}")
        return action


def bind_policy(policy: PolicyLike, env: gym.Env[Any, Any], deterministic: bool, seed: int | None) -> BoundPolicy:
    """Tie a policy to the spaces of one environment."""
    return BoundPolicy(policy, env.observation_space, env.action_space, deterministic=deterministic, seed=seed)


class PolicyWrapper(gym.Wrapper[Any, int, Any, Any], gym.utils.RecordConstructorArgs):
    """Folds a policy into an environment: what remains is a reward process with the one action 0.

    Args:
        env: the environment.
        policy: a table (n_states, n_actions), a function of the raw observation, a model with ``predict``, or None
            for uniform sampling of the action space.
        seed: of the policy's generator; None = fresh entropy. ``reset(seed=k)`` seeds it again.
        deterministic: passed on to a model's ``predict``.

    Raises:
        TypeError, ValueError: for a policy that does not fit the spaces, see ``BoundPolicy``.

    >>> import gymnasium as gym, numpy as np, icrl_agent
    >>> env = PolicyWrapper(gym.make("RandomMDP-v0"), np.full((10, 4), 0.25), seed=0)
    >>> env.action_space
    Discrete(1)
    """

    def __init__(
        self, env: gym.Env[Any, Any], policy: PolicyLike, seed: int | None = None, deterministic: bool = True
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self,
            _disable_deepcopy=True,
            policy=policy.tolist() if isinstance(policy, np.ndarray) else policy,
            seed=seed,
            deterministic=deterministic,
        )
        gym.Wrapper.__init__(self, env)
        self.policy = bind_policy(policy, env, deterministic, seed)
        self.action_space = spaces.Discrete(1)  # type: ignore[assignment]
        self._observation: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment, and with a seed the policy's generator too."""
        if seed is not None:
            self.policy.seed(seed)
        self._observation, info = self.env.reset(seed=seed, options=options)
        return self._observation, info

    def step(self, action: int = 0) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Let the policy act once. ``action`` must be 0.

        Raises:
            ValueError: for another action.
            gymnasium.error.ResetNeeded: before the first reset.
        """
        check_only_action(action)
        if self._observation is None:
            raise gym.error.ResetNeeded("the policy has no observation to act on: call reset() before step()")
        chosen = self.policy.action(self._observation)
        self._observation, reward, terminated, truncated, info = self.env.step(chosen)
        return self._observation, reward, terminated, truncated, info


def check_only_action(actions: ArrayLike) -> None:
    """Raise ValueError unless every action is 0."""
    if np.any(np.asarray(actions) != 0):
        raise ValueError(f"the policy acts by itself, the only action is 0, got {actions!r}")


def _table(policy: Any, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> FloatArray:
    if isinstance(policy, str | bytes) or np.ndim(np.asarray(policy, object)) == 0:
        raise TypeError(
            "a policy is None, a table (n_states, n_actions), a function of an observation, or a model with predict;"
            f" got {policy!r}"
        )
    for name, space in (("observation", observation_space), ("action", action_space)):
        if not isinstance(space, spaces.Discrete):
            raise TypeError(f"a policy table needs a Discrete {name} space, got {space}: pass a function instead")
    assert isinstance(observation_space, spaces.Discrete)
    assert isinstance(action_space, spaces.Discrete)
    return check_policy(policy, int(observation_space.n), int(action_space.n))
