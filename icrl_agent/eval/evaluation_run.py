"""One evaluation with its honest company: rivals on the same transitions, controls, curves, a run folder."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from icrl_agent.agent import ICRLAgent
from icrl_agent.algorithms.classical import certainty_equivalence, lstd
from icrl_agent.depth import Depth
from icrl_agent.envs.solve import NoUniqueSolution, stationary_distribution
from icrl_agent.envs.tabular_env import TASK_SEED, TabularEnv
from icrl_agent.eval.run_folder import new_run_folder, write_json
from icrl_agent.features import FeatureMap
from icrl_agent.figures import plot_error_curves
from icrl_agent.metrics import centred_msve, normalized_msve
from icrl_agent.results import Evaluation
from icrl_agent.train import dashboard
from icrl_agent.transitions import Transitions
from icrl_agent.truth import induced_process

__all__ = ["AGENT", "EvaluationRun", "MethodError", "run_evaluation"]

FloatArray = NDArray[np.float64]

AGENT = "frozen agent"
CE_MEAN = "certainty equivalence, mean fill"
CE_ZERO = "certainty equivalence, zero fill"
LSTD = "LSTD, one-hot"
EMPTY_CONTEXT = "control: empty context"
OTHER_TASK = "control: context of another task"

#: Context lengths of the error curve below the full length.
CURVE_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class MethodError:
    """Error of one method at one context length."""

    n_steps: int
    method: str
    normalized_msve: float
    centred_msve: float


@dataclass(frozen=True, eq=False)
class EvaluationRun:
    """An evaluation, the errors of all methods on the same transitions, and what was asked for."""

    result: Evaluation
    errors: list[MethodError]
    """Every method at the full length; agent and rivals at shorter ones too. Empty where the truth is unknown."""
    config: Mapping[str, Any]

    def at_full_length(self) -> list[MethodError]:
        """Errors on all transitions, in the order of the table."""
        return [error for error in self.errors if error.n_steps == self.result.n_steps]

    def write(self, run_dir: Path) -> None:
        """Write config.json, values.csv, metrics.csv, figures/ and tensorboard/ into a new folder.

        Raises:
            ValueError: if the folder is in use.
        """
        with new_run_folder(run_dir) as folder:
            write_json(folder / "config.json", self.config)
            summary = {name: value for name, value in self.result.to_dict().items() if not isinstance(value, list)}
            write_json(folder / "summary.json", summary)
            self.result.to_csv(folder / "values.csv")
            with open(folder / "metrics.csv", "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["n_steps", "method", "normalized_msve", "centred_msve"])
                writer.writerows([e.n_steps, e.method, e.normalized_msve, e.centred_msve] for e in self.errors)
            (folder / "figures").mkdir()
            figures = {dashboard.VALUES_FIGURE: self.result.plot(folder / "figures" / "values.png")}
            if self.result.states.ndim == 2:
                figures[dashboard.EPISODE_FIGURE] = self.result.plot_episode(folder / "figures" / "episode.png")
                if self.result.states.shape[1] >= 2:
                    figures[dashboard.VALUE_MAP] = self.result.plot_map(folder / "figures" / "value_map.png")
            if any(error.normalized_msve > 0 for error in self.errors):
                figures[dashboard.ERROR_FIGURE] = plot_error_curves(self._curves(), "normalised squared error")
                figures[dashboard.ERROR_FIGURE].savefig(folder / "figures" / "error.png")
            self._write_events(folder / dashboard.TENSORBOARD_FOLDER, figures)

    def _table(self) -> str:
        """The errors as markdown: exact numbers beside TensorBoard's smoothed curves."""
        lines = ["| steps | method | normalised | centred |", "|---|---|---|---|"]
        lines += [f"| {e.n_steps} | {e.method} | {e.normalized_msve:.4g} | {e.centred_msve:.4g} |" for e in self.errors]
        return "\n".join(lines)

    def _curves(self) -> dict[str, tuple[list[int], list[float]]]:
        curves: dict[str, tuple[list[int], list[float]]] = {}
        for error in self.errors:
            lengths, values = curves.setdefault(error.method, ([], []))
            lengths.append(error.n_steps)
            values.append(error.normalized_msve)
        return curves

    def _write_events(self, folder: Path, figures: Mapping[str, Any]) -> None:
        # One run per method: TensorBoard then draws all of them into one chart.
        curves = self._curves()
        for method in curves or {AGENT: ([], [])}:
            with dashboard.open_writer(folder / _folder_name(method)) as writer:
                for n_steps, error in zip(*curves.get(method, ([], [])), strict=True):
                    writer.add_scalar(dashboard.ERROR_CURVE, error, n_steps)
                if method == AGENT:
                    writer.add_text(dashboard.ERROR_TABLE, self._table())
                    for tag, figure in figures.items():
                        dashboard.write_figure(writer, tag, figure, self.result.n_steps)


def run_evaluation(
    agent: ICRLAgent,
    make_env: Callable[..., gym.Env[Any, Any]],
    *,
    n_steps: int,
    gamma: float,
    seed: int,
    n_layers: Depth | None = None,
    feature_map: FeatureMap | None = None,
    config: Mapping[str, Any] | None = None,
) -> EvaluationRun:
    """Evaluate the uniformly random policy, and everybody else on the same transitions.

    Rivals (certainty equivalence with both fill-ins, LSTD) see the transitions the agent saw; the controls are an
    empty context (the agent then answers 0) and a context from another task of the same kind (the next ``task_seed``).

    Args:
        agent: the agent.
        make_env: makes the environment; called with ``task_seed=k`` for the other task.
        n_steps, gamma, seed, n_layers, feature_map: as in ``ICRLAgent.evaluate``.
        config: what is written to config.json.

    Raises:
        ValueError, TypeError: as ``ICRLAgent.evaluate``.
    """
    env = make_env()
    arguments: dict[str, Any] = {"n_steps": n_steps, "gamma": gamma, "n_layers": n_layers, "seed": seed}
    result = agent.evaluate(env, feature_map=feature_map, **arguments)
    errors: list[MethodError] = []
    weights = _state_weights(env, result)
    if weights is not None:

        def error(length: int, method: str, values: FloatArray) -> MethodError:
            truth = result.true_values
            assert truth is not None
            return MethodError(
                length, method, normalized_msve(values, truth, weights), centred_msve(values, truth, weights)
            )

        for length in sorted({*(n for n in CURVE_LENGTHS if n < n_steps), n_steps}):
            context = result.transitions.first(length)
            estimate = agent.evaluate_transitions(context, gamma, result.states, n_layers, feature_map)
            errors.append(error(length, AGENT, estimate.values))
            errors.extend(error(length, *rival) for rival in _rivals(context, len(result.states), gamma).items())
        errors.append(error(n_steps, EMPTY_CONTEXT, np.zeros(len(result.states))))
        raw = env.unwrapped
        if isinstance(raw, TabularEnv) and raw.task_seed is not None:
            neighbour = raw.task_seed + 1 if raw.task_seed < 2**62 else raw.task_seed - 1
            other = agent.evaluate(make_env(**{TASK_SEED: neighbour}), feature_map=feature_map, **arguments)
            errors.append(error(n_steps, OTHER_TASK, other.values))
    return EvaluationRun(result, errors, dict(config or {}))


def _rivals(transitions: Transitions, n_states: int, gamma: float) -> dict[str, FloatArray]:
    columns = transitions.columns()
    history: dict[str, Any] = {"continues": columns.continues, "source_mask": columns.source_mask}
    start = (columns.observations, columns.rewards, gamma, n_states)
    rivals = {}
    if gamma < 1:
        rivals[CE_MEAN] = certainty_equivalence(*start, never_left="mean", **history)
    rivals[CE_ZERO] = certainty_equivalence(*start, never_left="zero", **history)
    rivals[LSTD] = lstd(*start, **history)
    return rivals


def _state_weights(env: gym.Env[Any, Any], result: Evaluation) -> FloatArray | None:
    mrp = induced_process(env, None).mrp
    if mrp is None or result.true_values is None or not isinstance(env.observation_space, spaces.Discrete):
        return None
    try:
        return stationary_distribution(mrp)
    except NoUniqueSolution:
        return None


def _folder_name(method: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in method).replace("__", "_")
