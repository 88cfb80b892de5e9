"""Every method on every task at every budget, on the same transitions: cells, results, resume.

A cell is one method on one task. Cells run through joblib and are kept as they finish, so a run that was killed goes on
without doing them again.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import joblib
import numpy as np
from gymnasium import spaces

from icrl_agent.collect import collect
from icrl_agent.envs.solve import NoUniqueSolution, check_gamma, state_values, stationary_distribution
from icrl_agent.envs.tabular_env import TASK_SEED
from icrl_agent.eval.methods import METHODS, TaskData, method_names
from icrl_agent.eval.run_folder import write_json
from icrl_agent.metrics import centred_msve, msve, normalized_msve
from icrl_agent.truth import induced_process

__all__ = ["CompareConfig", "compare", "load_results"]

CELLS_FOLDER = "cells"

#: Environment id and arguments to environment; replaceable in tests.
MakeEnv = Callable[..., gym.Env[Any, Any]]


@dataclass(frozen=True)
class CompareConfig:
    """A comparison; together with nothing else it decides every number but the seconds."""

    env: str
    """Environment id with Discrete observations and known tables."""
    steps: tuple[int, ...] = (30, 100, 300, 1000)
    """Budgets: environment steps really taken."""
    n_tasks: int = 20
    """Tasks: ``task_seed`` from ``first_task`` on, or trajectory seeds where the environment has one task."""
    first_task: int = 1000
    """First task."""
    gamma: float = 0.9
    """Discount factor of every method, in [0, 1)."""
    methods: tuple[str, ...] = ()
    """Names, or parts of names, of methods; () = all."""
    env_kwargs: str = "{}"
    """Arguments of the environment as JSON."""

    def __post_init__(self) -> None:
        if not self.steps or any(not isinstance(k, int) or isinstance(k, bool) or k < 1 for k in self.steps):
            raise ValueError(f"steps must be integers of at least 1, got {self.steps}")
        if self.n_tasks < 1 or self.first_task < 0:
            raise ValueError(
                f"n_tasks must be at least 1 and first_task at least 0, got {self.n_tasks}, {self.first_task}"
            )
        if check_gamma(self.gamma) == 1:
            raise ValueError("gamma must be below 1 in a comparison: several methods have no undiscounted form")
        for part in self.methods:
            method_names(part)

    @property
    def chosen_methods(self) -> list[str]:
        """Full names of the methods, in the table's order."""
        if not self.methods:
            return list(METHODS)
        wanted = {name for part in self.methods for name in method_names(part)}
        return [name for name in METHODS if name in wanted]


def compare(
    config: CompareConfig,
    run_dir: Path,
    resume: bool = False,
    *,
    n_jobs: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Run what is missing and return all rows, one per task, method and budget.

    Raises:
        ValueError: for a folder in use or of another comparison, or an environment without known tables.
        TypeError: for an environment whose observations are not Discrete.
    """
    _check_environment(config)
    _open(run_dir, config, resume)
    cells = [(task, method) for task in range(config.n_tasks) for method in config.chosen_methods]
    missing = [cell for cell in cells if not _cell_file(run_dir, *cell).exists()]
    if progress is not None:
        progress(len(cells) - len(missing), len(cells))
    runner = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    for done, _ in enumerate(runner(joblib.delayed(_run_cell)(config, run_dir, *cell) for cell in missing), 1):
        if progress is not None:
            progress(len(cells) - len(missing) + done, len(cells))
    return load_results(run_dir, config)


def load_results(run_dir: Path, config: CompareConfig) -> list[dict[str, Any]]:
    """Rows of all finished cells."""
    rows: list[dict[str, Any]] = []
    for task in range(config.n_tasks):
        for method in config.chosen_methods:
            path = _cell_file(run_dir, task, method)
            if path.exists():
                rows.extend(json.loads(path.read_text(encoding="utf-8")))
    return rows


def _make_env(config: CompareConfig, task: int) -> gym.Env[Any, Any]:
    kwargs = json.loads(config.env_kwargs)
    env = gym.make(config.env, **kwargs)
    if getattr(env.unwrapped, TASK_SEED, None) is None:
        return env
    return gym.make(config.env, **{**kwargs, TASK_SEED: config.first_task + task})


def _check_environment(config: CompareConfig) -> None:
    env = _make_env(config, 0)
    if not isinstance(env.observation_space, spaces.Discrete):
        raise TypeError(f"a comparison needs Discrete observations, {config.env} has {env.observation_space}")
    task = induced_process(env, None)
    if task.mrp is None:
        raise ValueError(f"a comparison needs known true values: {task.reason}")


def _open(run_dir: Path, config: CompareConfig, resume: bool) -> None:
    used = run_dir.exists() and (not run_dir.is_dir() or any(run_dir.iterdir()))
    path = run_dir / "config.json"
    if used and not resume:
        raise ValueError(f"{run_dir} is in use: name a folder that is new or empty, or resume the comparison in it")
    mine = json.loads(json.dumps(dataclasses.asdict(config)))
    if used:
        theirs = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        if theirs != mine:
            raise ValueError(f"{run_dir} holds no comparison with this configuration")
        return
    (run_dir / CELLS_FOLDER).mkdir(parents=True, exist_ok=True)
    write_json(path, mine)


def _cell_file(run_dir: Path, task: int, method: str) -> Path:
    return run_dir / CELLS_FOLDER / f"{task:04d}-{list(METHODS).index(method):02d}.json"


def _run_cell(config: CompareConfig, run_dir: Path, task: int, method: str) -> None:
    import torch

    torch.set_num_threads(1)
    env = _make_env(config, task)
    seed = config.first_task + task
    budgets = sorted(config.steps)
    assert isinstance(env.observation_space, spaces.Discrete)
    data = TaskData(collect(env, None, budgets[-1], seed), env.observation_space, config.gamma, seed)
    mrp = induced_process(env, None).mrp
    assert mrp is not None
    truth = state_values(mrp, config.gamma)
    try:
        weights = stationary_distribution(mrp)
    except NoUniqueSolution:
        # Several closed classes: weigh by the visits of all transitions instead.
        weights = np.bincount(data.transitions.observations, minlength=data.n_states).astype(np.float64)
    rows = [
        {
            "task": task,
            "method": method,
            "n_steps": outcome.n_steps,
            "msve": msve(outcome.values, truth, weights),
            "normalized_msve": normalized_msve(outcome.values, truth, weights),
            "centred_msve": centred_msve(outcome.values, truth, weights),
            "seconds": outcome.seconds,
            "gradient_updates": outcome.gradient_updates,
            "parameters_changed": outcome.parameters_changed,
        }
        for outcome in METHODS[method](data, budgets)
    ]
    path = _cell_file(run_dir, task, method)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(rows), encoding="utf-8")
    os.replace(temporary, path)


def rows_of(rows: Sequence[dict[str, Any]], method: str, n_steps: int) -> list[dict[str, Any]]:
    """Rows of one method at one budget, in the order of tasks."""
    chosen = [row for row in rows if row["method"] == method and row["n_steps"] == n_steps]
    return sorted(chosen, key=lambda row: int(row["task"]))
