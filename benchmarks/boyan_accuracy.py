"""Frozen agent against certainty equivalence on unseen Boyan chains, on the same transitions.

    python benchmarks/boyan_accuracy.py                      2000 ten-state chains, random unit features
    python benchmarks/boyan_accuracy.py --order              30-state chains, features that know the chain's order
    python benchmarks/boyan_accuracy.py --figure FILE        and draw the errors

Per chain: one trajectory from the chain's own start, gamma 0.9, the theorem's weights (d 32, sharpness 8; 60 layers,
150 from 1000 steps on). Error = squared error weighted by the stationary distribution. Prints the geometric mean over
chains of (agent's error / certainty equivalence's), with its standard error, for both fill-ins of states never left.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gymnasium as gym
import joblib
import numpy as np
from rich.console import Console
from rich.table import Table

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.algorithms import certainty_equivalence
from icrl_agent.envs import stationary_distribution
from icrl_agent.features import RandomFourier
from icrl_agent.figures import plot_error_curves
from icrl_agent.metrics import geometric_mean, msve

GAMMA = 0.9
FIRST_TASK_SEED = 1000
LENGTHS = (16, 32, 64, 128, 256, 1000)
ORDER_LENGTHS = (40, 80, 200)


def chain_errors(task_seed: int, n_states: int, lengths: tuple[int, ...], order: bool) -> np.ndarray:
    """Errors on one chain, shape (len(lengths), 3): agent, zero fill, mean fill."""
    import torch

    from icrl_agent.agent import ICRLAgent

    torch.set_num_threads(1)
    env = gym.make("BoyanChain-v0", n_states=n_states, task_seed=task_seed)
    mdp = env.unwrapped.mdp
    mu = stationary_distribution(mdp.policy_mrp())
    feature_map = RandomFourier(shift=0.0, scale=1.0, dim=32, lengthscale=1.0) if order else None
    # The feature directions differ from chain to chain, so that no single draw of them is favoured.
    agent = ICRLAgent.from_theory(feature_dim=32, sharpness=8.0, feature_seed=task_seed)
    result = agent.evaluate(env, n_steps=lengths[-1], gamma=GAMMA, seed=task_seed, feature_map=feature_map)
    errors = np.empty((len(lengths), 3))
    for row, n_steps in enumerate(lengths):
        context = result.transitions.first(n_steps)
        depth = 150 if n_steps >= 1000 else 60
        values = agent.evaluate_transitions(context, GAMMA, result.states, depth, feature_map).values
        columns = context.columns()
        history: dict[str, Any] = {"continues": columns.continues, "source_mask": columns.source_mask}
        rivals = [
            certainty_equivalence(columns.observations, columns.rewards, GAMMA, n_states, never_left=fill, **history)
            for fill in ("zero", "mean")
        ]
        errors[row] = [msve(v, result.true_values, mu) for v in (values, *rivals)]
    return errors


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-chains", type=int, default=2000)
    parser.add_argument("--n-states", type=int)
    parser.add_argument("--order", action="store_true", help="Fourier features of the state's index, 30 states")
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    n_states = arguments.n_states or (30 if arguments.order else 10)
    lengths = ORDER_LENGTHS if arguments.order else LENGTHS
    seeds = range(FIRST_TASK_SEED, FIRST_TASK_SEED + arguments.n_chains)
    run = joblib.Parallel(n_jobs=arguments.n_jobs, batch_size=25)
    errors = np.stack(run(joblib.delayed(chain_errors)(s, n_states, lengths, arguments.order) for s in seeds))
    table = Table(title=f"{len(seeds)} unseen {n_states}-state chains, error ratio (geometric mean ± standard error)")
    for heading in ("steps", "over zero fill", "over mean fill", "mean squared error"):
        table.add_column(heading, justify="right")
    for row, n_steps in enumerate(lengths):
        ratios = [geometric_mean(errors[:, row, 0] / errors[:, row, rival]) for rival in (1, 2)]
        table.add_row(
            str(n_steps), *(f"{mean:.3f} ± {se:.3f}" for mean, se in ratios), f"{errors[:, row, 0].mean():.4g}"
        )
    Console().print(table)
    if arguments.figure:
        geometric = np.exp(np.log(errors).mean(axis=0))
        names = ("frozen transformer", "certainty equivalence, zero fill", "certainty equivalence, mean fill")
        curves = {name: (lengths, geometric[:, column]) for column, name in enumerate(names)}
        figure = plot_error_curves(curves, "squared error, geometric mean")
        figure.axes[0].set_title(f"{len(seeds)} unseen {n_states}-state Boyan chains, gamma {GAMMA}", fontsize=10)
        figure.savefig(arguments.figure)


if __name__ == "__main__":
    main()
