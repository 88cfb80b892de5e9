"""Seconds of ``agent.evaluate`` against those of Stable-Baselines3's A2C until its error is as small.

    python benchmarks/against_a2c.py

BoyanChain-v0, 1000 steps for the agent; A2C (linear critic, one-hot, tuned rate) learns on as many steps of the same
chain as it needs, 20,000 at most: where it never gets there its whole training counts, and the ratio is a lower bound.
Evaluation includes the environment's steps, training does not. Median over 3 chains.
"""

from __future__ import annotations

import time

from ratios import Ratio, arguments, report

import gymnasium as gym  # isort: skip - after the number of threads is set
import numpy as np
import torch

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent import ICRLAgent
from icrl_agent.envs import state_values, stationary_distribution
from icrl_agent.eval.baselines import SB3Baseline
from icrl_agent.metrics import normalized_msve

GAMMA = 0.9


def main() -> None:
    """Run and print."""
    options = arguments(__doc__, chains=3, steps=20_000)
    torch.set_num_threads(1)
    agent = ICRLAgent.from_theory(n_layers=150)
    agent.evaluate(gym.make("BoyanChain-v0", task_seed=0), n_steps=50, seed=0)
    rows, details = [], []
    for chain in range(2000, 2000 + options.chains):
        env = gym.make("BoyanChain-v0", task_seed=chain)
        start = time.perf_counter()
        result = agent.evaluate(env, n_steps=1000, gamma=GAMMA, seed=0)
        evaluated = time.perf_counter() - start
        mrp = env.unwrapped.mdp.policy_mrp()
        truth, weights = state_values(mrp, GAMMA), stationary_distribution(mrp)
        records = SB3Baseline("a2c").fit(env, options.steps, GAMMA, 0, record_at=range(500, options.steps + 1, 500))
        errors = [normalized_msve(record.values, truth, weights) for record in records]
        reached = next((k for k, error in enumerate(errors) if error <= result.normalized_msve), None)
        trained = records[-1 if reached is None else reached].seconds
        rows.append(trained / evaluated)
        steps = f"more than {options.steps}" if reached is None else str(records[reached].n_steps)
        details.append(
            f"error {result.normalized_msve:.2g}: {1e3 * evaluated:.0f} ms against {trained:.1f} s ({steps} steps)"
        )
    report(
        [Ratio("A2C to the same error over evaluate, BoyanChain-v0, 1,000 steps", float(np.median(rows)), 100, False,
               "; ".join(details))],
        options.json,
    )  # fmt: skip


if __name__ == "__main__":
    main()
