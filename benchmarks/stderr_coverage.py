"""How often does value +- 1.645 stderr hold the true value? On Boyan chains that nobody has seen.

    python benchmarks/stderr_coverage.py --n-chains 1000

Ten-state chains, gamma 0.9, theorem's weights (sharpness 8, 60 layers), states with at least 5 visits. A normal
interval of this width covers 90 %. Prints the share of covered states over all
chains and its standard error over chains.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent import ICRLAgent

WIDTH = 1.645
FEWEST_VISITS = 5
FIRST_TASK = 500_000


def covered(agent: ICRLAgent, task: int, n_steps: int) -> tuple[int, int, float]:
    """States covered, states counted, and mean stderr on one chain."""
    result = agent.evaluate(gym.make("BoyanChain-v0", task_seed=task), n_steps=n_steps, gamma=0.9, seed=task)
    counted = result.visits >= FEWEST_VISITS
    inside = np.abs(result.values - result.true_values) <= WIDTH * result.stderr
    return int(inside[counted].sum()), int(counted.sum()), float(result.stderr[counted].mean())


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-chains", type=int, default=1000)
    parser.add_argument("--n-steps", type=int, nargs="*", default=[300, 1000])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    agent = ICRLAgent.from_theory()
    table = Table(title=f"coverage of value ± {WIDTH} stderr, {arguments.n_chains} chains")
    for heading in ("steps", "covered", "s.e.", "mean stderr"):
        table.add_column(heading, justify="right")
    for n_steps in arguments.n_steps:
        rows = np.array([covered(agent, FIRST_TASK + k, n_steps) for k in range(arguments.n_chains)])
        share = rows[:, 0].sum() / rows[:, 1].sum()
        # Of a ratio of sums over independent chains.
        error = np.sqrt(((rows[:, 0] - share * rows[:, 1]) ** 2).sum()) / rows[:, 1].sum()
        table.add_row(str(n_steps), f"{share:.1%}", f"{error:.1%}", f"{rows[:, 2].mean():.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
