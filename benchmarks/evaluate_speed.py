"""Seconds and peak memory of ``agent.evaluate`` beyond the environment's own stepping, one core.

    python benchmarks/evaluate_speed.py

Each length runs in a fresh process (peak memory counts), warmed by one short evaluation, median of 5. BoyanChain-v0
has ten states; CartPole-v1, where every state is new, is the hardest context for the merged engine.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

ENVIRONMENTS = ("BoyanChain-v0", "CartPole-v1")


def measure(env_id: str, n_steps: int) -> None:
    """Print one row; runs in a process of its own."""
    import gymnasium as gym
    import numpy as np
    import torch

    from icrl_agent import ICRLAgent
    from icrl_agent.collect import collect

    torch.set_num_threads(1)
    agent = ICRLAgent.from_theory(n_layers=60)
    agent.evaluate(gym.make(env_id), n_steps=50, seed=0)
    env = gym.make(env_id)
    rows = []
    for _ in range(5):
        start = time.perf_counter()
        result = agent.evaluate(env, n_steps=n_steps, seed=0)
        evaluated = time.perf_counter()
        collect(env, None, n_steps, 0)
        rows.append((evaluated - start, time.perf_counter() - evaluated, result.seconds))
    total, stepping, estimate = np.median(rows, axis=0)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{env_id:14} n = {n_steps:5}: evaluate {1000 * total:7.1f} ms, of it stepping {1000 * stepping:6.1f} ms,"
        f" estimate {1000 * estimate:7.1f} ms, peak memory {megabytes:.0f} MB"
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=2, metavar=("ENV", "N_STEPS"))
    one = parser.parse_args().one
    if one:
        measure(one[0], int(one[1]))
        return
    for env_id in ENVIRONMENTS:
        for n_steps in (1000, 3000):
            subprocess.run([sys.executable, __file__, "--one", env_id, str(n_steps)], check=True)


if __name__ == "__main__":
    main()
