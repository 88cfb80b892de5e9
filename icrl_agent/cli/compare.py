"""``icrl compare``: the frozen agent beside critics that train and classical estimators, on the same transitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from icrl_agent.cli.pretrain import progress_bar
from icrl_agent.eval.compare_config import CompareConfig
from icrl_agent.jobs import Backend

__all__ = ["Compare"]


@dataclass(frozen=True)
class Compare(CompareConfig):
    """Compare the frozen agent with Stable-Baselines3 critics and classical estimators on the same transitions."""

    env: Annotated[str, tyro.conf.Positional]
    """Environment id with Discrete observations, for example BoyanChain-v0."""
    run_dir: Path = field(kw_only=True)
    """New folder for results.csv, summary.csv, figures, report.md and TensorBoard curves."""
    n_jobs: int = 2
    """Local processes."""
    backend: Backend = "local"
    """Where cells run: "local", or "dask" (the extra 'cluster')."""
    scheduler: str | None = None
    """Address of the Dask scheduler, for example tcp://127.0.0.1:8786."""
    resume: bool = False
    """Go on in a folder that holds the same comparison."""

    def __post_init__(self) -> None:
        """Leave the checks to ``run``, where their errors become one line."""

    def run(self) -> None:
        """Compare, write the report, print the table of the largest budget."""
        from icrl_agent.eval.compare import Comparison, compare
        from icrl_agent.eval.comparison_report import write_report

        config = CompareConfig(**{item.name: getattr(self, item.name) for item in dataclasses.fields(CompareConfig)})
        total = config.n_tasks * len(Comparison.of(config).methods)
        with progress_bar("comparing", "cells", total) as tick:
            rows = compare(
                config,
                self.run_dir,
                self.resume,
                n_jobs=self.n_jobs,
                backend=self.backend,
                scheduler=self.scheduler,
                progress=lambda done, _: tick(done),
            )
        _print(write_report(self.run_dir, rows, config), config, self.run_dir)


def _print(summary: Sequence[dict[str, Any]], config: CompareConfig, run_dir: Path) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    largest = max(config.steps)
    title = f"{config.env}, {config.n_tasks} tasks, {largest} steps, γ = {config.gamma:g}"
    table = Table("method", title=title, box=SIMPLE, pad_edge=False)
    for heading in ("error", "/ CE, 95 %", "seconds", "updates", "changed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in summary:
        if line["n_steps"] == largest:
            ratio = "{ratio:.3g} [{ratio_low:.2g}, {ratio_high:.2g}]".format(**line) if "ratio" in line else ""
            table.add_row(
                line["method"],
                f"{line['normalized_msve']:.3g}",
                ratio,
                f"{line['seconds']:.2g}",
                str(line["gradient_updates"]),
                str(line["parameters_changed"]),
            )
    console.print(table)
    console.print(f"all budgets: {run_dir / 'report.md'}, figures: {run_dir / 'figures'}", soft_wrap=True)
    console.print(f"TensorBoard: icrl tensorboard {run_dir}", soft_wrap=True)
