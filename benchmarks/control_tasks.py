"""In-context control on Gymnasium's own tasks, 5 seeds each.

    python benchmarks/control_tasks.py FrozenLake-v1
    python benchmarks/control_tasks.py CliffWalking-v1
    python benchmarks/control_tasks.py CartPole-v1

FrozenLake-v1 (slippery), 10,000 steps, gamma 0.95: value of the start under the greedy policy over the optimal one.
CliffWalking-v1, 10,000 steps, gamma 0.95: (J - J_safe) / (J* - J_safe), where J_safe is the start's value on the
always-safe path, up to the top row, along it and down, 17 steps, and J* that along the cliff's edge, 13 steps:
0 = safe, 1 = optimal; a policy that never arrives is below 0. CartPole-v1, 3000 steps, gamma 0.97: mean return of the
final greedy policy over 20 episodes, undiscounted, and the random policy's. The agent: theorem's weights, default
features.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import joblib
import numpy as np
from rich.console import Console
from stable_baselines3.common.evaluation import evaluate_policy

from icrl_agent import ICRLAgent
from icrl_agent.control import Epsilon, Exploration, Optimism
from icrl_agent.envs import TabularMDP, optimal_values

N_EPISODES = 20


@dataclass(frozen=True)
class Setup:
    """How the agent acts in one task."""

    n_steps: int
    gamma: float
    feature_dim: int
    n_layers: int
    sharpness: float
    exploration: Exploration
    refresh_every: int


SETUPS = {
    "FrozenLake-v1": Setup(10_000, 0.95, 256, 100, 16.0, Optimism(0.5), 20),
    "CliffWalking-v1": Setup(10_000, 0.95, 256, 100, 20.0, Optimism(20.0), 10),
    "CartPole-v1": Setup(3_000, 0.97, 64, 60, 30.0, Epsilon(0.1), 300),
}


def scores(env_id: str, seed: int) -> list[float]:
    """Score at the records; for CartPole final and random return."""
    import torch

    torch.set_num_threads(1)
    setup, env = SETUPS[env_id], gym.make(env_id)
    agent = ICRLAgent.from_theory(setup.feature_dim, setup.n_layers, setup.sharpness, feature_seed=seed)
    result = agent.control(
        env,
        setup.n_steps,
        setup.gamma,
        exploration=setup.exploration,
        refresh_every=setup.refresh_every,
        seed=seed,
        record_at=[setup.n_steps * part // 10 for part in (1, 3, 5, 10)],
    )
    if env_id == "CartPole-v1":
        return [_cartpole(result.controller, seed), _cartpole(None, seed)]
    mdp = TabularMDP.from_gymnasium(env)
    optimal = float(mdp.initial @ optimal_values(mdp, setup.gamma).max(axis=1))
    base = -(1 - setup.gamma**17) / (1 - setup.gamma) if env_id == "CliffWalking-v1" else 0.0
    return [(record.expected_return - base) / (optimal - base) for record in result.records]


def _cartpole(model: Any, seed: int) -> float:
    env = gym.make("CartPole-v1")
    env.reset(seed=10_000 + seed)
    if model is None:
        model = _Random(env, seed)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=N_EPISODES, deterministic=True, warn=False)
    return float(mean)


class _Random:
    """Uniformly random actions behind ``predict``."""

    def __init__(self, env: gym.Env[Any, Any], seed: int) -> None:
        self.n, self.rng = int(env.action_space.n), np.random.default_rng(seed)

    def predict(self, observation: Any, state: Any = None, **_: Any) -> tuple[Any, Any]:
        return self.rng.integers(self.n, size=len(observation)), state


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env", choices=list(SETUPS))
    parser.add_argument("--n-seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--n-jobs", type=int, default=2)
    arguments = parser.parse_args()
    setup, console = SETUPS[arguments.env], Console(width=140)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.n_seeds)
    found = np.array(joblib.Parallel(n_jobs=arguments.n_jobs)(joblib.delayed(scores)(arguments.env, k) for k in seeds))
    console.print(f"{arguments.env}: {setup}")
    if arguments.env == "CartPole-v1":
        console.print(f"final policy, by seed: {found[:, 0]}; random policy: {found[:, 1]}")
        final, random = found.mean(axis=0)
        console.print(f"means {final:.1f} and {random:.1f}: ratio {final / random:.1f}")
    else:
        for at, part in enumerate((1, 3, 5, 10)):
            console.print(
                f"{setup.n_steps * part // 10} steps: {found[:, at].round(3)}, mean {found[:, at].mean():.3f}"
            )


if __name__ == "__main__":
    main()
