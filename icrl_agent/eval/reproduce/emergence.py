"""Emergence: TD pretraining on random tasks finds the theorem's weights by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from icrl_agent.eval.reproduce.claim import Check, Outcome, Rule, mean_interval
from icrl_agent.figures import new_figure, plot_bands
from icrl_agent.model import SoftmaxICTD, load_weights, save_weights
from icrl_agent.train.checkpoint import load_checkpoint
from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.loop import PretrainResult, pretrain
from icrl_agent.train.presets import preset
from icrl_agent.train.seeds import seed_folder, summarise
from icrl_agent.train.state import Row, TrainingState

__all__ = ["FULL", "QUICK", "Measurements", "Sizes", "claim", "judge", "measure"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Sizes:
    """How much is tested."""

    config: PretrainConfig
    n_seeds: int


#: The preset "paper" with a quarter of the prompts per update and a third of the updates; and as it is.
QUICK = Sizes(dataclasses.replace(preset("paper"), n_steps=700, tasks_per_step=16, validate_every=700), n_seeds=3)
FULL = Sizes(preset("paper"), n_seeds=6)
FEATURE_DIM = preset("paper").feature_dim


class Measurements(NamedTuple):
    """Metrics of every seed, and the first seed's weights."""

    metrics: Sequence[Sequence[Row]]
    """A list of rows of metrics.csv per seed."""
    pictures: Mapping[int, tuple[FloatArray, FloatArray]]
    """Updates done -> (A's feature block, V's free entries), at the start, in the middle, at the end."""


def measure(sizes: Sizes, folder: Path) -> Measurements:
    """Pretrain every seed in a folder of its own; a run that was interrupted goes on from its checkpoint."""
    metrics = []
    middle_file = folder / "middle.safetensors"
    for seed in range(sizes.n_seeds):
        config = dataclasses.replace(sizes.config, seed=seed)
        run_dir = seed_folder(folder, seed)
        if seed == 0 and not middle_file.exists():
            _finish(config, run_dir, config.n_steps // 2)
            state = _checkpoint(config, run_dir)
            assert state.step == config.n_steps // 2
            save_weights(state.averaged, middle_file, {})
        metrics.append(_finish(config, run_dir, config.n_steps).metrics)
    first = dataclasses.replace(sizes.config, seed=0)
    models = {
        0: TrainingState.start(first).averaged,
        first.n_steps // 2: load_weights(middle_file)[0],
        first.n_steps: load_weights(seed_folder(folder, 0))[0],
    }
    return Measurements(metrics, {step: _weights(model) for step, model in models.items()})


def judge(measured: Measurements) -> list[Check]:
    """Signs (+, +, -), attention more diagonal, A nearer to the identity, by intervals over seeds."""
    runs = measured.metrics

    def column(name: str, at: int) -> FloatArray:
        return np.array([float(run[at][name]) for run in runs])

    def check(what: str, samples: FloatArray, rule: Rule, threshold: float) -> Check:
        return Check(what, *mean_interval(samples), rule, threshold)

    middle = len(runs[0]) // 2
    beside = column("attention_off_diagonal", -1) / column("attention_diagonal", -1)
    return [
        check("KDM half-way minus at the start", column("kdm_mean", middle) - column("kdm_mean", 0), "above", 0.0),
        check("KDM at the end minus half-way", column("kdm_mean", -1) - column("kdm_mean", middle), "above", 0.0),
        check("V's reward entry at the end", column("value_reward", -1), "above", 0.0),
        check("V's target entry at the end", column("value_target", -1), "above", 0.0),
        check("V's current entry at the end", column("value_current", -1), "below", 0.0),
        check("A's mean diagonal at the end", column("attention_diagonal", -1), "above", 0.0),
        # With this a row's diagonal entry outweighs all of its others together.
        check("A's mean |off-diagonal| over its mean diagonal", beside, "below", 1 / (FEATURE_DIM - 1)),
        check(
            "distance to the theorem's weights, end minus start",
            column("theory_distance", -1) - column("theory_distance", 0),
            "below",
            0.0,
        ),
    ]


def claim(quick: bool, folder: Path) -> Outcome:
    """Measure, judge, draw."""
    sizes = QUICK if quick else FULL
    measured = measure(sizes, folder)
    summary = summarise(measured.metrics)
    weights_of = "value_reward", "value_target", "value_current", "attention_diagonal", "attention_off_diagonal"
    shown = ("kdm_mean", "kdm_min", *weights_of, "theory_distance", "td_loss")
    table = [
        {"measure": name, "start": _text(summary[0], name), "middle": _text(summary[len(summary) // 2], name),
         "end": _text(summary[-1], name)}
        for name in shown
    ]  # fmt: skip
    config = sizes.config
    caption = (
        f"TD pretraining on random Boyan chains, {sizes.n_seeds} seeds, {config.n_steps} updates of"
        f" {config.tasks_per_step * config.windows_per_task} prompts (d = {config.feature_dim}, n ="
        f" {config.context_length[0]}, {config.n_layers[0]} layers, gamma {config.gamma[0]:g}); mean and 95 % interval"
        " over seeds."
    )
    weights = "A's feature block and V's free entries (reward, target, current) of the first seed."
    figures = {"bands": (_bands(summary), caption), "weights": (_pictures(measured.pictures), weights)}
    curves = {
        name: [(int(row["step"]), float(row[f"{name}_mean"])) for row in summary]
        for name in (*shown[:5], "theory_distance")
    }
    return Outcome(judge(measured), figures, table, curves)


def _text(row: Mapping[str, Any], name: str) -> str:
    return f"{row[f'{name}_mean']:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"


def _finish(config: PretrainConfig, run_dir: Path, n_steps: int) -> PretrainResult:
    result = pretrain(config, run_dir, resume=True, stop_after=n_steps)
    if result.n_steps < n_steps:  # stopped by a signal; a resumed run goes on from the checkpoint
        raise KeyboardInterrupt
    return result


def _checkpoint(config: PretrainConfig, run_dir: Path) -> TrainingState:
    content = load_checkpoint(run_dir)
    assert content is not None
    return TrainingState.from_dict(config, content)


def _weights(model: SoftmaxICTD) -> tuple[FloatArray, FloatArray]:
    attention, entries = model.attention_block().detach(), model.value_entries().detach()
    return attention.double().numpy(), entries.double().numpy()


def _bands(summary: Sequence[Row]) -> Figure:
    panels = {
        "attention: kernel diagonality": ("kdm_mean", "kdm_min"),
        "free entries of V": ("value_reward", "value_target", "value_current"),
        "A's feature block": ("attention_diagonal", "attention_off_diagonal"),
        "distance to the theorem": ("theory_distance",),
    }
    curves = {
        title: {n: [[float(r[f"{n}_{part}"]) for r in summary] for part in ("mean", "low", "high")] for n in names}
        for title, names in panels.items()
    }
    return plot_bands([float(row["step"]) for row in summary], curves, "updates")


def _pictures(pictures: Mapping[int, tuple[FloatArray, FloatArray]]) -> Figure:
    figure, axis = new_figure(9.0, 4.4)
    figure.delaxes(axis)
    panels = figure.subplots(2, len(pictures), height_ratios=(4, 1))
    reach_A = max(float(np.abs(A).max()) for A, _ in pictures.values())
    reach_V = max(float(np.abs(V).max()) for _, V in pictures.values())
    for column, (step, (A, V)) in enumerate(sorted(pictures.items())):
        upper, lower = panels[:, column]
        image_A = upper.imshow(A, cmap="PuOr", vmin=-reach_A, vmax=reach_A)
        image_V = lower.imshow(V[None], cmap="PuOr", vmin=-reach_V, vmax=reach_V)
        upper.set_title(f"{step} updates", fontsize=10)
        upper.set_xticks([])
        upper.set_yticks([])
        lower.set_xticks(range(3), ["reward", "target", "current"], fontsize=8)
        lower.set_yticks([])
        for place, entry in enumerate(V):
            colour = "#FFFFFF" if abs(entry) > 0.5 * reach_V else "#000000"
            lower.text(place, 0, f"{entry:+.2f}", ha="center", va="center", fontsize=9, color=colour)
    panels[0, 0].set_ylabel("A")
    panels[1, 0].set_ylabel("V")
    figure.colorbar(image_A, ax=panels[0], shrink=0.8)
    figure.colorbar(image_V, ax=panels[1], shrink=0.8)
    return figure
