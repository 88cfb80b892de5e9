"""How good weights are on tasks never seen: a table over cells, against the best classical estimator of each cell.

A cell is a task family with a number of states, a discount factor and a context length. Its baseline is the classical
estimator (certainty equivalence with zero or mean fill, one-hot LSTD with the best ridge) that has the lowest geometric
mean error on OTHER tasks of the cell; the theorem's weights get their best single sharpness on those other tasks, at
the same depth. Everything is then compared on fresh test tasks, paired.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icrl_agent.algorithms.batched import batched_certainty_equivalence, batched_lstd
from icrl_agent.metrics import geometric_mean
from icrl_agent.model import SoftmaxICTD
from icrl_agent.train.sampler import Split
from icrl_agent.train.tasks import FeatureKind
from icrl_agent.train.validation import Cell, Contexts, draw_contexts, transformer_values, weighted_errors

__all__ = ["CELLS", "LONG_CELLS", "CellResult", "WeightsTable", "measure_cell", "weights_table"]

FloatArray = NDArray[np.float64]

_KINDS = (("boyan", 5), ("boyan", 10), ("boyan", 20), ("garnet", 10))
#: The cells of the table.
CELLS = tuple(
    Cell(family, n_states, gamma, context_length)  # type: ignore[arg-type]
    for context_length in (8, 16, 32, 64, 128, 256)
    for gamma in (0.5, 0.9)
    for family, n_states in _KINDS
)
#: Longer contexts and horizons, evaluated at LONG_DEPTH layers.
LONG_CELLS = tuple(Cell(family, n_states, 0.95, 1024) for family, n_states in _KINDS)  # type: ignore[arg-type]
LONG_DEPTH = 150
#: The cells for features that know the order of the states.
ORDER_CELLS = tuple(
    Cell("boyan", n_states, gamma, context_length)
    for context_length in (16, 32, 64, 128, 256)
    for gamma in (0.5, 0.9)
    for n_states in (10, 20, 30)
)

RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SHARPNESSES = (1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0)


@dataclass(frozen=True)
class CellResult:
    """One cell on its test tasks."""

    cell: Cell
    baseline: str
    """The cell's best classical estimator on other tasks."""
    log_ratio: FloatArray
    """log(error / baseline's) per task."""
    theory_log_ratio: FloatArray
    """The same for the theorem's weights."""
    error: float
    """Mean error over the mean square of v."""
    wrong_task: float
    """Geometric mean of (error with another task's context / error)."""


@dataclass(frozen=True)
class WeightsTable:
    """All cells of some weights."""

    cells: Sequence[CellResult]
    long_cells: Sequence[CellResult]
    n_layers: int
    sharpness: float
    """Best single sharpness of the theorem's weights on other tasks, step size 1, the same depth."""
    n_tasks: int

    def overall(self, context_lengths: Sequence[int] | None = None, *, theory: bool = False) -> tuple[float, float]:
        """Geometric mean over the tasks of all cells (of these context lengths), and its standard error."""
        chosen = [c for c in self.cells if context_lengths is None or c.cell.context_length in context_lengths]
        logs = [c.theory_log_ratio if theory else c.log_ratio for c in chosen]
        return geometric_mean(np.exp(np.concatenate(logs)))

    def to_markdown(self) -> str:
        """The table as markdown, with standard errors."""
        lines = [
            f"{self.n_tasks} unseen tasks per cell, {self.n_layers} layers. Ratio: geometric mean over tasks of"
            " (squared error of all states' values, weighted by the stationary distribution / the baseline's on the"
            " same transitions), ± standard error. Baseline: the classical estimator with the lowest geometric mean on"
            f" {self.n_tasks} other tasks of the cell. Theorem: its weights at sharpness {self.sharpness:g}, the best"
            " single one on those other tasks, and the same depth. Normalised error: mean error over the mean square"
            " of v. Wrong task: factor by which the error grows with another task's context.",
            "",
            "| steps | gamma | tasks | baseline | ratio | theorem's ratio | normalised error | wrong task |",
            "|---|---|---|---|---|---|---|---|",
        ]
        lines += [_row(result) for result in self.cells]
        lines += ["", "| cells | ratio | theorem's ratio |", "|---|---|---|"]
        lengths = sorted({result.cell.context_length for result in self.cells})
        groups: list[tuple[str, list[int] | None]] = [("all", None)]
        if 8 in lengths:
            groups.append(("8 and 16 steps", [8, 16]))
        groups += [(f"{length} steps", [length]) for length in lengths]
        for title, chosen in groups:
            mine, theirs = self.overall(chosen), self.overall(chosen, theory=True)
            lines.append(f"| {title} | {mine[0]:.3f} ± {mine[1]:.3f} | {theirs[0]:.3f} ± {theirs[1]:.3f} |")
        if self.long_cells:
            lines += ["", f"At {LONG_DEPTH} layers:", "", *lines[2:4], *(_row(result) for result in self.long_cells)]
        return "\n".join(lines) + "\n"


def weights_table(
    model: SoftmaxICTD, n_tasks: int = 512, seed: int = 0, features: FeatureKind = "random_unit"
) -> WeightsTable:
    """Measure weights in every cell (of ordered states for Fourier features); a pure function of the arguments."""
    measured, long_measured = (ORDER_CELLS, ()) if features == "random_fourier" else (CELLS, LONG_CELLS)
    numbers = {cell: number for number, cell in enumerate([*measured, *long_measured])}

    def draw(cell: Cell, split: Split) -> Contexts:
        # A seed of its own per cell, so that cells share no task.
        own_seed = 1000 * seed + numbers[cell]
        return draw_contexts(cell, n_tasks, model.feature_dim, split=split, seed=own_seed, features=features)

    others = {cell: draw(cell, "validation") for cell in measured}
    baselines = {cell: _best_classical(contexts) for cell, contexts in others.items()}
    theories = [SoftmaxICTD.from_theory(model.feature_dim, model.n_layers, sharpness) for sharpness in SHARPNESSES]
    scores = [
        np.mean([_mean_log(weighted_errors(transformer_values(theory, c), c)) for c in others.values()])
        for theory in theories
    ]
    best = int(np.argmin(scores))
    cells = [measure_cell(model, theories[best], cell, baselines[cell], draw(cell, "test")) for cell in measured]
    long_cells = [
        measure_cell(
            model, theories[best], cell, _best_classical(draw(cell, "validation")), draw(cell, "test"), LONG_DEPTH
        )
        for cell in long_measured
    ]
    return WeightsTable(cells, long_cells, model.n_layers, SHARPNESSES[best], n_tasks)


def _classical(contexts: Contexts, name: str) -> FloatArray:
    sums = contexts.counts, contexts.reward_sum, contexts.successors, contexts.gamma
    if name.startswith("LSTD"):
        return batched_lstd(*sums, ridge=float(name.split()[-1]))
    return batched_certainty_equivalence(*sums, never_left="zero" if name == "CE zero" else "mean")


def _best_classical(contexts: Contexts) -> str:
    names = ["CE zero", "CE mean", *(f"LSTD {ridge:g}" for ridge in RIDGES)]
    return min(names, key=lambda name: _mean_log(weighted_errors(_classical(contexts, name), contexts)))


def measure_cell(
    model: SoftmaxICTD, theory: SoftmaxICTD, cell: Cell, baseline: str, test: Contexts, n_layers: int | None = None
) -> CellResult:
    """Measure two models on one cell's test contexts, against a baseline by its name in the table."""
    values = transformer_values(model, test, n_layers)
    errors = weighted_errors(values, test)
    rival = weighted_errors(_classical(test, baseline), test)
    theirs = weighted_errors(transformer_values(theory, test, n_layers), test)
    wrong = weighted_errors(np.roll(values, 1, axis=0), test)
    scale = weighted_errors(np.zeros_like(values), test)
    return CellResult(
        cell=cell,
        baseline=baseline,
        log_ratio=np.log(errors / rival),
        theory_log_ratio=np.log(theirs / rival),
        error=float(errors.mean() / scale.mean()),
        wrong_task=geometric_mean(wrong / errors)[0],
    )


def _mean_log(errors: FloatArray) -> float:
    return float(np.log(errors).mean())


def _row(result: CellResult) -> str:
    cell = dataclasses.asdict(result.cell)
    mine, theirs = geometric_mean(np.exp(result.log_ratio)), geometric_mean(np.exp(result.theory_log_ratio))
    tasks = f"{cell['family']}, {cell['n_states']} states"
    return (
        f"| {cell['context_length']} | {cell['gamma']:g} | {tasks} | {result.baseline} | {mine[0]:.3f} ± {mine[1]:.3f}"
        f" | {theirs[0]:.3f} ± {theirs[1]:.3f} | {result.error:.3f} | {result.wrong_task:.0f} |"
    )
