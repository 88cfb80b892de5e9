"""What a run of control returns: how the policy improved, what it ended as, and how far it is from the best."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icrl_agent.control.controller import Controller

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ControlRecord", "ControlResult"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ControlRecord:
    """The greedy policy after some steps; None where the tables are unknown."""

    n_steps: int
    expected_return: float | None
    """J = sum_s p0(s) v(s) of the greedy policy, discounted, exact."""
    normalised_return: float | None
    """0 = uniformly random policy, 1 = optimal; None also where the uniformly random policy is optimal."""
    regret: float | None
    """sum over the steps so far of max_a q*(S_t, a) - q*(S_t, A_t), exploration included; reward units."""


@dataclass(frozen=True, eq=False)
class ControlResult:
    """A run of ``ICRLAgent.control``."""

    records: list[ControlRecord]
    """The learning curve; the last one is the end."""
    q_values: FloatArray | None
    """Values of all pairs at the end, (S, A); None for continuous observations."""
    policy: FloatArray | None
    """The greedy policy's probabilities, (S, A): 1 on the best action (the first of equals); None as above."""
    visits: NDArray[np.int64] | None
    """Transitions in the context by pair, (S, A); 0 = the value is a blend, not data. None as above."""
    optimal_q_values: FloatArray | None
    """Exact q*, (S, A), None where unknown."""
    episodes: list[tuple[int, float]]
    """Step at which each episode of the run ended, and its undiscounted return, exploration included."""
    n_steps: int
    gamma: float
    seconds: float
    """Of the controller alone, without the environment's steps and without the exact solutions."""
    controller: Controller = field(repr=False)
    """With the context of the end: acts on, predicts, saves."""
    reason: str | None = None
    """Why something is None."""

    def to_csv(self, path: str | Path) -> None:
        """Write one row per record; empty where unknown."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            names = ("n_steps", "expected_return", "normalised_return", "regret")
            writer.writerow(names)
            for record in self.records:
                values: list[Any] = [getattr(record, name) for name in names]
                writer.writerow(["" if value is None else repr(value) for value in values])

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the learning curve: normalised return where it is known, else the run's episode returns."""
        from icrl_agent.figures import new_figure

        figure, axis = new_figure()
        if self.records and self.records[-1].normalised_return is not None:
            axis.plot([r.n_steps for r in self.records], [r.normalised_return for r in self.records], marker="o")
            axis.set_ylabel("return (random 0, optimal 1)")
        else:
            axis.plot([step for step, _ in self.episodes], [value for _, value in self.episodes], ".", markersize=4)
            axis.set_ylabel("episode return, exploring")
        axis.set_xlabel("environment steps")
        if path is not None:
            figure.savefig(path)
        return figure
