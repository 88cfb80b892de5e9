"""The shipped weights' tables and the comparison: what is committed, and a small sample of each measured again."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import icrl_agent
from icrl_agent.eval.compare import compare, rows_of
from icrl_agent.eval.compare_config import CompareConfig
from icrl_agent.eval.comparison_report import REFERENCE
from icrl_agent.eval.methods import METHODS
from icrl_agent.eval.reproduce.claim import LEVEL, Check, Outcome, exactly
from icrl_agent.eval.weights_table import measure_cell
from icrl_agent.figures import COLOURS, new_figure
from icrl_agent.frozen import SHIPPED_WEIGHTS
from icrl_agent.metrics import geometric_mean, student_quantile
from icrl_agent.model import SoftmaxICTD, load_weights
from icrl_agent.train.tasks import FeatureKind
from icrl_agent.train.validation import Cell, draw_contexts

__all__ = ["FULL", "QUICK", "Committed", "Measurements", "Sizes", "claim", "judge", "measure", "read_comparison"]

FloatArray = NDArray[np.float64]

#: The committed comparison; part of the repository, not of an installed package.
COMPARISON = Path(icrl_agent.__file__).parent.parent / "docs" / "comparison" / "boyan_chain.md"
#: First task and cell seed of the samples: no task of the committed results.
FIRST_TASK, CELL_SEED = 50_000, 90_000
#: Methods of the comparison that are run again, where it has them.
SAMPLED = (
    "frozen agent, theorem",
    "frozen agent, universal",
    "certainty equivalence, zero fill",
    "LSTD, one-hot",
    "tabular TD(0)",
    "Monte Carlo",
    "SB3 DQN, linear, one-hot",
)
FEATURES: dict[str, FeatureKind] = {"universal": "random_unit", "order": "random_fourier"}


@dataclass(frozen=True)
class Sizes:
    """How much is run again."""

    n_tasks: int
    """Per cell of the weights' tables, and in the comparison."""
    largest_budget: int
    """Environment steps of the comparison."""


QUICK, FULL = Sizes(10, 100), Sizes(10, 300)


class Committed(NamedTuple):
    """A ratio of errors as it was printed."""

    ratio: float
    log_stderr: float
    """Standard error of its logarithm."""
    rounding: float
    """Half a unit of its last digit."""


class Measurements(NamedTuple):
    """What is committed beside what was measured now."""

    weights: Mapping[str, tuple[Committed, FloatArray]]
    """Name of the weights -> the table's overall ratio, and log ratios of the sample's tasks, all cells."""
    comparison: Mapping[tuple[str, int], tuple[Committed, FloatArray]]
    """(method, steps) -> ratio to certainty equivalence, and log ratios of the sample's tasks."""


def measure(sizes: Sizes, folder: Path, models: Mapping[str, SoftmaxICTD] | None = None) -> Measurements:
    """Read the committed results and run the samples; ``models`` stand in for shipped weights of these names."""
    weights = {}
    for path in sorted(SHIPPED_WEIGHTS.glob("*.md")):
        model = (models or {}).get(path.stem) or load_weights(path.with_suffix(".safetensors"))[0]
        weights[path.stem] = _sampled_weights(path, model, sizes)
    committed = read_comparison(COMPARISON.read_text(encoding="utf-8")) if COMPARISON.is_file() else {}
    chosen = {key: ratio for key, ratio in committed.items() if key[0] in SAMPLED and key[0] in METHODS}
    chosen = {key: ratio for key, ratio in chosen.items() if key[1] <= sizes.largest_budget}
    return Measurements(weights, _sampled_comparison(chosen, sizes, folder) if chosen else {})


def judge(measured: Measurements) -> list[Check]:
    """The samples agree with what is committed."""
    checks = []
    for name, (committed, logs) in measured.weights.items():
        stderr = math.hypot(committed.log_stderr, float(logs.std(ddof=1)) / math.sqrt(logs.size))
        gap = float(logs.mean()) - math.log(committed.ratio)
        half = student_quantile(0.5 + LEVEL / 2, logs.size - 1) * stderr
        what = f"weights {name}: log of the error ratio, {logs.size} fresh tasks minus the committed table"
        checks.append(Check(what, gap, (gap - half, gap + half), "contains", 0.0))
    scores, degrees = [], 1
    for committed, logs in measured.comparison.values():
        stderr = math.hypot(committed.log_stderr, float(logs.std(ddof=1)) / math.sqrt(logs.size))
        gap = abs(float(logs.mean()) - math.log(committed.ratio)) - committed.rounding / committed.ratio
        scores.append(max(gap, 0.0) / stderr)
        degrees = logs.size - 1
    if scores:
        # All rows at once: 1 - LEVEL is shared out among them.
        allowed = student_quantile(1.0 - (1.0 - LEVEL) / (2 * len(scores)), degrees)
        what = (
            f"comparison, {len(scores)} ratios on {degrees + 1} fresh tasks: largest difference over its standard error"
        )
        checks.append(exactly(what, max(scores), "at most", allowed))
    return checks


def claim(quick: bool, folder: Path) -> Outcome:
    """Measure, judge, draw."""
    sizes = QUICK if quick else FULL
    measured = measure(sizes, folder)
    table: list[dict[str, Any]] = []
    entries = {
        **{f"weights {name}, all cells of its table": pair for name, pair in measured.weights.items()},
        **{f"{method}, {steps} steps": pair for (method, steps), pair in measured.comparison.items()},
    }
    for name, (committed, logs) in entries.items():
        ratio, stderr = geometric_mean(np.exp(logs))
        table.append(
            {
                "error ratio of": name,
                "committed": f"{committed.ratio:.3g} ± {committed.ratio * committed.log_stderr:.2g}",
                "sample": f"{ratio:.3g} ± {stderr:.2g}",
                "tasks": logs.size,
            }
        )
    caption = (
        f"Committed error ratios (dots, ± 2.6 standard errors) and the same from a sample of {sizes.n_tasks} fresh"
        " tasks (of each cell, for weights). Weights: over the best classical estimator of each cell"
        f" (icrl_agent/weights/*.md). Methods: over {REFERENCE} (docs/comparison/boyan_chain.md)."
    )
    return Outcome(judge(measured), {"ratios": (_draw(entries), caption)}, table)


def read_comparison(text: str) -> dict[tuple[str, int], Committed]:
    """Ratios to certainty equivalence by (method, steps) from a comparison's report."""
    found = {}
    for heading, rows in _tables(text):
        if heading.startswith(f"Error over that of {REFERENCE}"):
            for row in rows:
                for column, cell in row.items():
                    if column != "method":
                        found[row["method"], int(column.split()[0])] = _interval(cell)
    return {key: ratio for key, ratio in found.items() if ratio is not None and key[0] != REFERENCE}


def _interval(cell: str) -> Committed | None:
    """Read "0.96 [0.89, 1.01]", a 95 % interval."""
    numbers = re.findall(r"\d+\.?\d*", cell)
    if len(numbers) != 3:
        return None
    ratio, low, high = (float(number) for number in numbers)
    rounding = 0.5 * 10.0 ** -len(numbers[0].partition(".")[2])
    return Committed(ratio, math.log((high + rounding) / max(low - rounding, 1e-9)) / (2 * 1.96), rounding)


def _tables(text: str) -> list[tuple[str, list[dict[str, str]]]]:
    """Markdown tables: the heading above, and rows by column."""
    tables: list[tuple[str, list[dict[str, str]]]] = []
    heading = ""
    columns: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not columns:
            columns = cells
            tables.append((heading, []))
        elif set(line) - set("|-"):
            tables[-1][1].append(dict(zip(columns, cells, strict=True)))
    return tables


def _sampled_weights(path: Path, model: SoftmaxICTD, sizes: Sizes) -> tuple[Committed, FloatArray]:
    """The table's overall ratio, and log ratios of fresh tasks in its cells against its own baselines."""
    text = path.read_text(encoding="utf-8")
    cells, overall = [rows for _, rows in _tables(text)][:2]
    ratio, stderr = (float(number) for number in overall[0]["ratio"].split(" ± "))
    logs = []
    for number, row in enumerate(cells):
        family, n_states = re.fullmatch(r"(\w+), (\d+) states", row["tasks"]).groups()  # type: ignore[union-attr]
        cell = Cell(family, int(n_states), float(row["gamma"]), int(row["steps"]))  # type: ignore[arg-type]
        contexts = draw_contexts(
            cell, sizes.n_tasks, model.feature_dim, split="test", seed=CELL_SEED + number, features=FEATURES[path.stem]
        )
        logs.append(measure_cell(model, model, cell, row["baseline"], contexts).log_ratio)
    return Committed(ratio, stderr / ratio, 0.0005), np.concatenate(logs)


def _sampled_comparison(
    chosen: Mapping[tuple[str, int], Committed], sizes: Sizes, folder: Path
) -> dict[tuple[str, int], tuple[Committed, FloatArray]]:
    methods = (REFERENCE, *dict.fromkeys(method for method, _ in chosen))
    config = CompareConfig(
        "BoyanChain-v0",
        steps=tuple(sorted({steps for _, steps in chosen})),
        n_tasks=sizes.n_tasks,
        first_task=FIRST_TASK,
        methods=methods,
    )
    run_dir = folder / "comparison"
    rows = compare(config, run_dir, resume=run_dir.exists(), n_jobs=1)

    def logs(method: str, steps: int) -> FloatArray:
        return np.log([float(row["msve"]) for row in rows_of(rows, method, steps)])

    return {key: (ratio, logs(*key) - logs(REFERENCE, key[1])) for key, ratio in chosen.items()}


def _draw(entries: Mapping[str, tuple[Committed, FloatArray]]) -> Figure:
    figure, axis = new_figure(7.6, 0.8 + 0.24 * len(entries))
    names: Sequence[str] = list(entries)[::-1]
    for row, name in enumerate(names):
        committed, logs = entries[name]
        ratio, stderr = geometric_mean(np.exp(logs))
        sample = stderr / ratio
        for place, number, width, colour in (
            (row + 0.15, committed.ratio, committed.log_stderr, COLOURS[0]),
            (row - 0.15, ratio, sample, COLOURS[1]),
        ):
            ends = np.abs(np.array([[number * np.exp(-2.6 * width)], [number * np.exp(2.6 * width)]]) - number)
            label = ("committed", "sample")[colour == COLOURS[1]] if row == 0 else None
            axis.errorbar(number, place, xerr=ends, fmt="o", markersize=3.5, color=colour, capsize=2, label=label)
    axis.axvline(1.0, color="#000000", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_xlabel("error ratio")
    axis.legend(frameon=False, fontsize=8)
    return figure
