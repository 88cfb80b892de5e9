"""In-context control on unseen random MDPs, beside rivals that gather as many steps of their own.

    python benchmarks/control_accuracy.py --figure docs/figures/control.png --csv docs/control.csv
    python benchmarks/control_accuracy.py --setting large        20 states x 5 actions
    python benchmarks/control_accuracy.py --setting noisy        reward_noise 0.5

50 RandomMDP-v0 tasks (task seeds 30000 to 30049; the sweep used others), gamma 0.9, one run each. Score: normalised
return of the greedy policy, exact (0 = uniformly random policy, 1 = optimal), mean over tasks with a 95 % interval
(1.96 standard errors); regret: sum over steps of max q* - q*(S, A), controllers only. The agent: theorem's weights,
sharpness 8, 60 layers, random unit features rotated by action, d 64 (other directions per task), refreshed every 20
steps. "updates" counts gradient steps, "changed" parameters that differ after the run from before it.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import gymnasium as gym
import joblib
import numpy as np
from rich.console import Console
from rich.table import Table

from icrl_agent import ICRLAgent
from icrl_agent.control import Epsilon, Optimism
from icrl_agent.envs import normalised_return
from icrl_agent.eval.control_rivals import TABULAR, dqn, tabular_control, value_iteration_control
from icrl_agent.figures import plot_bands

GAMMA, FIRST_TASK_SEED = 0.9, 30_000
RECORD_AT = (50, 100, 200, 500, 1000, 2000)
SETTINGS: dict[str, dict[str, Any]] = {
    "standard": {"n_states": 10, "n_actions": 4},
    "large": {"n_states": 20, "n_actions": 5},
    "noisy": {"n_states": 10, "n_actions": 4, "reward_noise": 0.5},
}
CONTROLLERS: dict[str, tuple[str, Any]] = {
    "frozen agent, greedy": ("greedy", Optimism(1.0)),
    "frozen agent, expected": ("expected", Optimism(1.0)),
    "frozen agent, recorded": ("recorded", Optimism(1.0)),
    "frozen agent, greedy, epsilon 0.2": ("greedy", Epsilon(0.2)),
    "frozen agent, expected, epsilon 0.2": ("expected", Epsilon(0.2)),
    "frozen agent, recorded, epsilon 0.2": ("recorded", Epsilon(0.2)),
}
SOLVERS: dict[str, Any] = {"value iteration": Optimism(1.0), "value iteration, epsilon 0.2": Epsilon(0.2)}
DQN: dict[str, tuple[int, ...] | None] = {
    "SB3 DQN, linear, tuned": (),
    "SB3 DQN, [64], tuned": (64,),
    "SB3 DQN, its defaults": None,
}
METHODS = [*CONTROLLERS, *SOLVERS, *TABULAR, *DQN]
DRAWN = ["frozen agent, greedy", "frozen agent, recorded", "value iteration", "Q-learning, optimistic",
         "Q-learning", "SB3 DQN, linear, tuned"]  # fmt: skip


def scores(method: str, setting: str, task_seed: int) -> list[float]:
    """Normalised return at every record, then regret, gradient updates and parameters changed (NaN: not counted)."""
    import torch

    torch.set_num_threads(1)
    env = gym.make("RandomMDP-v0", task_seed=task_seed, **SETTINGS[setting])
    mdp = env.unwrapped.mdp
    if method in CONTROLLERS:
        target, exploration = CONTROLLERS[method]
        agent = ICRLAgent.from_theory(feature_dim=64, feature_seed=task_seed)
        before = [parameter.clone() for parameter in agent.model.parameters()]
        result = agent.control(env, RECORD_AT[-1], GAMMA, target, exploration, seed=task_seed, record_at=RECORD_AT)
        changed = sum(int((a != b).sum()) for a, b in zip(before, agent.model.parameters(), strict=True))
        gradients = sum(parameter.grad is not None for parameter in agent.model.parameters())
        returns = [record.normalised_return for record in result.records]
        return [*returns, result.records[-1].regret, gradients, changed]
    if method in SOLVERS:
        tables = value_iteration_control(env, RECORD_AT, GAMMA, SOLVERS[method], task_seed)
    elif method in TABULAR:
        on_policy = method.startswith("SARSA")
        tables = tabular_control(env, RECORD_AT, GAMMA, TABULAR[method], task_seed, on_policy)
    else:
        tables = dqn(env, RECORD_AT, GAMMA, task_seed, DQN[method])
    policies = [np.eye(mdp.n_actions)[q.argmax(axis=1)] for q in tables]
    return [*(normalised_return(mdp, policy, GAMMA) for policy in policies), np.nan, np.nan, np.nan]


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean and half-width of its 95 % interval."""
    return float(values.mean()), float(1.96 * values.std(ddof=1) / np.sqrt(len(values)))


def main() -> None:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", choices=list(SETTINGS), default="standard")
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--n-tasks", type=int, default=50)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--csv", type=Path, help="scores of every method and task; methods already there are kept")
    arguments = parser.parse_args()
    seeds = range(FIRST_TASK_SEED, FIRST_TASK_SEED + arguments.n_tasks)
    found: dict[str, np.ndarray] = _read(arguments.csv, arguments.n_tasks)
    for method in arguments.methods:
        run = joblib.Parallel(n_jobs=arguments.n_jobs)
        found[method] = np.array(run(joblib.delayed(scores)(method, arguments.setting, seed) for seed in seeds))
        _write(arguments.csv, found)
    table = Table(title=f"{arguments.setting}: normalised return, {arguments.n_tasks} tasks, ± 95 %")
    table.add_column("method")
    for heading in (*RECORD_AT, "regret", "gradients", "changed"):
        table.add_column(str(heading), justify="right")
    for method, rows in found.items():
        cells = ["{:.3f} ± {:.3f}".format(*interval(rows[:, at])) for at in range(len(RECORD_AT))]
        rest = ["–" if np.isnan(value) else f"{value:.0f}" for value in rows[:, len(RECORD_AT) :].mean(axis=0)]
        table.add_row(method, *cells, *rest)
    console = Console(width=170)
    console.print(table)
    for first, second in (("frozen agent, greedy", "value iteration"),
                          ("frozen agent, greedy, epsilon 0.2", "value iteration, epsilon 0.2")):  # fmt: skip
        if first in found and second in found:
            difference = found[first] - found[second]
            shown = ["{:+.3f} ± {:.3f}".format(*interval(difference[:, at])) for at in range(len(RECORD_AT))]
            console.print(f"{first} minus {second}: {', '.join(shown)}")
    if arguments.figure is not None:
        curves = {}
        for method in (name for name in DRAWN if name in found):
            bands = [interval(found[method][:, at]) for at in range(len(RECORD_AT))]
            curves[method] = [[m for m, _ in bands], [m - h for m, h in bands], [m + h for m, h in bands]]
        figure = plot_bands(RECORD_AT, {"return (random 0, optimal 1)": curves}, "environment steps")
        figure.set_size_inches(7.2, 4.6)
        figure.axes[0].set_xscale("log")
        figure.axes[0].set_xticks(RECORD_AT, [str(n) for n in RECORD_AT])
        figure.axes[0].set_xticks([], minor=True)
        figure.axes[0].set_ylim(0.0, 1.03)
        figure.savefig(arguments.figure)


def _read(path: Path | None, n_tasks: int) -> dict[str, np.ndarray]:
    if path is None or not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    found = {name: np.array([[float(x) for x in row[2:]] for row in rows if row[0] == name]) for name, *_ in rows}
    return {name: values for name, values in found.items() if len(values) == n_tasks}


def _write(path: Path | None, found: dict[str, np.ndarray]) -> None:
    if path is None:
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "task_seed", *RECORD_AT, "regret", "gradients", "changed"])
        for method, rows in found.items():
            writer.writerows([method, FIRST_TASK_SEED + k, *(f"{x:.6g}" for x in row)] for k, row in enumerate(rows))


if __name__ == "__main__":
    main()
