"""The task changes under the agent: its history emptied, kept in a sliding window, or kept for good.

    python benchmarks/control_change.py --figure docs/figures/control_change.png

RandomMDP-v0 (10 states, 4 actions), gamma 0.9. After 1000 steps the environment is reset to another task
(``reset(options={"task_seed": k})``), which nobody tells the agent, unless its history is emptied. Curves: normalised
return in the task that is played, mean over 20 pairs of tasks (seeds 40000 and on) with a 95 % interval. Window:
300 columns, so two context lengths after the change are 600 steps. Theorem's weights, d 64, sharpness 8, Optimism(1).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium as gym
import joblib
import numpy as np
from rich.console import Console

from icrl_agent import ICRLAgent
from icrl_agent.envs import normalised_return
from icrl_agent.figures import plot_bands

GAMMA, CHANGE_AT, N_STEPS, WINDOW, FIRST_TASK_SEED = 0.9, 1000, 2000, 300, 40_000
RECORD_AT = tuple(range(100, N_STEPS + 1, 100))
METHODS = {"history emptied": None, f"window of {WINDOW}": WINDOW, "everything kept": None}


def curve(method: str, number: int) -> list[float]:
    """Normalised return in the present task, at every record."""
    import torch

    torch.set_num_threads(1)
    first = FIRST_TASK_SEED + 2 * number
    env = gym.make("RandomMDP-v0", task_seed=first)
    agent = ICRLAgent.from_theory(feature_dim=64, feature_seed=number)
    controller = agent.controller(env, GAMMA, context_length=METHODS[method], seed=number)
    obs, _ = env.reset(seed=number)
    found = []
    for step in range(1, N_STEPS + 1):
        obs, reward, terminated, truncated, _ = env.step(controller.act(obs))
        controller.observe(reward, obs, terminated, truncated)
        if step in RECORD_AT:
            policy = np.eye(4)[controller.predict(np.arange(10), deterministic=True)[0]]
            found.append(normalised_return(env.unwrapped.mdp, policy, GAMMA))
        if step == CHANGE_AT:
            obs, _ = env.reset(options={"task_seed": first + 1})
            if method == "history emptied":
                controller.clear()
    return found


def main() -> None:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-pairs", type=int, default=20)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    curves, console = {}, Console(width=150)
    console.print(f"{arguments.n_pairs} pairs of tasks, change after step {CHANGE_AT}; mean ± 95 %")
    for method in METHODS:
        run = joblib.Parallel(n_jobs=arguments.n_jobs)
        found = np.array(run(joblib.delayed(curve)(method, number) for number in range(arguments.n_pairs)))
        mean = found.mean(axis=0)
        half = 1.96 * found.std(axis=0, ddof=1) / np.sqrt(len(found))
        curves[method] = [mean, mean - half, mean + half]
        shown = [f"{n}: {mean[RECORD_AT.index(n)]:.3f} ± {half[RECORD_AT.index(n)]:.3f}"
                 for n in (1000, 1100, 1200, 1300, 1600, 2000)]  # fmt: skip
        console.print(f"{method}: {', '.join(shown)}")
    if arguments.figure is not None:
        figure = plot_bands(
            RECORD_AT, {"return in the present task (random 0, optimal 1)": curves}, "environment steps"
        )
        figure.set_size_inches(7.2, 4.0)
        figure.axes[0].axvline(CHANGE_AT, color="#7F7F7F", linestyle=":")
        figure.savefig(arguments.figure)


if __name__ == "__main__":
    main()
