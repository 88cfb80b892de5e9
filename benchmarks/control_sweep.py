"""Tune the rivals of in-context control on tasks that no comparison reports.

    python benchmarks/control_sweep.py

RandomMDP-v0 (10 states, 4 actions, branching 3), gamma 0.9, task seeds 20000 and on. Score: normalised return of the
greedy policy (0 = uniformly random, 1 = optimal), mean over tasks and over 500 and 2000 steps. The best settings go
into ``icrl_agent.eval.control_rivals``; the bonus scale of the controller itself is tuned here too.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import joblib
import numpy as np
from rich.console import Console
from rich.table import Table

from icrl_agent import ICRLAgent
from icrl_agent.control import Epsilon, Optimism
from icrl_agent.envs import normalised_return
from icrl_agent.eval.control_rivals import Tabular, dqn, tabular_control, value_iteration_control

GAMMA, RECORD_AT, FIRST_TASK_SEED = 0.9, (500, 2000), 20_000
EPSILONS = [Epsilon(0.1), Epsilon(0.2), Epsilon(0.5), Epsilon(1.0, 0.1, 1000)]
BONUSES = [Optimism(scale) for scale in (0.3, 1.0, 3.0)]
STEP_SIZES = [(0.03, None), (0.1, None), (0.3, None), (0.6, None), (1.0, 1.0), (1.0, 5.0), (1.0, 20.0), (1.0, 60.0)]
DQN = {
    net_arch: [{"rate": rate, "epsilon": e, "fraction": f} for rate in rates for e, f in ((0.2, 0.1), (0.1, 0.5))]
    for net_arch, rates in (((), (0.01, 0.03, 0.1)), ((64,), (0.0003, 0.001, 0.003, 0.01)))
}


def cases() -> dict[str, list[Any]]:
    """Settings to try by method."""
    return {
        "controller": EPSILONS + BONUSES,
        "value iteration": EPSILONS + BONUSES,
        **{
            f"{method}{suffix}": [Tabular(*size, exploration) for size in STEP_SIZES for exploration in explorations]
            for method in ("Q-learning", "SARSA")
            for suffix, explorations in (("", EPSILONS), (", optimistic", BONUSES))
        },
        "DQN, linear": DQN[()],
        "DQN, [64]": DQN[(64,)],
    }


def score(method: str, settings: Any, task_seed: int) -> float:
    """Normalised return of one run, mean over the records."""
    import torch

    torch.set_num_threads(1)
    env = gym.make("RandomMDP-v0", task_seed=task_seed)
    if method == "controller":
        agent = ICRLAgent.from_theory(feature_dim=64, feature_seed=task_seed)
        result = agent.control(env, RECORD_AT[-1], GAMMA, exploration=settings, seed=task_seed, record_at=RECORD_AT)
        return float(np.mean([record.normalised_return for record in result.records]))
    if method == "value iteration":
        tables = value_iteration_control(env, RECORD_AT, GAMMA, settings, task_seed)
    elif method.startswith("DQN"):
        net_arch = () if method == "DQN, linear" else (64,)
        tables = dqn(env, RECORD_AT, GAMMA, task_seed, net_arch, settings)
    else:
        tables = tabular_control(env, RECORD_AT, GAMMA, settings, task_seed, on_policy=method.startswith("SARSA"))
    mdp = env.unwrapped.mdp
    return float(np.mean([normalised_return(mdp, np.eye(4)[q.argmax(axis=1)], GAMMA) for q in tables]))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-tasks", type=int, default=20)
    parser.add_argument("--n-dqn-tasks", type=int, default=3)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--methods", nargs="*", default=list(cases()))
    arguments = parser.parse_args()
    table = Table(title=f"normalised return, mean over {RECORD_AT} steps; best first")
    table.add_column("method")
    table.add_column("settings: score ± standard error")
    for method in arguments.methods:
        n_tasks = arguments.n_dqn_tasks if method.startswith("DQN") else arguments.n_tasks
        seeds = range(FIRST_TASK_SEED, FIRST_TASK_SEED + n_tasks)
        tried = cases()[method]
        found = joblib.Parallel(n_jobs=arguments.n_jobs)(
            joblib.delayed(score)(method, settings, seed) for settings in tried for seed in seeds
        )
        scores = np.array(found).reshape(len(tried), n_tasks)
        means, errors = scores.mean(axis=1), scores.std(axis=1, ddof=1) / np.sqrt(n_tasks)
        best = np.argsort(-means)[:4]
        table.add_row(method, "\n".join(f"{tried[at]}: {means[at]:.3f} ± {errors[at]:.3f}" for at in best))
        Console(width=150).print(method, tried[best[0]], f"{means[best[0]]:.3f}")
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
