"""Everything a training run is at one step: weights, their average, the optimiser, the record so far."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from icrl_agent.model import SoftmaxICTD, merged_values
from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.objectives import neu_loss, td_loss, true_value_loss
from icrl_agent.train.sampler import PromptBatch

__all__ = ["TrainingState", "batch_losses"]

#: A row of metrics.csv or validation.csv.
Row = dict[str, float | int | str]


@dataclass
class TrainingState:
    """State after ``step`` updates; a run is a function of (config, state)."""

    config: PretrainConfig
    model: SoftmaxICTD
    averaged: SoftmaxICTD
    """Exponential moving average of the weights: the model that is kept."""
    optimizer: torch.optim.Adam
    step: int = 0
    metrics: list[Row] = field(default_factory=list)
    validation: list[Row] = field(default_factory=list)

    @classmethod
    def start(cls, config: PretrainConfig) -> TrainingState:
        """The state before the first update."""
        model = SoftmaxICTD(config.feature_dim, config.n_layers[1], shared=config.shared, seed=config.seed)
        optimizer = torch.optim.Adam(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, foreach=False
        )
        return cls(config, model, copy.deepcopy(model).requires_grad_(False), optimizer)

    def update(self, batch: PromptBatch) -> dict[str, float]:
        """Take one step on a batch; returns the losses before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        losses = batch_losses(self.model, batch)
        loss = losses[self.config.objective]
        if self.config.weigh_by_length:
            low, high = self.config.context_length
            loss = loss * (float(batch.context.counts[0, 0].sum()) / math.sqrt(low * high))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.gradient_clip)
        self.optimizer.step()
        with torch.no_grad():
            for mean, parameter in zip(self.averaged.parameters(), self.model.parameters(), strict=True):
                mean.lerp_(parameter, 1.0 - self.config.ema_decay)
        self.step += 1
        return {name: float(value.detach()) for name, value in losses.items()}

    @property
    def learning_rate(self) -> float:
        """Adam's rate for the next update: a cosine from the configured rate to 0."""
        progress = min(self.step / self.config.n_steps, 1.0)
        return self.config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * progress))

    def to_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {
            "config": self.config.to_dict(),
            "step": self.step,
            "model": self.model.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "metrics": self.metrics,
            "validation": self.validation,
        }

    @classmethod
    def from_dict(cls, config: PretrainConfig, content: Mapping[str, Any]) -> TrainingState:
        """Rebuild from a checkpoint.

        Raises:
            ValueError: if the checkpoint was made with another configuration; the fields that differ are named.
        """
        theirs = PretrainConfig.from_dict(content["config"])
        different = config.differing_fields(theirs)
        if different:
            pairs = (f"{name}: {getattr(theirs, name)!r} there, {getattr(config, name)!r} here" for name in different)
            raise ValueError(f"the checkpoint was made with another configuration ({'; '.join(pairs)})")
        state = cls.start(config)
        state.model.load_state_dict(content["model"])
        state.averaged.load_state_dict(content["averaged"])
        state.optimizer.load_state_dict(content["optimizer"])
        state.step = int(content["step"])
        state.metrics, state.validation = list(content["metrics"]), list(content["validation"])
        return state


def batch_losses(model: SoftmaxICTD, batch: PromptBatch) -> dict[str, torch.Tensor]:
    """Every objective on one batch, keyed by its name."""
    values = batch.query_values(merged_values(model, batch.context, batch.gamma, batch.n_layers)[-1])
    v_tm1, v_t = values[:, :-1], values[:, 1:]
    left = batch.query[:, :-1]
    x_tm1 = batch.features.gather(1, left[..., None].expand(-1, -1, batch.features.shape[2]))
    return {
        "td": td_loss(v_tm1, batch.reward, batch.gamma, v_t),
        "neu": neu_loss(v_tm1, batch.reward, batch.gamma, v_t, x_tm1),
        "true_value": true_value_loss(v_tm1, batch.true_values.gather(1, left)),
    }
