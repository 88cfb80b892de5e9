"""Test claims as independent jobs; every finished one is kept, so that an interrupted run goes on without it.

run_dir/config.json     what was asked for, versions, machine
run_dir/results/        one file per finished claim
run_dir/figures/        PNG and SVG
run_dir/work/           run folders of the pretraining and comparison that claims need
run_dir/tensorboard/    one run per claim
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import joblib
import matplotlib as mpl

from icrl_agent.eval.reproduce.claim import Claim, Outcome
from icrl_agent.eval.reproduce.registry import CLAIMS, chosen_claims
from icrl_agent.eval.run_folder import check_free, write_json
from icrl_agent.jobs import parallel_jobs
from icrl_agent.train import dashboard

__all__ = ["FIGURES_FOLDER", "finished_claims", "reproduce"]

CONFIG_FILE, RESULTS_FOLDER, FIGURES_FOLDER, WORK_FOLDER = "config.json", "results", "figures", "work"
PACKAGES = ("icrl-agent", "numpy", "torch", "gymnasium", "stable-baselines3", "matplotlib")

#: The jobs that take longest start first.
_LONGEST_FIRST = ("emergence", "neu", "shipped", "context-length", "phase", "linear-attention")


def reproduce(
    run_dir: Path,
    quick: bool = False,
    only: Sequence[str] = (),
    resume: bool = False,
    *,
    n_jobs: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[Claim], list[str]]:
    """Test the claims that are asked for, and return them with the ids of those that an earlier run had finished.

    Args:
        run_dir: a new or empty folder, or with ``resume`` that of a run of the same size.
        quick: small sizes.
        only: ids of claims; () = all.
        resume: take over the claims that are finished in the folder.
        n_jobs: local processes.
        progress: called with the number of claims finished and their total.

    Raises:
        ValueError: for an unknown claim (the known ones are listed), a folder in use or of another size.
    """
    wanted = chosen_claims(only)
    with parallel_jobs(n_jobs, in_order=False) as run:
        _open(run_dir, quick, resume)
        reused = [claim.id for claim in finished_claims(run_dir) if claim.id in wanted]
        missing = [name for name in (*_LONGEST_FIRST, *wanted) if name in wanted and name not in reused]
        if progress is not None:
            progress(len(reused), len(wanted))
        jobs = (joblib.delayed(_test)(name, quick, run_dir.absolute()) for name in dict.fromkeys(missing))
        for done, _ in enumerate(run(jobs), 1):
            if progress is not None:
                progress(len(reused) + done, len(wanted))
    return [claim for claim in finished_claims(run_dir) if claim.id in wanted], reused


def finished_claims(run_dir: Path) -> list[Claim]:
    """Claims that were tested in a folder, in the report's order."""
    files = (run_dir / RESULTS_FOLDER / f"{name}.json" for name in CLAIMS)
    return [Claim.from_dict(json.loads(file.read_text(encoding="utf-8"))) for file in files if file.is_file()]


def _open(run_dir: Path, quick: bool, resume: bool) -> None:
    path = run_dir / CONFIG_FILE
    if resume and path.is_file():
        theirs = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(theirs, dict) or theirs.get("quick") is not quick:
            sizes = "full size", "quick"
            raise ValueError(f"{run_dir} holds no {sizes[quick]} reproduction to go on with")
        return
    if resume and run_dir.is_dir() and any(run_dir.iterdir()):
        raise ValueError(f"{run_dir} holds no reproduction to go on with: it has no {CONFIG_FILE}")
    check_free(run_dir)
    (run_dir / RESULTS_FOLDER).mkdir(parents=True, exist_ok=True)
    write_json(path, {"quick": quick, "versions": _versions(), "machine": _machine()})


def _versions() -> Mapping[str, str]:
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in PACKAGES}}


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def _test(name: str, quick: bool, run_dir: Path) -> None:
    """Test one claim on one thread and keep what came out, the result last."""
    import torch

    torch.set_num_threads(1)
    spec = CLAIMS[name]
    start = time.perf_counter()
    outcome = spec.test(quick, run_dir / WORK_FOLDER / name)
    claim = Claim.of(spec.id, spec.title, spec.statement, outcome, time.perf_counter() - start)
    _write_figures(run_dir / FIGURES_FOLDER, name, outcome)
    _write_events(run_dir / dashboard.TENSORBOARD_FOLDER / name, claim, outcome)
    path = run_dir / RESULTS_FOLDER / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    write_json(temporary, claim.to_dict())
    os.replace(temporary, path)


def _write_figures(folder: Path, name: str, outcome: Outcome) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, (figure, _) in outcome.figures.items():
        figure.savefig(folder / f"{name}-{stem}.png")
        # Without a date and with fixed ids the same figure is the same file.
        with mpl.rc_context({"svg.hashsalt": name}):
            figure.savefig(folder / f"{name}-{stem}.svg", metadata={"Date": None})


def _write_events(folder: Path, claim: Claim, outcome: Outcome) -> None:
    for old in folder.glob("events.*"):
        old.unlink()
    with dashboard.open_writer(folder) as writer:
        verdict = "passed" if claim.passed else "FAILED"
        lines = [f"{claim.statement}", "", f"**{verdict}**", "", *(f"- {check}" for check in outcome.checks)]
        writer.add_text(dashboard.CLAIM_TEXT, "\n".join(lines))
        for number, check in enumerate(outcome.checks):
            writer.add_scalar(dashboard.CLAIM_CHECK, check.value, number)
            writer.add_scalar(dashboard.CLAIM_THRESHOLD, check.threshold, number)
        for curve, points in outcome.curves.items():
            for step, value in points:
                writer.add_scalar(dashboard.claim_curve_tag(curve), value, step)
        for stem, (figure, _) in outcome.figures.items():
            dashboard.write_figure(writer, dashboard.claim_figure_tag(stem), figure, 0)
