"""What a comparison shows: results.csv, summary.csv, figures, a markdown report and TensorBoard curves."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from icrl_agent.eval.compare import CompareConfig, rows_of
from icrl_agent.figures import COLOURS, new_figure
from icrl_agent.train import dashboard

__all__ = ["REFERENCE", "summarise", "write_report"]

#: Errors are compared, task by task, with this method's.
REFERENCE = "certainty equivalence, mean fill"

BOOTSTRAP_SAMPLES = 2000
#: Figures of more methods shade the interval of the first one only.
MOST_SHADED = 8


def summarise(rows: Sequence[dict[str, Any]], config: CompareConfig) -> list[dict[str, Any]]:
    """One row per method and budget: mean errors, ratio to the reference (geometric mean), 95 % bootstrap intervals.

    The bootstrap draws tasks, with a fixed seed.
    """
    summary = []
    for method in config.chosen_methods:
        for n_steps in sorted(config.steps):
            mine = rows_of(rows, method, n_steps)
            if not mine:
                continue
            errors = np.array([row["normalized_msve"] for row in mine])
            low, high = _interval(errors, np.mean)
            line: dict[str, Any] = {
                "method": method,
                "n_steps": n_steps,
                "normalized_msve": float(errors.mean()),
                "normalized_low": low,
                "normalized_high": high,
                "centred_msve": float(np.mean([row["centred_msve"] for row in mine])),
                "seconds": float(np.median([row["seconds"] for row in mine])),
                "gradient_updates": int(np.median([row["gradient_updates"] for row in mine])),
                "parameters_changed": max(int(row["parameters_changed"]) for row in mine),
            }
            rival = rows_of(rows, REFERENCE, n_steps)
            if len(rival) == len(mine):
                logs = np.log([m["msve"] / max(r["msve"], 1e-300) for m, r in zip(mine, rival, strict=True)])
                low, high = _interval(logs, np.mean)
                line |= {"ratio": float(np.exp(logs.mean())), "ratio_low": np.exp(low), "ratio_high": np.exp(high)}
            summary.append(line)
    return summary


def write_report(run_dir: Path, rows: Sequence[dict[str, Any]], config: CompareConfig) -> list[dict[str, Any]]:
    """Write all files beside the cells; returns the summary."""
    summary = summarise(rows, config)
    _write_csv(run_dir / "results.csv", rows)
    _write_csv(run_dir / "summary.csv", summary)
    figures = {
        "error_against_steps": _figure(summary, "n_steps", "environment steps"),
        "error_against_seconds": _figure(summary, "seconds", "seconds beyond the environment's steps"),
    }
    (run_dir / "figures").mkdir(exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(run_dir / "figures" / f"{name}.png")
    (run_dir / "report.md").write_text(_markdown(summary, config), encoding="utf-8")
    for method in config.chosen_methods:
        folder = run_dir / dashboard.TENSORBOARD_FOLDER / "".join(c if c.isalnum() else "_" for c in method)
        for old in folder.glob("events.*"):
            old.unlink()
        with dashboard.open_writer(folder) as writer:
            for line in summary:
                if line["method"] == method:
                    writer.add_scalar(dashboard.COMPARISON_ERROR, line["normalized_msve"], line["n_steps"])
                    writer.add_scalar(dashboard.COMPARISON_RATIO, line.get("ratio", float("nan")), line["n_steps"])
    return summary


def _interval(values: NDArray[np.float64], statistic: Any) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    draws = values[rng.integers(len(values), size=(BOOTSTRAP_SAMPLES, len(values)))]
    low, high = np.quantile(statistic(draws, axis=1), [0.025, 0.975])
    return float(low), float(high)


def _figure(summary: Sequence[dict[str, Any]], x: str, xlabel: str) -> Figure:
    figure, axis = new_figure(9.5, 5.0)
    methods = list(dict.fromkeys(line["method"] for line in summary))
    for number, method in enumerate(methods):
        lines = [line for line in summary if line["method"] == method and line[x] > 0]
        if not lines:
            continue
        colour = COLOURS[number % len(COLOURS)]
        style = ("-", "--", ":")[number // len(COLOURS) % 3]
        xs = [line[x] for line in lines]
        axis.plot(xs, [line["normalized_msve"] for line in lines], style, color=colour, label=method, linewidth=1.6)
        if number and len(methods) > MOST_SHADED:
            continue  # so many bands would hide each other: the first method's alone
        axis.fill_between(
            xs,
            [line["normalized_low"] for line in lines],
            [line["normalized_high"] for line in lines],
            color=colour,
            alpha=0.12,
            linewidth=0,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(xlabel)
    axis.set_ylabel("normalised squared error (mean, 95 %)")
    figure.legend(loc="outside right upper", frameon=False, fontsize=7)
    return figure


def _markdown(summary: Sequence[dict[str, Any]], config: CompareConfig) -> str:
    text = [
        f"# {config.env}, {config.n_tasks} tasks, gamma {config.gamma:g}",
        "",
        "Every method sees the same transitions. Error: squared error of all states' values, weighted by the stationary"
        " distribution, over the mean square of the true values (normalised) or their variance (centred); means over"
        f" tasks with 95 % bootstrap intervals. Ratio: geometric mean over tasks of the error over that of {REFERENCE}."
        " Seconds: median, beyond the environment's steps.",
        "",
        "| method | steps | normalised | centred | ratio | seconds | updates | parameters changed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in summary:
        ratio = f"{line['ratio']:.2f} [{line['ratio_low']:.2f}, {line['ratio_high']:.2f}]" if "ratio" in line else "–"
        text.append(
            f"| {line['method']} | {line['n_steps']} | {line['normalized_msve']:.4g} [{line['normalized_low']:.3g},"
            f" {line['normalized_high']:.3g}] | {line['centred_msve']:.3g} | {ratio} | {line['seconds']:.2g}"
            f" | {line['gradient_updates']} | {line['parameters_changed']} |"
        )
    return "\n".join(text) + "\n"


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=names)
        writer.writeheader()
        writer.writerows(rows)
