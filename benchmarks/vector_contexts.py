"""Seconds and memory of one evaluation on vector observations, the sharpness chosen in the context.

    python benchmarks/vector_contexts.py

CartPole-v1, uniformly random policy, 3000 transitions, 512 random Fourier features, 150 layers of the theorem's
weights, gamma 0.95, one thread. Steps of the environment are included; memory is the peak of the whole process.
"""

from __future__ import annotations

import resource

from ratios import Ratio, arguments, report, seconds

import gymnasium as gym  # isort: skip - after the number of threads is set

from icrl_agent import ICRLAgent


def main() -> None:
    """Run and print."""
    options = arguments(__doc__, steps=3000)
    env = gym.make("CartPole-v1")
    ratios = []
    for sharpness in (8.0, "auto"):
        agent = ICRLAgent.from_theory(feature_dim=512, n_layers=150, sharpness=sharpness)
        used = seconds(lambda agent=agent: agent.evaluate(env, n_steps=options.steps, gamma=0.95, seed=0), 3)
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        name = f"{options.steps} transitions of CartPole-v1, sharpness {sharpness}"
        ratios += [
            Ratio(f"{name}, seconds", used, 3.0, True, "512 features, 150 layers, shortest of 3", True),
            Ratio(f"{name}, MB", megabytes, 500.0, True, "peak of the whole process"),
        ]
    report(ratios, options.json)


if __name__ == "__main__":
    main()
