"""In-context control with pretrained weights, beside the theorem's weights on the same unseen tasks.

    python benchmarks/control_weights.py runs/control                             development seeds, 20000 and on
    python benchmarks/control_weights.py runs/control --first-seed 31000          the seeds that decide
    python benchmarks/control_weights.py runs/control --bonus 3                   another exploration for both

RandomMDP-v0 (10 states, 4 actions, branching 3), gamma 0.9, Optimism(1.0), 2000 steps, a refresh every 20; the
theorem's weights have sharpness 8, 60 layers and the pretrained ones' feature_dim. Both agents of a task share its
seed: features, exploration, environment. Score: normalised return of the greedy policy, exact (0 = uniformly random
policy, 1 = optimal), mean over tasks with a 95 % interval (1.96 standard errors); the difference is paired by task.
What decides is the greedy target's mean over the recorded steps.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium as gym
import joblib
import numpy as np
from rich.console import Console
from rich.table import Table

from icrl_agent import ICRLAgent
from icrl_agent.control import Epsilon, Exploration, Optimism
from icrl_agent.control.targets import TargetKind

GAMMA, DEVELOPMENT_SEED = 0.9, 20_000
RECORD_AT = (50, 100, 200, 500, 2000)
TARGETS: tuple[TargetKind, ...] = ("greedy", "recorded")


def returns(weights: Path, target: TargetKind, exploration: Exploration, task_seed: int) -> list[list[float]]:
    """Normalised returns at every record on one task: pretrained weights, then the theorem's."""
    import torch

    torch.set_num_threads(1)
    pretrained = ICRLAgent.load(weights)
    pretrained.feature_seed = task_seed
    theorem = ICRLAgent.from_theory(feature_dim=pretrained.model.feature_dim, feature_seed=task_seed)
    env = gym.make("RandomMDP-v0", task_seed=task_seed)
    n_steps = RECORD_AT[-1]
    results = [
        agent.control(env, n_steps, GAMMA, target, exploration, seed=task_seed, record_at=RECORD_AT)
        for agent in (pretrained, theorem)
    ]
    return [[record.normalised_return for record in result.records] for result in results]


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean and half-width of its 95 % interval."""
    return float(values.mean()), float(1.96 * values.std(ddof=1) / np.sqrt(len(values)))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, help="a run folder, or a weights file")
    parser.add_argument("--first-seed", type=int, default=DEVELOPMENT_SEED)
    parser.add_argument("--n-tasks", type=int, default=50)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--targets", nargs="*", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--bonus", type=float, default=1.0, help="scale of the optimism")
    parser.add_argument("--epsilon", type=float, help="random actions instead of optimism")
    arguments = parser.parse_args()
    exploration = Optimism(arguments.bonus) if arguments.epsilon is None else Epsilon(arguments.epsilon)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.n_tasks)
    title = f"{arguments.weights}: normalised return, {exploration}, task seeds {seeds[0]} to {seeds[-1]}, ± 95 %"
    table = Table("target", "weights", *map(str, RECORD_AT), "mean", title=title)
    for target in arguments.targets:
        run = joblib.Parallel(n_jobs=arguments.n_jobs)
        found = np.array(run(joblib.delayed(returns)(arguments.weights, target, exploration, seed) for seed in seeds))
        found = np.concatenate([found, found.mean(axis=2, keepdims=True)], axis=2)
        for name, rows in (("pretrained", found[:, 0]), ("theorem's", found[:, 1])):
            table.add_row(target, name, *("{:.3f} ± {:.3f}".format(*interval(column)) for column in rows.T))
        difference = found[:, 0] - found[:, 1]
        table.add_row(target, "difference", *("{:+.3f} ± {:.3f}".format(*interval(column)) for column in difference.T))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
