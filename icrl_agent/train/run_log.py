"""One ``record`` call, many sinks: metrics.csv, validation.csv and TensorBoard get the same numbers."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from icrl_agent.figures import plot_matrix
from icrl_agent.model import SoftmaxICTD
from icrl_agent.train import dashboard
from icrl_agent.train.state import Row

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["METRICS_FILE", "VALIDATION_FILE", "RunLog", "write_rows"]

METRICS_FILE = "metrics.csv"
VALIDATION_FILE = "validation.csv"


class RunLog:
    """Writes the rows of one run as they come.

    Args:
        folder: the run folder.
        writer: the open event file.
        metrics, validation: rows recorded before (a resumed run); the CSV files are made again from them, so that
            steps after the checkpoint are not there twice.
    """

    def __init__(self, folder: Path, writer: SummaryWriter, metrics: Sequence[Row], validation: Sequence[Row]) -> None:
        self._folder, self._writer = folder, writer
        for name, rows in ((METRICS_FILE, metrics), (VALIDATION_FILE, validation)):
            (folder / name).unlink(missing_ok=True)
            if rows:
                write_rows(folder / name, rows)

    def metrics(self, row: Row, prompts_per_second: float | None) -> None:
        """Record the metrics of one step."""
        _append_row(self._folder / METRICS_FILE, row)
        step = int(row["step"])
        for group, names in (("train", dashboard.TRAIN), ("emergence", dashboard.EMERGENCE)):
            for name in names:
                self._writer.add_scalar(f"{group}/{name}", float(row[name]), step)
        if prompts_per_second is not None:
            self._writer.add_scalar(dashboard.PROMPTS_PER_SECOND, prompts_per_second, step)

    def validation(self, rows: Sequence[Row]) -> None:
        """Record one validation, a row per context length."""
        for row in rows:
            _append_row(self._folder / VALIDATION_FILE, row)
            for name in ("error", "ratio", dashboard.EMPTY_CONTEXT, dashboard.OTHER_TASK):
                tag = dashboard.validation_tag(name, int(row["context_length"]))
                self._writer.add_scalar(tag, float(row[name]), int(row["step"]))

    def pictures(self, model: SoftmaxICTD, kernel: np.ndarray, step: int) -> None:
        """Record A, V and an attention kernel over states (sorted by state) as images."""
        A, V = (matrix.detach().numpy() for matrix in model.layer_weights(0))
        for tag, matrix, title in (
            (dashboard.ATTENTION_IMAGE, A, f"A after {step} updates"),
            (dashboard.VALUE_IMAGE, V, f"V after {step} updates"),
            (dashboard.KERNEL_IMAGE, kernel, f"attention from state (row) to state, {step} updates"),
        ):
            dashboard.write_figure(self._writer, tag, plot_matrix(matrix, title), step)

    def flush(self) -> None:
        """Make sure that everything recorded is on disk."""
        self._writer.flush()


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write a CSV file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _append_row(path: Path, row: Row) -> None:
    new = not path.exists()
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(row))
        if new:
            writer.writeheader()
        writer.writerow(row)
