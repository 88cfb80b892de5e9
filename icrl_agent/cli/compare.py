"""``icrl compare``: the frozen agent beside critics that train and classical estimators, on the same transitions."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from icrl_agent.cli.pretrain import progress_bar

__all__ = ["Compare"]


@dataclass(frozen=True)
class Compare:
    """Compare the frozen agent with Stable-Baselines3 critics and classical estimators on the same transitions."""

    env: Annotated[str, tyro.conf.Positional]
    """Environment id with Discrete observations and known tables, for example BoyanChain-v0."""
    run_dir: Path
    """New folder for results.csv, summary.csv, figures, report.md and TensorBoard curves."""
    steps: tuple[int, ...] = (30, 100, 300, 1000)
    """Budgets: environment steps really taken."""
    n_tasks: int = 20
    """Number of tasks (or of trajectories, where the environment has one task)."""
    first_task: int = 1000
    """First task seed."""
    gamma: float = 0.9
    """Discount factor of every method, below 1."""
    methods: tuple[str, ...] = ()
    """Names, or parts of names, of the methods; all if not given."""
    env_kwargs: str = "{}"
    """Arguments of the environment as JSON."""
    n_jobs: int = 2
    """Local processes."""
    resume: bool = False
    """Go on in a folder that holds the same comparison."""

    def run(self) -> None:
        """Compare, write the report, print the table of the largest budget."""
        from rich.console import Console
        from rich.table import Table

        from icrl_agent.eval.compare import CompareConfig, compare
        from icrl_agent.eval.comparison_report import write_report

        fields = {item.name: getattr(self, item.name) for item in dataclasses.fields(CompareConfig)}
        config = CompareConfig(**fields)
        total = config.n_tasks * len(config.chosen_methods)
        with progress_bar("comparing", "cells", total) as tick:
            rows = compare(config, self.run_dir, self.resume, n_jobs=self.n_jobs, progress=lambda done, _: tick(done))
        summary = write_report(self.run_dir, rows, config)
        console = Console(highlight=False)
        largest = max(config.steps)
        table = Table("method", title=f"{config.env}, {config.n_tasks} tasks, {largest} steps, γ = {config.gamma:g}")
        for heading in ("error", "ratio to CE", "seconds", "updates", "changed"):
            table.add_column(heading, justify="right")
        for line in summary:
            if line["n_steps"] == largest:
                ratio = (
                    f"{line['ratio']:.2f} [{line['ratio_low']:.2f}, {line['ratio_high']:.2f}]"
                    if "ratio" in line
                    else ""
                )
                table.add_row(
                    line["method"],
                    f"{line['normalized_msve']:.4g}",
                    ratio,
                    f"{line['seconds']:.2g}",
                    str(line["gradient_updates"]),
                    str(line["parameters_changed"]),
                )
        console.print(table)
        console.print(f"all budgets: {self.run_dir / 'report.md'}, figures: {self.run_dir / 'figures'}", soft_wrap=True)
        console.print(f"TensorBoard: icrl tensorboard {self.run_dir}", soft_wrap=True)
