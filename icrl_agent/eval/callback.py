"""The frozen agent inside somebody's own Stable-Baselines3 training: its estimate beside the critic that trains."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback

from icrl_agent.agent import ICRLAgent
from icrl_agent.results import Evaluation

__all__ = ["CRITIC_ESTIMATE", "FROZEN_ESTIMATE", "TRUE_VALUE", "ICTDValueCallback"]

# Tags in Stable-Baselines3's logger, and so in its TensorBoard folder.
FROZEN_ESTIMATE = "ictd/frozen_estimate"
CRITIC_ESTIMATE = "ictd/critic_estimate"
TRUE_VALUE = "ictd/true_value"


class ICTDValueCallback(BaseCallback):
    """Every ``every`` steps, evaluate the policy being trained in context and log it beside the critic's own view.

    All numbers are means over the states that the evaluation visited, weighted by visits: the frozen estimate, the
    critic's estimate (state value of actor-critics, largest Q-value of DQN; left out for other algorithms), and the
    exact value where tables are known. The discount factor is the model's own. The policy evaluated is the one that
    acts in training (an actor-critic's action probabilities or samples, else ``predict``).

    Args:
        agent: the frozen agent; its parameters do not change.
        eval_env: an environment of its own, of the same kind as the training's.
        every: environment steps between evaluations, at least 1.
        n_steps: transitions per evaluation, at least 1.
        seed: of every evaluation's trajectory.

    Attributes:
        history: one dictionary per evaluation: num_timesteps, frozen, critic, truth (None where unknown).
        last: the last ``Evaluation``.

    Raises:
        ValueError: for every or n_steps below 1.
    """

    def __init__(
        self, agent: ICRLAgent, eval_env: gym.Env[Any, Any], every: int = 1000, n_steps: int = 500, seed: int = 0
    ) -> None:
        super().__init__()
        for name, value in (("every", every), ("n_steps", n_steps)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        self.agent, self.eval_env, self.every, self.n_steps, self.seed = agent, eval_env, every, n_steps, seed
        self.history: list[dict[str, float | int | None]] = []
        self.last: Evaluation | None = None
        self._next = every

    def _on_step(self) -> bool:
        if self.num_timesteps >= self._next:
            self._next = self.num_timesteps + self.every
            self._evaluate()
        return True

    def _evaluate(self) -> None:
        gamma = float(self.model.gamma)  # type: ignore[attr-defined]
        result = self.agent.evaluate(
            self.eval_env,
            policy=acting_policy(self.model, self.eval_env),
            n_steps=self.n_steps,
            gamma=gamma,
            seed=self.seed,
        )
        seen = result.visits > 0
        weights = result.visits[seen] / result.visits[seen].sum()
        critic = critic_values(self.model, result.states[seen])
        entry: dict[str, float | int | None] = {
            "num_timesteps": self.num_timesteps,
            "frozen": float(weights @ result.values[seen]),
            "critic": None if critic is None else float(weights @ critic),
            "truth": None if result.true_values is None else float(weights @ result.true_values[seen]),
        }
        self.history.append(entry)
        self.last = result
        for tag, name in ((FROZEN_ESTIMATE, "frozen"), (CRITIC_ESTIMATE, "critic"), (TRUE_VALUE, "truth")):
            if entry[name] is not None:
                self.logger.record(tag, entry[name])
        self.logger.dump(self.num_timesteps)


def acting_policy(model: Any, env: gym.Env[Any, Any]) -> Any:
    """The policy a model acts with in training.

    A table of probabilities for actor-critics on Discrete spaces, their samples on other spaces, else the model.
    """
    states = env.observation_space
    if not hasattr(model.policy, "get_distribution"):
        return model
    if not isinstance(states, spaces.Discrete):
        return lambda observation: model.predict(observation, deterministic=False)[0]
    tensor, _ = model.policy.obs_to_tensor(np.arange(states.start, states.start + states.n))
    with torch.no_grad():
        distribution = model.policy.get_distribution(tensor).distribution
    return distribution.probs.double().cpu().numpy() if hasattr(distribution, "probs") else model


def critic_values(model: Any, observations: NDArray[Any]) -> NDArray[np.float64] | None:
    """What a model's own critic says about raw observations, (m,); None for critics that are no state values."""
    policy = model.policy
    with torch.no_grad():
        if hasattr(policy, "predict_values"):
            tensor, _ = policy.obs_to_tensor(observations)
            values = policy.predict_values(tensor)[:, 0]
        elif hasattr(model, "q_net"):
            tensor, _ = policy.obs_to_tensor(observations)
            values = model.q_net(tensor).max(dim=1).values
        else:
            return None
    return np.asarray(values.double().cpu().numpy())
