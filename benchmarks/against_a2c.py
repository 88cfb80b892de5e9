"""Seconds of ``agent.evaluate`` against those of Stable-Baselines3's A2C until its error is as small.

    python benchmarks/against_a2c.py

BoyanChain-v0, 1000 steps for the agent; A2C (linear critic, one-hot, tuned rate) learns on as many steps of the same
chain as it needs, 4000 at most: where it never gets there its whole training counts, and the ratio is a lower bound.
Recording A2C's values is not counted, nor are its environment's steps; for the agent once with the environment's
steps and once without. Medians over 5 chains.
"""

from __future__ import annotations

import time

from ratios import Ratio, arguments, report, seconds

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
    options = arguments(__doc__, chains=5, steps=4000)
    torch.set_num_threads(1)
    agent = ICRLAgent.from_theory(n_layers=150)
    agent.evaluate(gym.make("BoyanChain-v0", task_seed=0), n_steps=50, seed=0)
    rows, details = [], []
    for chain in range(2000, 2000 + options.chains):
        env = gym.make("BoyanChain-v0", task_seed=chain)
        result = agent.evaluate(env, n_steps=1000, gamma=GAMMA, seed=0)
        with_steps = seconds(lambda env=env: agent.evaluate(env, n_steps=1000, gamma=GAMMA, seed=0), rounds=5)
        alone = seconds(lambda result=result: agent.evaluate_transitions(result.transitions, GAMMA), rounds=5)
        mrp = env.unwrapped.mdp.policy_mrp()
        truth, weights = state_values(mrp, GAMMA), stationary_distribution(mrp)
        record_at = range(100, options.steps + 1, 100)
        start = time.process_time()
        records = SB3Baseline("a2c").fit(env, options.steps, GAMMA, 0, record_at=record_at)
        # Records carry wall seconds; a thread that shares its core has had this part of them.
        share = min(1.0, (time.process_time() - start) / records[-1].seconds)
        errors = [normalized_msve(record.values, truth, weights) for record in records]
        reached = next((k for k, error in enumerate(errors) if error <= result.normalized_msve), None)
        trained = share * records[-1 if reached is None else reached].seconds
        rows.append((trained / with_steps, trained / alone))
        steps = f"more than {options.steps}" if reached is None else str(records[reached].n_steps)
        details.append(
            f"error {result.normalized_msve:.2g}: {1e3 * with_steps:.0f} and {1e3 * alone:.1f} ms"
            f" against {trained:.2f} s ({steps} steps)"
        )
    median = np.median(rows, axis=0)
    name = "A2C to the same error over evaluate, BoyanChain-v0, 1,000 steps"
    report(
        [
            Ratio(f"{name}, with the environment", float(median[0]), 100, False, "; ".join(details)),
            Ratio(f"{name}, without", float(median[1]), 100, False, "as above"),
        ],
        options.json,
    )


if __name__ == "__main__":
    main()
