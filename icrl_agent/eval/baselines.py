"""Policy evaluation with real Stable-Baselines3 algorithms: critics that train, on the transitions the agent sees.

The policy is folded into the environment, which leaves one action, so every algorithm's critic is a value function of
that policy. A recorded history is played back (``ReplayEnv``), so methods are compared on the same transitions.
Stable-Baselines3 is imported when a baseline is fitted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from icrl_agent.collect import collect, preserved_generators, single_spaces
from icrl_agent.envs.solve import check_gamma
from icrl_agent.eval.replay import ReplayEnv
from icrl_agent.eval.sb3_models import RATES, BaselineKind, default_model, tuned_model
from icrl_agent.features import FeatureMap
from icrl_agent.transitions import Transitions

__all__ = ["BaselineRecord", "SB3Baseline"]

FloatArray = NDArray[np.float64]

#: Points of Stable-Baselines3's own curves.
LOG_POINTS = 50


@dataclass(frozen=True)
class BaselineRecord:
    """State of a baseline after some environment steps."""

    n_steps: int
    """Environment steps asked for."""
    values: FloatArray
    """Values of the recorded states, after the last update at or before that step."""
    seconds: float
    """Wall time since learning began."""
    gradient_updates: int
    """Optimiser steps so far."""


@dataclass
class SB3Baseline:
    """One Stable-Baselines3 critic as a policy evaluator.

    Args:
        kind: the algorithm.
        net_arch: hidden layers of the critic; () = linear.
        features: "one_hot" for Discrete observations, "raw" for the observation itself, or a feature map.
        defaults: Stable-Baselines3's own hyperparameters (and its [64, 64] network) but gamma.
        learning_rate: the initial rate; None = tuned for kind, network and features on tasks no comparison uses. It
            decays as rate / (1 + step / 1000), whatever the budget.
        updates_per_step: of DQN's replay.

    >>> import gymnasium as gym, icrl_agent
    >>> baseline = SB3Baseline("td0", learning_rate=0.1)
    >>> _ = baseline.fit(gym.make("BoyanChain-v0"), n_steps=50, gamma=0.9, seed=0)
    >>> baseline.values(range(10)).shape
    (10,)
    """

    kind: BaselineKind
    net_arch: tuple[int, ...] = ()
    features: Literal["one_hot", "raw"] | FeatureMap = "one_hot"
    defaults: bool = False
    learning_rate: float | None = None
    updates_per_step: int = 1
    model: Any = field(default=None, init=False, repr=False)
    """The Stable-Baselines3 model, after ``fit``."""

    def __post_init__(self) -> None:
        if self.kind not in ("td0", "dqn", "a2c", "ppo"):
            raise ValueError(f"kind must be 'td0', 'dqn', 'a2c' or 'ppo', got {self.kind!r}")
        if self.updates_per_step < 1 or (self.updates_per_step > 1 and self.kind != "dqn"):
            raise ValueError(f"updates_per_step must be at least 1, and 1 but for 'dqn', got {self.updates_per_step}")
        if isinstance(self.features, str) and self.features not in ("one_hot", "raw"):
            raise ValueError(f"features must be 'one_hot', 'raw' or a feature map, got {self.features!r}")

    @property
    def name(self) -> str:
        """What tables call it."""
        algorithm = {"td0": "TD(0) (SB3 A2C)", "dqn": "DQN", "a2c": "A2C", "ppo": "PPO"}[self.kind]
        if self.defaults:
            return f"{algorithm}, SB3 defaults"
        network = "linear" if not self.net_arch else f"{list(self.net_arch)}"
        features = self.features if isinstance(self.features, str) else "own features"
        return f"{algorithm}, {network}, {features.replace('_', '-')}"

    def fit(
        self,
        env: gym.Env[Any, Any],
        n_steps: int,
        gamma: float,
        seed: int = 0,
        *,
        policy: Any = None,
        record_at: Sequence[int] = (),
        record_states: ArrayLike | None = None,
        log_dir: Path | None = None,
    ) -> list[BaselineRecord]:
        """Take ``n_steps`` transitions as ``ICRLAgent.evaluate`` does with this seed, then train on them in order.

        Args:
            env: a plain environment; policy: as in ``evaluate``.
            n_steps, gamma, seed: as in ``evaluate``; the seed also starts the network.
            record_at: environment steps at which the values of ``record_states`` are recorded.
            record_states: raw observations; None = all states of a Discrete space.
            log_dir: folder for Stable-Baselines3's own TensorBoard log.

        Returns:
            One record per step of ``record_at``.
        """
        transitions = collect(env, policy, n_steps, seed)
        observation_space, _ = single_spaces(env)
        return self.fit_transitions(
            transitions,
            observation_space,
            gamma,
            seed,
            record_at=record_at,
            record_states=record_states,
            log_dir=log_dir,
        )

    def fit_transitions(
        self,
        transitions: Transitions,
        observation_space: spaces.Space[Any],
        gamma: float,
        seed: int = 0,
        *,
        record_at: Sequence[int] = (),
        record_states: ArrayLike | None = None,
        log_dir: Path | None = None,
    ) -> list[BaselineRecord]:
        """Train on recorded transitions of one copy, in order; arguments as in ``fit``."""
        from stable_baselines3.common.vec_env import DummyVecEnv

        gamma = check_gamma(gamma)
        if (
            isinstance(self.features, str)
            and self.features == "one_hot"
            and not isinstance(observation_space, spaces.Discrete)
        ):
            raise TypeError(f"one_hot features need a Discrete observation space, got {observation_space}")
        if record_states is None and isinstance(observation_space, spaces.Discrete):
            record_states = np.arange(observation_space.start, observation_space.start + observation_space.n)
        feature_map = None if isinstance(self.features, str) else self.features
        with preserved_generators(seed):
            env = DummyVecEnv([lambda: ReplayEnv(transitions, observation_space, feature_map)])
            common = {"env": env, "gamma": gamma, "seed": seed, "device": "cpu", "verbose": 0}
            if self.defaults:
                self.model = default_model(self.kind, common)
            else:
                rate = self.learning_rate
                if rate is None:
                    rate = RATES[self.kind, bool(self.net_arch)][0 if self.features == "one_hot" else 1]
                if self.kind == "dqn":
                    common["gradient_steps"] = self.updates_per_step
                self.model = tuned_model(self.kind, self.net_arch, rate, len(transitions), common)
            callback = _make_recorder(self, sorted(record_at), record_states)
            with _logger(self.model, log_dir):
                self.model.learn(len(transitions), callback=callback, log_interval=None)
        return [callback.records[k] for k in sorted(record_at)]

    def values(self, states: ArrayLike) -> FloatArray:
        """Values of raw observations, float64 (m,).

        Raises:
            RuntimeError: before ``fit``.
        """
        if self.model is None:
            raise RuntimeError("fit the baseline before asking it for values")
        observations = np.asarray(states)
        if not isinstance(self.features, str):
            observations = self.features(observations).astype(np.float32)
        policy = self.model.policy
        with torch.no_grad():
            tensor, _ = policy.obs_to_tensor(observations)
            values = self.model.q_net(tensor)[:, 0] if self.kind == "dqn" else policy.predict_values(tensor)[:, 0]
        return np.asarray(values.double().cpu().numpy())


def _make_recorder(baseline: SB3Baseline, record_at: Sequence[int], states: ArrayLike | None) -> Any:
    """A callback that records values when every step so far has been learnt from."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Recorder(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.records: dict[int, BaselineRecord] = {}

        def _on_training_start(self) -> None:
            self._start = time.perf_counter()
            self._paused = 0.0
            self._dumped = 0

        # A rollout starts right after the update from the one before, and ends before its own.
        def _on_rollout_start(self) -> None:
            self._record(lambda k: k >= self.num_timesteps)

        def _on_training_end(self) -> None:
            self._record(lambda k: k >= self.num_timesteps or k not in self.records)

        def _on_step(self) -> bool:
            return True

        def _record(self, due: Callable[[int], bool]) -> None:
            now = time.perf_counter()
            pending = [k for k in record_at if due(k)]
            if pending and states is not None:
                optimizer = baseline.model.policy.optimizer
                counts = [int(entry["step"]) for entry in optimizer.state.values() if "step" in entry]
                updates = max(counts, default=int(baseline.model._n_updates))
                record = BaselineRecord(0, baseline.values(states), now - self._start - self._paused, updates)
                # Later updates at or before a step replace what is recorded for it.
                for k in pending:
                    self.records[k] = dataclasses.replace(record, n_steps=k)
            # Stable-Baselines3 dumps its log by iterations or episodes, which short runs may have none of.
            if (self.num_timesteps - self._dumped) * LOG_POINTS >= self.model._total_timesteps:
                self.logger.dump(self.num_timesteps)
                self._dumped = self.num_timesteps
            self._paused += time.perf_counter() - now

    return Recorder()


@contextlib.contextmanager
def _logger(model: Any, log_dir: Path | None) -> Iterator[None]:
    """Let a model log to TensorBoard, or nowhere, and close the log."""
    from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat

    logger = Logger(None, [] if log_dir is None else [TensorBoardOutputFormat(str(log_dir))])
    model.set_logger(logger)
    try:
        yield
    finally:
        logger.close()
