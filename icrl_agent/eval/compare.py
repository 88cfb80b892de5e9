"""Every method on every task at every budget, on the same transitions: cells, results, resume.

A cell is one method on one task. Cells run through joblib and are kept as they finish, so a run that was killed goes on
without doing them again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import joblib
import numpy as np
from gymnasium import spaces

from icrl_agent.collect import collect
from icrl_agent.envs.tabular_env import TASK_SEED
from icrl_agent.eval.compare_config import CompareConfig
from icrl_agent.eval.methods import METHODS, TaskData, method_names
from icrl_agent.eval.reference_values import ReferenceValues, exact_reference, monte_carlo_reference
from icrl_agent.eval.run_folder import write_json
from icrl_agent.jobs import Backend, parallel_jobs
from icrl_agent.metrics import centred_msve, msve, normalized_msve
from icrl_agent.train.dashboard import TENSORBOARD_FOLDER
from icrl_agent.wrappers.policy import BoundPolicy, PolicyLike

__all__ = ["Comparison", "compare", "event_folder", "load_results", "rows_of"]

CELLS_FOLDER = "cells"
#: Seed of the Monte-Carlo reference's run, apart from every trajectory's.
REFERENCE_SEED = 2**31
Row = dict[str, Any]


class Comparison(NamedTuple):
    """A configuration with its methods chosen and its policy read."""

    config: CompareConfig
    methods: list[str]
    policy: PolicyLike

    @classmethod
    def of(cls, config: CompareConfig) -> Comparison:
        """Choose the methods and read the policy.

        Raises:
            ValueError: for a method that does not exist, or a policy file that is no table.
        """
        wanted = {name for part in config.methods or ("",) for name in method_names(part)}
        return cls(config, [name for name in METHODS if name in wanted], _read_policy(config))


def compare(
    config: CompareConfig,
    run_dir: Path,
    resume: bool = False,
    *,
    n_jobs: int = 2,
    backend: Backend = "local",
    scheduler: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Run what is missing and return all rows, one per task, method and budget.

    Args:
        config: what is compared.
        run_dir: a new or empty folder, or with ``resume`` the one to go on in.
        resume: go on; finished cells are not run again.
        n_jobs, backend, scheduler: see ``parallel_jobs``; a cluster's workers must see the same file system.
        progress: called with the numbers of cells finished and of all.

    Raises:
        ValueError: for a folder in use or of another comparison, a method or policy that does not exist, a cluster
            that is not there.
        TypeError: for an environment whose observations or actions are not Discrete.
    """
    comparison = Comparison.of(config)
    _check_environment(comparison)
    with parallel_jobs(n_jobs, backend, scheduler, in_order=False) as run:
        _open(run_dir, config, resume)
        cells = [(task, method) for task in range(config.n_tasks) for method in comparison.methods]
        missing = [cell for cell in cells if not _cell_file(run_dir, *cell).exists()]
        if progress is not None:
            progress(len(cells) - len(missing), len(cells))
        jobs = (joblib.delayed(_run_cell)(comparison, run_dir.absolute(), *cell) for cell in missing)
        for done, _ in enumerate(run(jobs), 1):
            if progress is not None:
                progress(len(cells) - len(missing) + done, len(cells))
    return load_results(run_dir, config)


def load_results(run_dir: Path, config: CompareConfig) -> list[Row]:
    """Rows of all finished cells."""
    rows: list[Row] = []
    for task in range(config.n_tasks):
        for method in Comparison.of(config).methods:
            path = _cell_file(run_dir, task, method)
            if path.exists():
                rows.extend(json.loads(path.read_text(encoding="utf-8")))
    return rows


def rows_of(rows: Sequence[Row], method: str, n_steps: int) -> list[Row]:
    """Rows of one method at one budget, in the order of tasks."""
    return [row for row in rows if row["method"] == method and row["n_steps"] == n_steps]


def event_folder(run_dir: Path, method: str) -> Path:
    """Folder of a method's TensorBoard events."""
    return run_dir / TENSORBOARD_FOLDER / _file_name(method)


def _file_name(method: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in method)


def _cell_file(run_dir: Path, task: int, method: str) -> Path:
    return run_dir / CELLS_FOLDER / f"{task:04d}-{_file_name(method)}.json"


def _read_policy(config: CompareConfig) -> PolicyLike:
    if not config.policy:
        return None
    try:
        return np.asarray(np.load(config.policy, allow_pickle=False), dtype=np.float64)
    except (ValueError, OSError) as error:
        raise ValueError(f"{config.policy} is no .npy file of numbers: {error}") from error


def _make_env(config: CompareConfig, task: int) -> gym.Env[Any, Any]:
    env = gym.make(config.env, **config.env_arguments)
    if getattr(env.unwrapped, TASK_SEED, None) is not None:
        env.reset(options={TASK_SEED: config.first_task + task})
    return env


def _check_environment(comparison: Comparison) -> None:
    config = comparison.config
    env = _make_env(config, 0)
    for name, space in (("observations", env.observation_space), ("actions", env.action_space)):
        if not isinstance(space, spaces.Discrete) or space.start != 0:
            raise TypeError(f"a comparison needs Discrete {name} numbered from 0, {config.env} has {space}")
    BoundPolicy(comparison.policy, env.observation_space, env.action_space, seed=0)


def _open(run_dir: Path, config: CompareConfig, resume: bool) -> None:
    used = run_dir.exists() and (not run_dir.is_dir() or any(run_dir.iterdir()))
    path = run_dir / "config.json"
    if used and not resume:
        raise ValueError(f"{run_dir} is in use: name a folder that is new or empty, or resume the comparison in it")
    if used:
        theirs = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        if theirs != config.to_dict():
            raise ValueError(f"{run_dir} holds no comparison with this configuration")
        return
    (run_dir / CELLS_FOLDER).mkdir(parents=True, exist_ok=True)
    write_json(path, config.to_dict())


def _run_cell(comparison: Comparison, run_dir: Path, task: int, method: str) -> None:
    import torch

    torch.set_num_threads(1)
    config, _, policy = comparison
    env = _make_env(config, task)
    seed = config.first_task + task
    budgets = sorted(config.steps)
    assert isinstance(env.observation_space, spaces.Discrete)
    log_dir = event_folder(run_dir, method) / "critic" if task == 0 else None
    transitions = collect(env, policy, budgets[-1], seed)
    data = TaskData(transitions, env.observation_space, config.gamma, seed, log_dir)
    reference = _reference(comparison, run_dir, task, env)
    rows = [
        {
            "task": task,
            "method": method,
            "n_steps": outcome.n_steps,
            "msve": msve(outcome.values, reference.values, reference.weights),
            "normalized_msve": normalized_msve(outcome.values, reference.values, reference.weights),
            "centred_msve": centred_msve(outcome.values, reference.values, reference.weights),
            "reference_noise": reference.noise,
            "seconds": outcome.seconds,
            "gradient_updates": outcome.gradient_updates,
            "parameters_changed": outcome.parameters_changed,
        }
        for outcome in METHODS[method](data, budgets)
    ]
    _replace(_cell_file(run_dir, task, method), json.dumps(rows))


def _reference(comparison: Comparison, run_dir: Path, task: int, env: gym.Env[Any, Any]) -> ReferenceValues:
    """The task's true values; a Monte-Carlo reference is computed once and kept beside the cells."""
    config, _, policy = comparison
    exact = exact_reference(env, policy, config.gamma)
    if isinstance(exact, ReferenceValues):
        return exact
    path = run_dir / CELLS_FOLDER / f"{task:04d}.reference.json"
    if not path.exists():
        found = monte_carlo_reference(env, policy, config.gamma, config.truth_steps, REFERENCE_SEED + task)
        assert found.standard_errors is not None
        parts = (found.values, found.weights, found.standard_errors)
        _replace(path, json.dumps([part.tolist() for part in parts]))
    return ReferenceValues(*(np.array(part) for part in json.loads(path.read_text(encoding="utf-8"))))


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
