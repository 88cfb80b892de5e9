"""Draws the figures of docs/evaluate_your_policy.md.

    python benchmarks/value_figures.py --folder docs/figures

The theorem's weights, 512 features, sharpness "auto", 150 layers, gamma 0.95, 3000 steps (MountainCar) or 1000
(CartPole).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium as gym
import torch
from continuous_cases import GAMMA, pump

from icrl_agent import ICRLAgent
from icrl_agent.value_figures import grid_queries, plot_episode, plot_value_map


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("docs/figures"))
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    agent = ICRLAgent.from_theory(feature_dim=512, n_layers=150, sharpness="auto")
    car = agent.evaluate(gym.make("MountainCar-v0"), pump, n_steps=3000, gamma=GAMMA, seed=0)
    grid = grid_queries(car.transitions.observations, size=60)
    surface = agent.evaluate_transitions(car.transitions, GAMMA, grid)
    plot_value_map(surface, names=("position", "velocity")).savefig(folder / "mountain_car_map.png")
    pole = agent.evaluate(gym.make("CartPole-v1"), n_steps=1000, gamma=GAMMA, seed=0)
    plot_episode(pole).savefig(folder / "cartpole_episode.png")


if __name__ == "__main__":
    main()
