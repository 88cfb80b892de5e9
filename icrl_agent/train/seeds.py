"""Several seeds of one configuration: independent jobs, joined into a mean with a 95 % interval.

Jobs run in local processes (joblib) or on a Dask cluster; every seed is a run folder of its own, so a cluster's
workers must see the same file system. A seed's result does not depend on where or beside whom it ran.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from icrl_agent.figures import plot_bands
from icrl_agent.jobs import Backend, parallel_jobs
from icrl_agent.metrics import student_quantile
from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.loop import PretrainResult, check_resumable, pretrain, write_config
from icrl_agent.train.run_log import write_rows
from icrl_agent.train.state import Row

__all__ = ["SUMMARY_FILE", "pretrain_seeds", "seed_folder", "summarise"]

SUMMARY_FILE = "summary.csv"


def pretrain_seeds(
    config: PretrainConfig,
    run_dir: str | Path,
    n_seeds: int,
    resume: bool = False,
    *,
    n_jobs: int = 2,
    backend: Backend = "local",
    scheduler: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[PretrainResult]:
    """Pretrain ``n_seeds`` seeds, config.seed, config.seed + 1, ..., each in ``run_dir/seed-K``.

    Beside them: config.json, summary.csv (mean and 95 % interval over seeds of every column of metrics.csv) and
    emergence.png. Every seed is a job of its own and runs on one thread.

    Args:
        config: the run of the first seed.
        run_dir: a new or empty folder, or with ``resume`` the one to go on in; finished seeds are not run again.
        n_seeds: at least 1.
        resume: see ``pretrain``.
        n_jobs: local processes.
        backend: "local" processes, or a "dask" cluster (needs the optional extra ``cluster``).
        scheduler: address of the cluster's scheduler, for example "tcp://10.0.0.1:8786".
        progress: called with the number of seeds finished.

    Raises:
        ValueError: for a folder in use, a size below 1, or a cluster that is not named or not there.
    """
    if n_seeds < 1:
        raise ValueError(f"n_seeds must be at least 1, got {n_seeds}")
    folder = Path(run_dir)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not resume:
            raise ValueError(f"{folder} is in use: name a folder that is new or empty, or resume the runs in it")
        check_resumable(folder, config, several=True)
    configs = [dataclasses.replace(config, seed=config.seed + k) for k in range(n_seeds)]
    with parallel_jobs(n_jobs, backend, scheduler) as parallel:
        folder.mkdir(parents=True, exist_ok=True)
        write_config(folder, {**config.to_dict(), "n_seeds": n_seeds})
        results: list[PretrainResult] = []
        for result in parallel(joblib.delayed(_run)(c, str(seed_folder(folder, c.seed)), resume) for c in configs):
            results.append(result)
            if progress is not None:
                progress(len(results))
    if all(result.finished for result in results):
        summary = summarise([result.metrics for result in results])
        write_rows(folder / SUMMARY_FILE, summary)
        _plot_emergence(summary).savefig(folder / "emergence.png")
    return results


def seed_folder(run_dir: Path, seed: int) -> Path:
    """Run folder of one seed."""
    return run_dir / f"seed-{seed}"


def summarise(runs: Sequence[Sequence[Row]]) -> list[Row]:
    """Join the metrics of several seeds: step, and mean, low and high (95 % interval, Student's t) of every column.

    >>> rows = summarise([[{"step": 0, "td_loss": 1.0}], [{"step": 0, "td_loss": 3.0}]])
    >>> rows[0]["td_loss_mean"], round(rows[0]["td_loss_high"], 2)
    (2.0, 14.71)
    """
    joined: list[Row] = []
    for rows in zip(*runs, strict=True):
        row: Row = {"step": rows[0]["step"]}
        for name in rows[0]:
            if name == "step":
                continue
            values = np.array([float(r[name]) for r in rows])
            mean = float(values.mean())
            half = 0.0
            if len(values) > 1:
                quantile = student_quantile(0.975, len(values) - 1)
                half = quantile * float(values.std(ddof=1)) / math.sqrt(len(values))
            row |= {f"{name}_mean": mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
        joined.append(row)
    return joined


def _run(config: PretrainConfig, folder: str, resume: bool) -> PretrainResult:
    return pretrain(config, folder, resume)


def _plot_emergence(summary: Sequence[Row]) -> Any:
    panels = {
        "kernel diagonality": ("kdm_mean", "kdm_min"),
        "free entries of V": ("value_reward", "value_target", "value_current"),
        "A": ("attention_diagonal", "attention_off_diagonal"),
        "TD loss": ("td_loss",),
    }
    steps = [float(row["step"]) for row in summary]
    curves = {
        title: {
            name: [[float(row[f"{name}_{part}"]) for row in summary] for part in ("mean", "low", "high")]
            for name in names
        }
        for title, names in panels.items()
    }
    return plot_bands(steps, curves, "updates")
