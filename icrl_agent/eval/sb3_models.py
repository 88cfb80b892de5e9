"""Stable-Baselines3 models set up as policy evaluators: settings that make each a fair TD method.

What departs from the defaults and why: gradient clipping never clips (it moves the fixed point), DQN has the squared TD
error (its Huber loss cuts errors above 1, which moves the fixed point too), learns at every step from its whole replay
buffer, critics start at 0 like every other method, and learning rates are tuned and decay independently of the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch

__all__ = ["RATES", "BaselineKind", "default_model", "tuned_model"]

#: "td0": online TD(0), which A2C is with one-step rollouts, lambda 0 and plain SGD; "dqn": replay with squared loss.
BaselineKind = Literal["td0", "dqn", "a2c", "ppo"]

#: Gradient clipping that never clips.
_NO_CLIPPING = 1e9

#: Initial learning rates for (one-hot, own) features by (kind, has hidden layers): the best of benchmarks/sb3_sweep.py.
RATES: dict[tuple[str, bool], tuple[float, float]] = {
    ("td0", False): (0.3, 0.3),
    ("td0", True): (0.3, 0.3),
    ("dqn", False): (0.03, 0.03),
    ("dqn", True): (0.01, 0.01),
    ("a2c", False): (0.03, 0.03),
    ("a2c", True): (0.003, 0.003),
    ("ppo", False): (0.03, 0.03),
    ("ppo", True): (0.03, 0.01),
}


def default_model(kind: BaselineKind, common: dict[str, Any]) -> Any:
    """A model with Stable-Baselines3's own hyperparameters; ``common`` are environment, gamma, seed and the like."""
    from stable_baselines3 import A2C, DQN, PPO

    algorithm: Any = {"td0": A2C, "a2c": A2C, "dqn": DQN, "ppo": PPO}[kind]
    return algorithm("MlpPolicy", **common)


def tuned_model(
    kind: BaselineKind, net_arch: tuple[int, ...], rate: float, n_steps: int, common: dict[str, Any]
) -> Any:
    """A model that is a TD method; the rate decays as rate / (1 + step / 1000).

    Args:
        kind: the algorithm.
        net_arch: hidden layers of the critic.
        rate: initial learning rate.
        n_steps: environment steps that ``learn`` will be asked for.
        common: environment, gamma, seed and the like; for DQN its ``gradient_steps``.
    """
    from stable_baselines3 import A2C, PPO

    common = {**common, "learning_rate": _decayed(rate, n_steps), "max_grad_norm": _NO_CLIPPING}
    if kind == "dqn":
        model: Any = _squared_loss_dqn()(
            "MlpPolicy",
            learning_starts=0,
            train_freq=1,
            batch_size=128,
            buffer_size=max(n_steps, 1000),
            target_update_interval=1,
            policy_kwargs={"net_arch": list(net_arch)},
            **common,
        )
        _zero_heads(model.q_net.q_net[-1], model.q_net_target.q_net[-1])
        return model
    policy_kwargs: dict[str, Any] = {"net_arch": {"pi": [], "vf": list(net_arch)}}
    if net_arch:
        policy_kwargs["activation_fn"] = torch.nn.ReLU
    if kind == "td0":
        policy_kwargs["optimizer_class"] = torch.optim.SGD
    common["policy_kwargs"] = policy_kwargs
    if kind == "ppo":
        model = PPO("MlpPolicy", n_steps=10, batch_size=10, n_epochs=4, gae_lambda=0.95, **common)
    elif kind == "a2c":
        model = A2C("MlpPolicy", n_steps=5, gae_lambda=0.95, **common)
    else:
        model = A2C("MlpPolicy", n_steps=1, gae_lambda=0.0, vf_coef=0.5, ent_coef=0.0, **common)
    _zero_heads(model.policy.value_net)
    return model


def _decayed(rate: float, n_steps: int) -> Callable[[float], float]:
    """The rate from Stable-Baselines3's remaining progress, independent of the budget."""
    return lambda progress_remaining: rate / (1.0 + (1.0 - progress_remaining) * n_steps / 1000.0)


def _zero_heads(*heads: torch.nn.Linear) -> None:
    """Start the critic at value 0 everywhere, as every other method does."""
    for head in heads:
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)


def _squared_loss_dqn() -> Any:
    """DQN with the squared TD error; its Huber loss would cut errors above 1 and move the fixed point."""
    from stable_baselines3 import DQN

    class SquaredLossDQN(DQN):
        def train(self, gradient_steps: int, batch_size: int = 100) -> None:
            assert self.replay_buffer is not None
            self.policy.set_training_mode(True)
            self._update_learning_rate(self.policy.optimizer)
            losses = []
            for _ in range(gradient_steps):
                batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
                with torch.no_grad():
                    v_t = self.q_net_target(batch.next_observations).max(dim=1, keepdim=True).values
                    target = batch.rewards + (1.0 - batch.dones) * self.gamma * v_t
                v_tm1 = self.q_net(batch.observations).gather(1, batch.actions.long())
                loss = torch.nn.functional.mse_loss(v_tm1, target)
                self.policy.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                self.policy.optimizer.step()
                losses.append(loss.item())
            self._n_updates += gradient_steps
            self.logger.record("train/loss", float(np.mean(losses)))

    return SquaredLossDQN
