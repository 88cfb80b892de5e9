"""What a comparison shows: results.csv, summary.csv, figures, a markdown report and TensorBoard curves."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from icrl_agent.eval.compare import Comparison, Row, event_folder, rows_of
from icrl_agent.eval.compare_config import CompareConfig
from icrl_agent.figures import COLOURS, new_figure
from icrl_agent.train import dashboard

__all__ = ["REFERENCE", "paired_ratio", "plot_comparison", "summarise", "write_report"]

#: Errors are compared, task by task, with this method's.
REFERENCE = "certainty equivalence, mean fill"
#: Methods whose error is set against every other's.
AGENTS = ("frozen agent, theorem", "frozen agent, universal")

BOOTSTRAP_SAMPLES = 2000
#: Figures of more methods shade the interval of the first one only.
MOST_SHADED = 8


def summarise(rows: Sequence[Row], config: CompareConfig) -> list[Row]:
    """One row per method and budget: mean errors, ratio to the reference (geometric mean), 95 % bootstrap intervals.

    The bootstrap draws tasks, with a fixed seed.
    """
    summary = []
    for method in Comparison.of(config).methods:
        for n_steps in sorted(config.steps):
            mine = rows_of(rows, method, n_steps)
            if not mine:
                continue
            errors = np.array([row["normalized_msve"] for row in mine])
            low, high = _interval(errors)
            line: Row = {
                "method": method,
                "n_steps": n_steps,
                "n_tasks": len(mine),
                "normalized_msve": float(errors.mean()),
                "normalized_low": low,
                "normalized_high": high,
                "centred_msve": float(np.mean([row["centred_msve"] for row in mine])),
                "seconds": float(np.median([row["seconds"] for row in mine])),
                "gradient_updates": int(np.median([row["gradient_updates"] for row in mine])),
                "parameters_changed": max(int(row["parameters_changed"]) for row in mine),
            }
            ratio = paired_ratio(rows, method, REFERENCE, n_steps)
            if ratio is not None:
                line |= dict(zip(("ratio", "ratio_low", "ratio_high"), ratio, strict=True))
            summary.append(line)
    return summary


def paired_ratio(rows: Sequence[Row], method: str, rival: str, n_steps: int) -> tuple[float, float, float] | None:
    """Geometric mean over tasks of a method's error over a rival's, with its 95 % bootstrap interval.

    None where the two have not run on the same tasks.
    """
    mine, theirs = rows_of(rows, method, n_steps), rows_of(rows, rival, n_steps)
    if not mine or [row["task"] for row in mine] != [row["task"] for row in theirs]:
        return None
    logs = np.array([np.log(m["msve"] / max(r["msve"], 1e-300)) for m, r in zip(mine, theirs, strict=True)])
    low, high = _interval(logs)
    return float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high))


def write_report(run_dir: Path, rows: Sequence[Row], config: CompareConfig) -> list[Row]:
    """Write all files beside the cells; returns the summary."""
    summary = summarise(rows, config)
    _write_csv(run_dir / "results.csv", rows)
    _write_csv(run_dir / "summary.csv", summary)
    figures = {
        "error_against_steps": plot_comparison(summary, "n_steps", "environment steps"),
        "error_against_seconds": plot_comparison(summary, "seconds", "seconds beyond the environment's steps"),
    }
    (run_dir / "figures").mkdir(exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(run_dir / "figures" / f"{name}.png")
    (run_dir / "report.md").write_text(_markdown(rows, summary, config), encoding="utf-8")
    for method in Comparison.of(config).methods:
        folder = event_folder(run_dir, method)
        for old in folder.glob("events.*"):
            old.unlink()
        with dashboard.open_writer(folder) as writer:
            for line in summary:
                if line["method"] == method:
                    writer.add_scalar(dashboard.COMPARISON_ERROR, line["normalized_msve"], line["n_steps"])
                    writer.add_scalar(dashboard.COMPARISON_RATIO, line.get("ratio", float("nan")), line["n_steps"])
    return summary


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    draws = values[rng.integers(len(values), size=(BOOTSTRAP_SAMPLES, len(values)))]
    low, high = np.quantile(draws.mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def plot_comparison(summary: Sequence[Row], x: str, xlabel: str) -> Figure:
    """Error against a column of the summary ("n_steps" or "seconds"), one curve per method, both axes logarithmic."""
    figure, axis = new_figure(9.5, 5.0)
    methods = list(dict.fromkeys(line["method"] for line in summary))
    for number, method in enumerate(methods):
        lines = [line for line in summary if line["method"] == method and line[x] > 0]
        if not lines:
            continue
        colour = COLOURS[number % len(COLOURS)]
        style = ("-", "--", ":", "-.")[number // len(COLOURS) % 4]
        xs = [line[x] for line in lines]
        errors = [line["normalized_msve"] for line in lines]
        axis.plot(xs, errors, style, marker="o", markersize=3, color=colour, label=method, linewidth=1.6)
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


def _markdown(rows: Sequence[Row], summary: Sequence[Row], config: CompareConfig) -> str:
    methods = list(dict.fromkeys(line["method"] for line in summary))
    budgets = sorted(config.steps)
    by_cell = {(line["method"], line["n_steps"]): line for line in summary}
    noise = max((row["reference_noise"] for row in rows), default=0.0)
    policy = f" Policy: `{config.policy}`." if config.policy else ""
    kind = (
        f"The true values are not known: errors are against Monte-Carlo returns of {config.truth_steps} steps, whose"
        f" own squared standard error is at most {noise:.2g} in the unit of the normalised error."
        if noise
        else "The true values are exact."
    )
    text = [
        f"# {config.env}, {config.n_tasks} tasks, gamma {config.gamma:g}",
        "",
        f"Every method sees the same transitions.{policy} {kind} Error: squared error of all states' values, weighted"
        " by how often each state is met, over the weighted mean square of the true values (normalised) or their"
        " variance (centred). Intervals: 95 %, bootstrap over tasks.",
        "",
    ]
    text += _pivot("Normalised error, mean over tasks", methods, budgets, lambda m, k: _error(by_cell.get((m, k))))
    text += _pivot(
        f"Error over that of {REFERENCE}, geometric mean over tasks",
        methods,
        budgets,
        lambda m, k: _ratio(paired_ratio(rows, m, REFERENCE, k)),
    )
    for agent in AGENTS:
        if agent in methods:
            text += _pivot(
                f"Error of '{agent}' over that of each method (below 1: the agent is better)",
                [method for method in methods if method != agent],
                budgets,
                lambda m, k, agent=agent: _ratio(paired_ratio(rows, agent, m, k)),
            )
    text += [
        "## Centred error and cost at the largest budget",
        "",
        "Seconds: median over tasks, beyond the environment's steps.",
        "",
        "| method | centred error | seconds | gradient updates | parameters changed |",
        "|---|---|---|---|---|",
    ]
    for method in methods:
        line = by_cell[method, budgets[-1]]
        text.append(
            f"| {method} | {line['centred_msve']:.3g} | {line['seconds']:.2g} | {line['gradient_updates']}"
            f" | {line['parameters_changed']} |"
        )
    return "\n".join(text) + "\n"


def _pivot(title: str, methods: Sequence[str], budgets: Sequence[int], entry: Any) -> list[str]:
    """A markdown table of methods by budgets."""
    return [
        f"## {title}",
        "",
        "| method | " + " | ".join(f"{k} steps" for k in budgets) + " |",
        "|---" * (len(budgets) + 1) + "|",
        *("| " + " | ".join([method, *(entry(method, k) for k in budgets)]) + " |" for method in methods),
        "",
    ]


def _error(line: Row | None) -> str:
    if line is None:
        return "–"
    return f"{line['normalized_msve']:.3g} [{line['normalized_low']:.2g}, {line['normalized_high']:.2g}]"


def _ratio(ratio: tuple[float, float, float] | None) -> str:
    if ratio is None:
        return "–"
    digits = 0 if ratio[0] >= 10 else 2 if ratio[0] >= 0.1 else 4
    return "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(*ratio, d=digits)


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=names)
        writer.writeheader()
        writer.writerows(rows)
