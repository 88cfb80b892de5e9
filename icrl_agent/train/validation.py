"""Held-out contexts in cells of one kind each, and how every estimator does on them.

A cell fixes the family, the number of states, the discount factor and the context length; its contexts are fresh
tasks with one trajectory each. Errors are squared errors of all states' values, weighted by the stationary
distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from icrl_agent.algorithms.batched import batched_certainty_equivalence, batched_lstd, batched_tabular_td
from icrl_agent.metrics import geometric_mean
from icrl_agent.model import MergedContext, SoftmaxICTD, merged_values
from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.dashboard import EMPTY_CONTEXT, OTHER_TASK
from icrl_agent.train.sampler import Split, Trajectories, draw_changes, roll_out, sample_generator, window_sums
from icrl_agent.train.state import Row
from icrl_agent.train.tasks import FamilyName, FeatureKind, draw_features, draw_tasks, represent, solve_tasks

__all__ = [
    "Cell",
    "Contexts",
    "classical_values",
    "draw_contexts",
    "transformer_values",
    "validate",
    "validation_lengths",
    "weighted_errors",
]

FloatArray = NDArray[np.float64]

#: The classical estimators by name.
CLASSICAL = ("ce_zero", "ce_mean", "lstd", "tabular_td")
#: Tasks per family and context length in a run's validation, and the ridge of its LSTD.
VALIDATION_TASKS, VALIDATION_RIDGE = 128, 0.03

#: Step size of tabular TD at its k-th transition, tuned on chains that no cell uses.
TD_STEP_NUMERATOR, TD_STEP_OFFSET = 30.0, 29.0


@dataclass(frozen=True)
class Cell:
    """One kind of context."""

    family: FamilyName
    n_states: int
    gamma: float
    context_length: int
    n_actions: int = 1
    """Actions of the family "pairs"; 1 for the others."""


class Contexts(NamedTuple):
    """B contexts of one cell."""

    features: FloatArray
    """(B, S, d)."""
    counts: FloatArray
    """N, (B, S)."""
    reward_sum: FloatArray
    """R, (B, S)."""
    successors: FloatArray
    """C, (B, S, S)."""
    trajectories: Trajectories
    """(B, n + 1) states and (B, n) rewards."""
    gamma: FloatArray
    """(B,)."""
    true_values: FloatArray
    """(B, S)."""
    weights: FloatArray
    """Stationary distributions, (B, S)."""


def draw_contexts(
    cell: Cell,
    n_tasks: int,
    feature_dim: int,
    *,
    split: Split = "validation",
    seed: int = 0,
    features: FeatureKind = "random_unit",
) -> Contexts:
    """Draw a cell's contexts; a pure function of the arguments."""
    rng = sample_generator(split, seed, 0)
    gamma = np.full(n_tasks, cell.gamma)
    tasks = draw_tasks(rng, cell.family, np.full(n_tasks, cell.n_states), cell.n_actions)
    x = draw_features(rng, features, n_tasks, cell.n_states, feature_dim, cell.n_actions)
    if cell.family == "representable":
        tasks = represent(rng, tasks, x, gamma)
    changes = draw_changes(rng, tasks, cell.context_length)
    trajectories = roll_out(rng, tasks, cell.context_length, np.zeros(n_tasks), changes)
    values, weights = solve_tasks(tasks, gamma)
    counts, reward_sum, successors = window_sums(trajectories, cell.context_length, 1, tasks.reward.shape[1])
    return Contexts(x, counts[:, 0], reward_sum[:, 0], successors[:, 0], trajectories, gamma, values, weights)


def transformer_values(model: SoftmaxICTD, contexts: Contexts, n_layers: int | None = None) -> FloatArray:
    """The transformer's values of all states after the last layer, float64 (B, S)."""
    merged = MergedContext(
        features=torch.from_numpy(contexts.features),
        counts=torch.from_numpy(contexts.counts),
        reward_sum=torch.from_numpy(contexts.reward_sum),
        successors=torch.from_numpy(contexts.successors),
    )
    with torch.no_grad():
        return np.asarray(merged_values(model, merged, torch.from_numpy(contexts.gamma), n_layers)[-1])


def classical_values(contexts: Contexts, ridge: float) -> dict[str, FloatArray]:
    """Values of the classical estimators on the same contexts, each (B, S)."""
    sums = contexts.counts, contexts.reward_sum, contexts.successors, contexts.gamma
    states, rewards = contexts.trajectories
    n_states = contexts.counts.shape[1]
    return {
        "ce_zero": batched_certainty_equivalence(*sums, never_left="zero"),
        "ce_mean": batched_certainty_equivalence(*sums, never_left="mean"),
        "lstd": batched_lstd(*sums, ridge=ridge),
        "tabular_td": batched_tabular_td(states, rewards, contexts.gamma, n_states, _td_step_size),
    }


def weighted_errors(values: FloatArray, contexts: Contexts) -> FloatArray:
    """Squared error per context, weighted by the stationary distribution, (B,)."""
    return np.asarray((contexts.weights * (values - contexts.true_values) ** 2).sum(axis=1))


def validation_lengths(config: PretrainConfig) -> tuple[int, ...]:
    """Context lengths of a run's validation: up to four, evenly spaced in the logarithm over its range."""
    low, high = config.context_length
    return tuple(sorted({round(n) for n in np.geomspace(low, high, 4)}))


def validate(config: PretrainConfig, model: SoftmaxICTD, step: int) -> list[Row]:
    """Error on held-out tasks of the run's own kind (largest tasks, largest gamma), a row per context length.

    Columns: step, context_length, error (mean over tasks), ratio (geometric mean over tasks of the error over that of
    the classical estimator which is best here; NaN where an error is exactly 0 or not finite), best (its name), the
    errors of the classical estimators, of the theorem's weights (sharpness 8, same depth) and of two controls: an empty
    context, and another task's context.
    """
    theory = SoftmaxICTD.from_theory(config.feature_dim, model.n_layers, sharpness=8.0)
    rows: list[Row] = []
    for context_length in validation_lengths(config):
        cells = [
            Cell(family, config.n_states[1], config.gamma[1], context_length, config.actions_of(family)[1])
            for family in config.families
        ]
        errors: dict[str, list[FloatArray]] = {}
        for cell in cells:
            contexts = draw_contexts(
                cell, VALIDATION_TASKS, config.feature_dim, seed=config.seed, features=config.features
            )
            values = transformer_values(model, contexts)
            everybody = {
                "error": values,
                **classical_values(contexts, VALIDATION_RIDGE),
                "theory": transformer_values(theory, contexts),
                EMPTY_CONTEXT: np.zeros_like(values),
                OTHER_TASK: np.roll(values, 1, axis=0),
            }
            for name, estimate in everybody.items():
                errors.setdefault(name, []).append(weighted_errors(estimate, contexts))
        joined = {name: np.concatenate(parts) for name, parts in errors.items()}
        with np.errstate(divide="ignore"):  # an exact estimator's error is 0
            best = min(CLASSICAL, key=lambda name: float(np.log(joined[name]).mean()))
        row: Row = {"step": step, "context_length": context_length, "error": float(joined["error"].mean())}
        both = np.stack([joined["error"], joined[best]])
        defined = bool(((both > 0) & np.isfinite(both)).all())
        row["ratio"] = geometric_mean(both[0] / both[1])[0] if defined else math.nan
        row["best"] = best
        row.update({name: float(error.mean()) for name, error in joined.items() if name != "error"})
        rows.append(row)
    return rows


def _td_step_size(k: int) -> float:
    return TD_STEP_NUMERATOR / (TD_STEP_OFFSET + k + 1)
