"""What the pretraining objective and the optimism make of the sharpness, for the theorem's weights on pairs.

    python benchmarks/control_objective.py

The TD loss with the recorded next action and the squared error from the true values at the same queries, mean over 320
held-out tasks of the family "pairs" (8 to 12 states, 3 to 5 actions, gamma 0.9, 1024 transitions, 60 layers); and the
mass that 2000 visits spread over other pairs give to one that was never tried, with the bonus of Optimism(1.0), mean
over random directions in 64 dimensions.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from icrl_agent.control import Optimism
from icrl_agent.model import SoftmaxICTD
from icrl_agent.train.presets import preset
from icrl_agent.train.sampler import sample_batch
from icrl_agent.train.state import batch_losses

SHARPNESSES = (2.0, 3.0, 3.4, 4.0, 6.0, 8.0, 12.0, 20.0)
N_BATCHES, N_VISITS, N_PAIRS, N_DRAWS, DEPTH = 10, 2000, 39, 2000, 60


def untried_bonus(sharpness: float, dim: int) -> tuple[float, float]:
    """Mean mass of a pair that was never tried, and mean bonus."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N_DRAWS, N_PAIRS + 1, dim))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    products = np.einsum("kd,kpd->kp", x[:, 0], x[:, 1:])
    mass = np.exp(sharpness * (products - 1.0)).mean(axis=1) * N_VISITS
    return float(mass.mean()), float(Optimism(1.0).bonus(mass).mean())


def main() -> None:
    """Compute and print."""
    torch.set_num_threads(1)
    config = dataclasses.replace(
        preset("control"), context_length=(1024, 1024), gamma=(0.9, 0.9), n_layers=(DEPTH, DEPTH), tasks_per_step=32,
        windows_per_task=16,
    )  # fmt: skip
    batches = [sample_batch(config, "test", 0, step) for step in range(N_BATCHES)]
    table = Table("sharpness", "TD loss", "squared error", "mass of an untried pair", "its bonus")
    for sharpness in SHARPNESSES:
        model = SoftmaxICTD.from_theory(config.feature_dim, DEPTH, sharpness=sharpness)
        with torch.no_grad():
            losses = [batch_losses(model, batch) for batch in batches]
        means = [float(np.mean([float(loss[name]) for loss in losses])) for name in ("td", "true_value")]
        mass, bonus = untried_bonus(sharpness, config.feature_dim)
        table.add_row(f"{sharpness:g}", *(f"{mean:.4f}" for mean in means), f"{mass:.1f}", f"{bonus:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
