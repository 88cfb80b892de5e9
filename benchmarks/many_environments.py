"""A value for each of 1024 environments at every step, against as many single streams.

    python benchmarks/many_environments.py

BoyanChain-v0 (10 states), 1000 steps, 60 layers, windows of 64 columns and no window, one thread. The seconds are the
streams' own, without the environments' steps. Single streams run 1 of the environments for the same steps.
"""

from __future__ import annotations

from ratios import Ratio, arguments, report, seconds

import gymnasium as gym  # isort: skip - after the number of threads is set
import numpy as np

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent import ICRLAgent
from icrl_agent.collect import collect
from icrl_agent.features import RandomUnit


def main() -> None:
    """Run and print."""
    options = arguments(__doc__, num_envs=1024, steps=1000)
    E, n = options.num_envs, options.steps
    record = collect(gym.make_vec("BoyanChain-v0", num_envs=E, task_seed=1), None, n * E, 0)
    here, there, rewards = (
        part.reshape(n, E) for part in (record.observations, record.next_observations, record.rewards)
    )
    agent, feature_map, never = ICRLAgent.from_theory(n_layers=60), RandomUnit(10, 32), np.zeros(E, bool)
    ratios = []
    for length in (64, None):
        vector = agent.vector_stream(E, feature_map, context_length=length)
        single = agent.stream(feature_map, context_length=length)

        def run_vector(vector=vector) -> None:
            vector.reset(here[0])
            for step in range(n):
                vector.append(rewards[step], there[step], never, never)
                vector.value(there[step])

        def run_single(single=single) -> None:
            single.reset(here[0, 0])
            for step in range(n):
                single.append(rewards[step, 0], there[step, 0], False, False)
                single.value(there[step, 0])

        batch, one = seconds(run_vector), seconds(run_single)
        window = "no window" if length is None else f"window {length}"
        ratios += [
            Ratio(f"{E} environments x {n} steps, {window}, seconds", batch, 10.0, True,
                  "stream and values alone", absolute=True),
            Ratio(f"{E} single streams over one vector stream, {window}", E * one / batch, 5.0, False,
                  f"{E * one:.1f} and {batch:.1f} s"),
        ]  # fmt: skip
    report(ratios, options.json)


if __name__ == "__main__":
    main()
