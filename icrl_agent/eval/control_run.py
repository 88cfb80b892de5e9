"""Runs of in-context control over several seeds beside rivals at equal steps: table, figure, TensorBoard."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from icrl_agent.agent import ICRLAgent
from icrl_agent.control.exploration import as_exploration
from icrl_agent.control.loop import UNIFORM_IS_OPTIMAL
from icrl_agent.control.result import ControlResult
from icrl_agent.control.spaces import control_spaces
from icrl_agent.envs.optimal import normalised_return, uniform_is_optimal
from icrl_agent.envs.tables import TabularMDP
from icrl_agent.eval.control_rivals import TABULAR, dqn, tabular_control, value_iteration_control
from icrl_agent.eval.run_folder import new_run_folder, write_json
from icrl_agent.figures import plot_bands
from icrl_agent.train import dashboard
from icrl_agent.truth import decision_process

__all__ = ["AGENT", "RIVALS", "ControlRun", "judged_by", "run_controls"]

FloatArray = NDArray[np.float64]

AGENT = "frozen agent"
RIVALS = (*TABULAR, "value iteration", "DQN, tuned", "DQN, defaults")

#: Points of a learning curve, and columns of the printed table.
N_RECORDS, N_SHOWN = 20, 4


@dataclass(frozen=True, eq=False)
class ControlRun:
    """Learning curves by method, (runs, records)."""

    steps: list[int]
    curves: dict[str, FloatArray]
    measure: str
    """What the curves show."""
    reason: str | None
    """Why returns are not exact."""
    parameters_changed: int
    """Parameters of the agent that differ after all runs from before."""
    gradients: int
    """Parameters of the agent that hold a gradient after all runs."""
    config: Mapping[str, Any]

    def shown_steps(self, most: int = N_SHOWN) -> list[int]:
        """At most ``most`` of the recorded steps, the last one included."""
        at = np.unique(np.linspace(0, len(self.steps) - 1, most + 1).round().astype(int)[1:])
        return [self.steps[k] for k in at]

    @property
    def n_runs(self) -> int:
        """Runs of every method."""
        return len(self.curves[AGENT])

    def interval(self, method: str, n_steps: int) -> tuple[float, float]:
        """Mean over runs and half-width of its 95 % interval (NaN for one run)."""
        values = self.curves[method][:, self.steps.index(n_steps)]
        values = values[~np.isnan(values)]  # runs without a finished episode so far
        if not len(values):
            return float("nan"), float("nan")
        spread = values.std(ddof=1) if len(values) > 1 else np.nan
        return float(values.mean()), float(1.96 * spread / np.sqrt(len(values)))

    def write(self, run_dir: Path) -> None:
        """Write config.json, metrics.csv, control.png and tensorboard/ into a new folder.

        Raises:
            ValueError: if the folder is in use.
        """
        with new_run_folder(run_dir) as folder:
            write_json(folder / "config.json", self.config)
            with open(folder / "metrics.csv", "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["method", "run", "n_steps", "return"])
                for method, runs in self.curves.items():
                    for number, values in enumerate(runs):
                        writer.writerows([method, number, *row] for row in zip(self.steps, values, strict=True))
            figure = self.plot()
            figure.savefig(folder / "control.png")
            for method in self.curves:
                name = "".join(c if c.isalnum() else "_" for c in method).replace("__", "_")
                with dashboard.open_writer(folder / dashboard.TENSORBOARD_FOLDER / name) as events:
                    for n_steps in self.steps:
                        events.add_scalar(dashboard.CONTROL_RETURN, self.interval(method, n_steps)[0], n_steps)
                    if method == AGENT:
                        dashboard.write_figure(events, dashboard.CONTROL_FIGURE, figure, self.steps[-1])

    def plot(self) -> Any:
        """Draw the curves, mean and 95 % interval over runs."""
        curves = {}
        for method in self.curves:
            bands = [self.interval(method, n_steps) for n_steps in self.steps]
            half = [0.0 if np.isnan(width) else width for _, width in bands]
            mean = [value for value, _ in bands]
            curves[method] = [mean, list(np.subtract(mean, half)), list(np.add(mean, half))]
        figure = plot_bands(self.steps, {self.measure: curves}, "environment steps")
        figure.set_size_inches(6.4, 4.2)
        return figure


def judged_by(env: gym.Env[Any, Any], rivals: Sequence[str], gamma: float) -> tuple[TabularMDP | None, str | None]:
    """The tables that judge policies, or why there are none; rivals, which are judged so alone, then cannot run.

    Raises:
        ValueError: for an unknown rival, or an environment with one action.
        TypeError: for something that is no environment, or spaces that are not supported.
    """
    unknown = [name for name in rivals if name not in RIVALS]
    if unknown:
        raise ValueError(f"unknown rival {unknown[0]!r}: choose among {', '.join(map(repr, RIVALS))}")
    _, actions = control_spaces(env)
    if actions.n == 1:
        raise ValueError("the environment has one action: there is nothing to control")
    mdp, reason = decision_process(env) if gamma < 1 else (None, "gamma is 1: the optimum is not solved for")
    if mdp is not None and uniform_is_optimal(mdp, gamma):
        return None, UNIFORM_IS_OPTIMAL
    return mdp, reason


def run_controls(
    agent: ICRLAgent,
    make_env: Callable[[], gym.Env[Any, Any]],
    *,
    n_steps: int,
    gamma: float,
    seeds: Sequence[int],
    rivals: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> ControlRun:
    """Let the agent, and rivals with experience of their own, act for ``n_steps`` steps per seed.

    Where the tables are known a curve is the normalised return of the greedy policy; elsewhere it is the mean return of
    the last ten episodes of the run itself, exploration included, and there are no rivals.

    Args:
        agent: the agent.
        make_env: makes the environment.
        n_steps, gamma: as in ``ICRLAgent.control``.
        seeds: one run each.
        rivals: of ``RIVALS``.
        options: further arguments of ``ICRLAgent.control``.
        config: what is written to config.json.
        progress: called with the number of finished runs.

    Raises:
        ValueError, TypeError: as ``ICRLAgent.control``, for an unknown rival, and for an environment with one action.
    """
    mdp, reason = judged_by(make_env(), rivals, gamma)
    options = dict(options or {})
    spaced = np.linspace(0, n_steps, N_RECORDS + 1).round()[1:]
    steps = [int(k) for k in np.unique(np.maximum(spaced, 1))] if n_steps > 0 else []
    before = [parameter.clone() for parameter in agent.model.parameters()]
    curves: dict[str, list[Any]] = {AGENT: []}
    finished = 0
    for seed in seeds:
        result = agent.control(make_env(), n_steps, gamma, seed=seed, record_at=steps or None, **options)
        curves[AGENT].append(_curve(result, steps))
        for rival in rivals if mdp is not None else ():
            tables = _rival(rival, make_env(), steps, gamma, seed, options)
            curves.setdefault(rival, []).append([_score(mdp, q, gamma) for q in tables])
            finished += 1
        finished += 1
        if progress is not None:
            progress(finished)
    measure = "return (random 0, optimal 1)" if mdp is not None else "mean return of ten episodes, exploring"
    arrays = {method: np.array(runs, np.float64) for method, runs in curves.items()}
    after = list(agent.model.parameters())
    changed = sum(int((old != new).sum()) for old, new in zip(before, after, strict=True))
    gradients = sum(parameter.grad is not None for parameter in after)
    return ControlRun(steps, arrays, measure, reason, changed, gradients, dict(config or {}))


def _curve(result: ControlResult, steps: Sequence[int]) -> list[float]:
    if result.records[-1].normalised_return is not None:
        return [float(record.normalised_return or 0.0) for record in result.records]
    ends, returns = np.array(result.episodes, np.float64).reshape(-1, 2).T
    return [float(returns[ends <= step][-10:].mean()) if (ends <= step).any() else np.nan for step in steps]


def _score(mdp: TabularMDP | None, q: FloatArray, gamma: float) -> float:
    assert mdp is not None
    return normalised_return(mdp, np.eye(q.shape[1])[q.argmax(axis=1)], gamma)


def _rival(
    name: str, env: gym.Env[Any, Any], steps: Sequence[int], gamma: float, seed: int, options: Mapping[str, Any]
) -> list[FloatArray]:
    if name in TABULAR:
        return tabular_control(env, steps, gamma, TABULAR[name], seed, on_policy=name.startswith("SARSA"))
    if name == "value iteration":
        exploration = as_exploration(options.get("exploration", 0.2))
        return value_iteration_control(env, steps, gamma, exploration, seed, options.get("refresh_every", 20))
    return dqn(env, steps, gamma, seed, None if name == "DQN, defaults" else ())
