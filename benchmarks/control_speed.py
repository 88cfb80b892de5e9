"""Seconds of in-context control, steps of the environment included.

    python benchmarks/control_speed.py

RandomMDP-v0 (10 states, 4 actions), 1000 steps, gamma 0.9, the defaults (greedy target, optimism, 60 layers, forward
passes every 20 steps); median of 5 tasks, one thread.
"""

from __future__ import annotations

from ratios import Ratio, arguments, report, seconds

import gymnasium as gym  # isort: skip - after the number of threads is set
import numpy as np

from icrl_agent import ICRLAgent

FIRST_TASK = 40_000


def main() -> None:
    """Run and print."""
    options = arguments(__doc__, tasks=5, steps=1000)
    agent = ICRLAgent.from_theory(feature_dim=64)
    times = []
    for task_seed in range(FIRST_TASK, FIRST_TASK + options.tasks):
        env = gym.make("RandomMDP-v0", task_seed=task_seed)
        times.append(seconds(lambda env=env: agent.control(env, options.steps, gamma=0.9, seed=0)))
    detail = f"10 states, 4 actions, the whole loop; the slowest task {max(times):.2f} s"
    ratios = [Ratio(f"{options.steps} steps of control, seconds", float(np.median(times)), 2.0, True, detail, True)]
    report(ratios, options.json)


if __name__ == "__main__":
    main()
