"""Tune the learning rates of the Stable-Baselines3 baselines on tasks that no comparison uses.

    python benchmarks/sb3_sweep.py

20 random Boyan chains (task seeds 500 to 519), gamma 0.9, records at 30, 100, 300 and 1000 steps. Score of a rate:
geometric mean over tasks and records of the squared error over that of mean-filled certainty equivalence on the same
transitions. The best rate per algorithm, network and features goes into ``icrl_agent.eval.baselines``.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import joblib
import numpy as np
from rich.console import Console
from rich.table import Table

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.algorithms import certainty_equivalence
from icrl_agent.collect import collect
from icrl_agent.envs import state_values, stationary_distribution
from icrl_agent.eval.baselines import SB3Baseline
from icrl_agent.features import RandomUnit
from icrl_agent.metrics import geometric_mean, msve

GAMMA = 0.9
FIRST_TASK_SEED = 500
RECORD_AT = (30, 100, 300, 1000)
GRID = {
    ("td0", ()): (0.03, 0.1, 0.3, 0.6),
    ("td0", (64,)): (0.01, 0.03, 0.1, 0.3),
    ("dqn", ()): (0.003, 0.01, 0.03, 0.1),
    ("dqn", (64,)): (0.001, 0.003, 0.01, 0.03),
    ("a2c", ()): (0.01, 0.03, 0.1, 0.3),
    ("a2c", (64,)): (0.001, 0.003, 0.01, 0.03),
    ("ppo", ()): (0.01, 0.03, 0.1, 0.3),
    ("ppo", (64,)): (0.001, 0.003, 0.01, 0.03),
}


def ratios(task_seed: int, kind: str, net_arch: tuple[int, ...], own_features: bool, rate: float) -> list[float]:
    """Error over certainty equivalence's at every record."""
    import torch

    torch.set_num_threads(1)
    env = gym.make("BoyanChain-v0", task_seed=task_seed)
    mrp = env.unwrapped.mdp.policy_mrp()
    truth, weights = state_values(mrp, GAMMA), stationary_distribution(mrp)
    transitions = collect(env, None, RECORD_AT[-1], task_seed)
    features = RandomUnit(10, 32, task_seed) if own_features else "one_hot"
    baseline = SB3Baseline(kind, net_arch, features, learning_rate=rate)
    records = baseline.fit_transitions(transitions, env.observation_space, GAMMA, task_seed, record_at=RECORD_AT)
    result = []
    for record in records:
        columns = transitions.first(record.n_steps).columns()
        rival = certainty_equivalence(columns.observations, columns.rewards, GAMMA, 10)
        result.append(msve(record.values, truth, weights) / msve(rival, truth, weights))
    return result


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-tasks", type=int, default=20)
    parser.add_argument("--n-jobs", type=int, default=2)
    arguments = parser.parse_args()
    seeds = range(FIRST_TASK_SEED, FIRST_TASK_SEED + arguments.n_tasks)
    cases = [(kind, net, own, rate) for (kind, net), rates in GRID.items() for own in (False, True) for rate in rates]
    run = joblib.Parallel(n_jobs=arguments.n_jobs, batch_size=5)
    found = run(joblib.delayed(ratios)(seed, *case) for case in cases for seed in seeds)
    scores = np.array(found).reshape(len(cases), -1)
    table = Table(title=f"error over certainty equivalence's, geometric mean over {len(seeds)} tasks and {RECORD_AT}")
    for heading in ("algorithm", "network", "features", "rate: score, best first"):
        table.add_column(heading)
    for start in range(0, len(cases), 4):
        kind, net, own, _ = cases[start]
        scored = sorted((geometric_mean(scores[at])[0], cases[at][3]) for at in range(start, start + 4))
        shown = ", ".join(f"{rate:g}: {score:.2f}" for score, rate in scored)
        table.add_row(kind, str(list(net)) if net else "linear", "own" if own else "one-hot", shown)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
