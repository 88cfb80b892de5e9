"""Theorem 3: the norm of the expected update is smallest at the theorem's weights, and those are not the only ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from icrl_agent.algorithms.expected_update import mean_and_stderr, norm_of_expected_update
from icrl_agent.eval.reproduce.chains import as_context, deep_limit, generator, walk_complete
from icrl_agent.eval.reproduce.claim import Check, Outcome, exactly, mean_interval
from icrl_agent.figures import COLOURS, new_figure
from icrl_agent.model.merged import affine_layer
from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.expected_update import Windows, draw_windows, semi_gradient_updates, td_updates
from icrl_agent.train.sampler import sample_batch
from icrl_agent.train.state import TrainingState
from icrl_agent.train.tasks import TaskBatch, draw_features, draw_tasks, solve_tasks

__all__ = ["FULL", "QUICK", "Measurements", "Sizes", "Weights", "claim", "judge", "measure", "theorem_weights"]

FloatArray = NDArray[np.float64]

GAMMA, SHARPNESS, N_STATES, FEATURE_DIM = 0.9, 8.0, 10, 16
THEOREM, RANDOM, EARLY = "theorem's weights", "untrained (random)", "early in training"
#: The entries of V that are moved against the current one, and by how much.
MOVES = {"target": (0.5, 0.75, 0.9, 1.1, 1.5), "reward": (0.5, 0.75, 0.9, 1.1, 1.5)}
FORMS = ("first", "second")
#: In the figure the axis is linear up to the first, and ends at the second.
SMALL, LARGE = 3e-4, 1.0
#: Contexts worked on at once.
CHUNK = 64


@dataclass(frozen=True)
class Sizes:
    """How much is tested."""

    n_tasks: int
    n_windows: int
    second_form_moves: bool
    """Whether weights with moved entries are compared in the second form too, whose noise asks for many tasks."""
    n_updates: int = 20
    """Of pretraining, "early": one in a hundred of the preset's."""
    n_trajectories: int = 8
    """Independent ones per task."""
    lengths: tuple[int, ...] = (8, 32, 128, 512)
    depths: tuple[int, ...] = (1, 4, 16, 64)
    n_limits: int = 64


QUICK, FULL = Sizes(128, 32, second_form_moves=False), Sizes(512, 64, second_form_moves=True)


class Weights(NamedTuple):
    """A's feature block (d, d) and V's free entries (3,)."""

    attention: Tensor
    entries: Tensor


class Measurements(NamedTuple):
    """NEU per task, (n_tasks,)."""

    grid: Mapping[tuple[int, int], FloatArray]
    """First form of the theorem's weights by (length, depth)."""
    compared: Mapping[tuple[str, str], FloatArray]
    """By (weights, form), all at the largest length and depth, on the same prompts."""
    rescaled: Mapping[str, tuple[float, float]]
    """Largest gap of the limits to those of the theorem's weights, relative to what rounding may do; and the gap."""


def theorem_weights(sharpness: float = SHARPNESS, entries: Sequence[float] = (1.0, 1.0, -1.0)) -> Weights:
    """A = sharpness I, and V's entries."""
    eye = torch.eye(FEATURE_DIM, dtype=torch.float64)
    return Weights(sharpness * eye, torch.tensor(entries, dtype=torch.float64))


def moved_weights() -> dict[str, Weights]:
    """The theorem's weights with one entry of V moved against the others."""
    weights = {}
    for name, factors in MOVES.items():
        for factor in factors:
            entries = (factor, 1.0, -1.0) if name == "reward" else (1.0, factor, -1.0)
            weights[f"{name} entry × {factor:g}"] = theorem_weights(entries=entries)
    return weights


def measure(sizes: Sizes, theorem: Weights | None = None, seed: int = 0) -> Measurements:
    """Estimate every NEU; ``theorem`` are the weights that are claimed to be best."""
    best = theorem or theorem_weights()
    config = PretrainConfig(seed=seed, tasks_per_step=32)
    everybody = {
        THEOREM: best,
        RANDOM: _pretrained(config, 0),
        EARLY: _pretrained(config, sizes.n_updates),
        **moved_weights(),
    }
    grid = {}
    for length in sizes.lengths:
        for depth in sizes.depths:
            (grid[length, depth],) = _per_task(sizes, length, seed, [(best, td_updates, depth)])
    jobs: dict[tuple[str, str], _Job] = {}
    for name, weights in everybody.items():
        depth = config.n_layers[1] if name == EARLY else sizes.depths[-1]
        jobs[name, FORMS[0]] = weights, td_updates, depth
        if sizes.second_form_moves or name in (THEOREM, RANDOM, EARLY):
            jobs[name, FORMS[1]] = weights, semi_gradient_updates, depth
    found = _per_task(sizes, sizes.lengths[-1], seed, list(jobs.values()))
    return Measurements(grid, dict(zip(jobs, found, strict=True)), _rescaled(sizes, best, seed))


def judge(measured: Measurements) -> list[Check]:
    """Falling in n and L to about 0, below all others, the same limit after rescaling."""
    grid = measured.grid
    lengths, depths = (sorted({key[axis] for key in grid}) for axis in (0, 1))
    last = grid[lengths[-1], depths[-1]]
    shorter, shallower = grid[lengths[0], depths[-1]], grid[lengths[-1], depths[0]]
    checks = [
        _difference(f"NEU at n = {lengths[0]} minus at n = {lengths[-1]}, {depths[-1]} layers", shorter, last),
        _difference(f"NEU at 1 layer minus at {depths[-1]} layers, n = {lengths[-1]}", shallower, last),
    ]
    for form in FORMS:
        best = measured.compared[THEOREM, form]
        mean, interval = mean_interval(best)
        checks.append(Check(f"NEU of the theorem's weights, {form} form", mean, interval, "contains", 0.0))
        checks += [
            _difference(f"NEU above the theorem's, {form} form: {name}", other, best)
            for (name, its_form), other in measured.compared.items()
            if its_form == form and name != THEOREM
        ]
    checks += [
        exactly(f"{name}: gap of the limits over what rounding may do", ratio, "at most", 1.0)
        for name, (ratio, _) in measured.rescaled.items()
    ]
    return checks


def claim(quick: bool) -> Outcome:
    """Measure, judge, draw."""
    sizes = QUICK if quick else FULL
    measured = measure(sizes)
    names = list(dict.fromkeys(name for name, _ in measured.compared))
    table = [
        {"weights": name, **{f"NEU, {form} form": _with_stderr(measured.compared.get((name, form))) for form in FORMS}}
        for name in names
    ]
    caption = (
        f"NEU (first form) of the theorem's weights, sharpness {SHARPNESS:g}, on {sizes.n_tasks} random Boyan chains,"
        " unbiased estimates (of 0 they may be negative) with 99 % intervals over tasks. Left: it falls with context"
        f" length and depth. Right: at n = {sizes.lengths[-1]} and {sizes.depths[-1]} layers, against other weights on"
        f" the same prompts (those early in training, after {sizes.n_updates} updates, at the depth they are trained"
        " at)."
    )
    curves = {
        f"NEU at {depth} layers": [(n, float(measured.grid[n, depth].mean())) for n in sizes.lengths]
        for depth in sizes.depths
    }
    return Outcome(judge(measured), {"neu": (_draw(measured), caption)}, table, curves)


def _difference(what: str, larger: FloatArray, smaller: FloatArray) -> Check:
    mean, interval = mean_interval(larger - smaller)
    return Check(what, mean, interval, "above", 0.0)


def _with_stderr(per_task: FloatArray | None) -> str:
    if per_task is None:
        return "–"
    mean, stderr = mean_and_stderr(per_task)
    return f"{mean:.3g} ± {stderr:.2g}"


def _pretrained(config: PretrainConfig, n_updates: int) -> Weights:
    state = TrainingState.start(config)
    while state.step < n_updates:
        state.update(sample_batch(config, "train", config.seed, state.step))
    model = state.model.requires_grad_(False).double()
    return Weights(model.attention_block(), model.value_entries())


_Job = tuple[Weights, Callable[[Tensor, Tensor, Windows, int], FloatArray], int]


def _per_task(sizes: Sizes, length: int, seed: int, jobs: Sequence[_Job]) -> list[FloatArray]:
    """NEU per task, (n_tasks,), for every (weights, form, depth), on the same prompts."""
    rng = generator(7, seed, length)
    n_samples = sizes.n_trajectories
    found: list[list[FloatArray]] = [[] for _ in jobs]
    for start in range(0, sizes.n_tasks, CHUNK):
        n_tasks = min(CHUNK, sizes.n_tasks - start)
        tasks = draw_tasks(rng, "boyan", np.full(n_tasks, N_STATES))
        _, mu = solve_tasks(tasks, np.full(n_tasks, GAMMA))
        x = draw_features(rng, "random_unit", n_tasks, N_STATES, FEATURE_DIM)
        repeated = TaskBatch(
            np.repeat(tasks.transition, n_samples, axis=0),
            np.repeat(tasks.reward, n_samples, axis=0),
            np.repeat(mu, n_samples, axis=0),
            np.repeat(tasks.n_states, n_samples),
        )
        windows = draw_windows(rng, repeated, x.repeat(n_samples, axis=0), length, sizes.n_windows, GAMMA)
        for results, (weights, update, depth) in zip(found, jobs, strict=True):
            samples = update(*weights, windows, depth).reshape(n_tasks, n_samples, -1)
            results.append(norm_of_expected_update(samples))
    return [np.concatenate(results) for results in found]


def _rescaled(sizes: Sizes, best: Weights, seed: int) -> dict[str, tuple[float, float]]:
    """Limits of infinite depth with A or all of V rescaled, against those of ``best``."""
    rng = generator(7, seed, 1)
    chains, successors = walk_complete(rng, sizes.n_limits, N_STATES, 500)
    x = draw_features(rng, "random_unit", sizes.n_limits, N_STATES, FEATURE_DIM)
    context = as_context(x, successors, chains.reward)
    gamma = torch.full((sizes.n_limits,), GAMMA, dtype=torch.float64)

    @np.errstate(invalid="ignore")  # layers that diverge have no limit: not finite
    def limit(weights: Weights) -> tuple[FloatArray, FloatArray]:
        """Values, and how far they may be from the exact limit: ||(I - T)^-1|| times their residual, (B,)."""
        T, b = affine_layer(context, *weights, gamma)
        values = deep_limit(T, b)
        matrix, offset = T.numpy(), b.numpy()
        following = (matrix @ values[..., None])[..., 0] + offset
        rounding = 1e-15 * N_STATES * ((np.abs(matrix) @ np.abs(values)[..., None])[..., 0] + np.abs(offset))
        inverse = np.abs(np.linalg.inv(np.eye(N_STATES) - matrix)).sum(axis=2).max(axis=1)
        return values, inverse * (np.abs(following - values) + rounding).max(axis=1)

    values, allowed = limit(best)
    rescaled = {
        "A × 0.75": Weights(0.75 * best.attention, best.entries),
        "A × 2": Weights(2.0 * best.attention, best.entries),
        "V × 0.5": Weights(best.attention, 0.5 * best.entries),
        "V × 1.1": Weights(best.attention, 1.1 * best.entries),
    }
    found = {}
    for name, weights in rescaled.items():
        others, also_allowed = limit(weights)
        with np.errstate(invalid="ignore"):
            gap = np.abs(others - values).max(axis=1)
        found[name] = float((gap / (allowed + also_allowed)).max()), float(gap.max())
    return found


def _draw(measured: Measurements) -> Figure:
    figure, axis = new_figure(10.0, 4.2)
    figure.delaxes(axis)
    left, right = figure.subplots(1, 2)
    for panel in (left, right):
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(visible=True, color="#E4E4E4", linewidth=0.8)
        panel.set_axisbelow(True)
    lengths, depths = (sorted({key[axis] for key in measured.grid}) for axis in (0, 1))
    for number, depth in enumerate(depths):
        points = [mean_interval(measured.grid[n, depth]) for n in lengths]
        means = np.array([mean for mean, _ in points])
        bars = np.abs(np.array([interval for _, interval in points]).T - means)
        left.errorbar(lengths, means, bars, fmt="o-", color=COLOURS[number], capsize=3, label=str(depth))
    left.set_xscale("log")
    left.set_yscale("symlog", linthresh=SMALL)
    left.set_ylim(-SMALL, 0.1)
    left.set_yticks([0.0, 1e-3, 1e-2, 1e-1])
    left.set_xlabel("context length n")
    left.set_ylabel("NEU")
    left.legend(frameon=False, fontsize=8, title="layers", title_fontsize=8)
    names = [name for name, form in measured.compared if form == "first"][::-1]
    for row, name in enumerate(names):
        mean, interval = mean_interval(measured.compared[name, "first"])
        colour = COLOURS[0] if name == THEOREM else COLOURS[1]
        if mean > LARGE:
            right.annotate(f"diverges: {mean:.0e} →", (LARGE, row), ha="right", va="center", fontsize=8, color=colour)
        else:
            right.errorbar(mean, row, xerr=np.abs(np.array([interval]).T - mean), fmt="o", color=colour, capsize=3)
    right.axvline(0.0, color="#000000", linewidth=0.8)
    right.set_yticks(range(len(names)), names, fontsize=8)
    right.set_xscale("symlog", linthresh=SMALL)
    right.set_xlim(-SMALL, LARGE)
    right.set_xticks([0.0, 1e-3, 1e-2, 1e-1, 1.0])
    right.set_xlabel("NEU")
    return figure
