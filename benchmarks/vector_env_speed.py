"""Steps per second of the native vector environment against Gymnasium's SyncVectorEnv over the same environment.

    python benchmarks/vector_env_speed.py

Both run in turn in one process, 1024 copies of BoyanChain-v0; the median ratio of the pairs decides. What bounds the
native one: drawing 1024 random numbers and comparing them with 1024 x S cumulative probabilities.
"""

from __future__ import annotations

import argparse
import time

import gymnasium as gym
import numpy as np

import icrl_agent  # noqa: F401 - registers the environments


def steps_per_second(envs: gym.vector.VectorEnv, seconds: float) -> float:
    """Real steps of all copies per second of wall time."""
    actions = np.zeros(envs.num_envs, np.int64)
    envs.step(actions)
    n_steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        envs.step(actions)
        n_steps += envs.num_envs
    return n_steps / (time.perf_counter() - start)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    native = gym.make_vec("BoyanChain-v0", num_envs=arguments.num_envs)
    sync = gym.make_vec("BoyanChain-v0", num_envs=arguments.num_envs, vectorization_mode="sync")
    rates = []
    for envs in (native, sync):
        envs.reset(seed=0)
    for _ in range(arguments.rounds):
        rates.append([steps_per_second(envs, seconds) for envs, seconds in ((native, 0.3), (sync, 1.0))])
    native_rate, sync_rate = np.median(rates, axis=0)
    ratio = np.median([a / b for a, b in rates])
    print(f"native {native_rate:,.0f} steps/s, SyncVectorEnv {sync_rate:,.0f} steps/s, ratio {ratio:.0f}")


if __name__ == "__main__":
    main()
