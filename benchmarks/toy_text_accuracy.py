"""Frozen agent on Gymnasium's toy-text tasks, the same call as everywhere, against certainty equivalence.

    python benchmarks/toy_text_accuracy.py

Uniformly random policy, 3000 steps of context, gamma 0.95, 20 seeds. Agent: theorem's weights, random unit features
d 64 (other directions per seed), sharpness 12, 150 layers. Error = squared error weighted by the policy's own state
distribution over the weighted mean square of v; the ratio is to mean-filled certainty equivalence on the same
transitions, geometric mean over seeds with its standard error.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.table import Table

from icrl_agent import ICRLAgent
from icrl_agent.algorithms import certainty_equivalence
from icrl_agent.envs import TabularMDP, stationary_distribution
from icrl_agent.metrics import geometric_mean, normalized_msve

GAMMA = 0.95
ENVIRONMENTS = ("FrozenLake-v1", "CliffWalking-v1", "Taxi-v4")


def errors_of(env_id: str, seed: int, weights: np.ndarray) -> tuple[float, float, float]:
    """Normalised errors of the agent and of mean-filled certainty equivalence, and the estimate's seconds."""
    env = gym.make(env_id)
    agent = ICRLAgent.from_theory(feature_dim=64, n_layers=150, sharpness=12.0, feature_seed=seed)
    result = agent.evaluate(env, n_steps=3000, gamma=GAMMA, seed=seed)
    columns = result.transitions.columns()
    rival = certainty_equivalence(
        columns.observations,
        columns.rewards,
        GAMMA,
        len(result.states),
        continues=columns.continues,
        source_mask=columns.source_mask,
    )
    return result.normalized_msve, normalized_msve(rival, result.true_values, weights), result.seconds


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-seeds", type=int, default=20)
    n_seeds = parser.parse_args().n_seeds
    table = Table(title=f"toy text, random policy, 3000 steps, gamma {GAMMA}, {n_seeds} seeds")
    table.add_column("environment")
    for heading in ("ratio to CE", "agent: mean", "median", "CE: mean", "ms"):
        table.add_column(heading, justify="right")
    for env_id in ENVIRONMENTS:
        weights = stationary_distribution(TabularMDP.from_gymnasium(gym.make(env_id)).policy_mrp())
        rows = np.array([errors_of(env_id, seed, weights) for seed in range(n_seeds)])
        mean, stderr = geometric_mean(rows[:, 0] / rows[:, 1])
        table.add_row(
            env_id,
            f"{mean:.4f} ± {stderr:.4f}",
            f"{rows[:, 0].mean():.4f}",
            f"{np.median(rows[:, 0]):.4f}",
            f"{rows[:, 1].mean():.4f}",
            f"{1000 * np.median(rows[:, 2]):.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
