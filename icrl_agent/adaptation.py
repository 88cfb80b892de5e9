"""What is taken from a context before its values are estimated: units, lengthscale, sharpness."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from icrl_agent.context import Context, build_context
from icrl_agent.depth import Depth, effective_step
from icrl_agent.estimate import estimate, estimate_each
from icrl_agent.features import FeatureMap, RandomFourier, fit_fourier
from icrl_agent.model import SoftmaxICTD
from icrl_agent.results import Evaluation
from icrl_agent.selection import DEFAULT_SHARPNESS, FEWEST, LENGTHSCALE_FACTORS, SHARPNESSES, held_out_errors, ranked
from icrl_agent.transitions import Transitions
from icrl_agent.truth import Task

__all__ = ["adapted_evaluation", "adapted_evaluations", "adapted_model", "checked_lengthscale", "is_auto"]

FloatArray = NDArray[np.float64]
Lengthscale = float | Literal["median", "auto"]


def adapted_evaluation(
    model: SoftmaxICTD,
    auto_sharpness: bool,
    transitions: Transitions,
    feature_map: FeatureMap,
    space: spaces.Space[Any],
    gamma: float,
    n_layers: Depth,
    asked: NDArray[Any] | None,
    task: Task,
    true_values: FloatArray | None,
    tolerance: float | None = None,
) -> Evaluation:
    """``estimate`` after the features' units, and sharpness and lengthscale where they are "auto", are chosen.

    Of the candidates in ``ranked`` order, the first whose layers converge on the whole context is it.
    """
    start = time.perf_counter()
    candidates = _candidates(model, auto_sharpness, transitions, feature_map, gamma, n_layers)
    seconds = time.perf_counter() - start
    largest_reward = float(np.abs(transitions.rewards).max())
    for sharpness, chosen_map in candidates:
        chosen_model = model if sharpness is None else _sharpened(model, sharpness)
        result = estimate(
            chosen_model, transitions, chosen_map, space, gamma, n_layers, asked, task, true_values, tolerance
        )
        seconds += result.seconds
        if result.diagnostics.last_layer_change <= largest_reward:
            break
    chosen = {} if sharpness is None else {"sharpness": sharpness}
    if isinstance(chosen_map, RandomFourier) and chosen_map is not feature_map:
        chosen["lengthscale"] = float(chosen_map.lengthscale)
    return dataclasses.replace(result, seconds=seconds, chosen=chosen)


def adapted_evaluations(
    model: SoftmaxICTD,
    auto_sharpness: bool,
    contexts: Sequence[Transitions],
    feature_map: FeatureMap,
    space: spaces.Space[Any],
    gamma: float,
    n_layers: Depth,
    asked: NDArray[Any] | None,
    tasks: Sequence[Task],
    true_values: Sequence[FloatArray | None],
    tolerance: float | None = None,
) -> list[Evaluation]:
    """``adapted_evaluation`` of every context; in one batch where nothing is chosen from the contexts."""
    if not auto_sharpness and (not isinstance(feature_map, RandomFourier) or feature_map.is_fitted):
        return estimate_each(model, contexts, feature_map, space, gamma, n_layers, asked, tasks, true_values, tolerance)
    return [
        adapted_evaluation(
            model, auto_sharpness, one, feature_map, space, gamma, n_layers, asked, task, truth, tolerance
        )
        for one, task, truth in zip(contexts, tasks, true_values, strict=True)
    ]


def adapted_model(model: SoftmaxICTD, context: Context, gamma: float, n_layers: Depth) -> SoftmaxICTD:
    """The model with the sharpness that is chosen in a context."""
    if len(context.rewards) < FEWEST:
        return _sharpened(model, DEFAULT_SHARPNESS)
    errors = _errors(model, context, SHARPNESSES, gamma, n_layers)
    return _sharpened(model, SHARPNESSES[ranked(errors, SHARPNESSES)[0]])


def checked_lengthscale(lengthscale: Lengthscale) -> Lengthscale:
    """Return a lengthscale that ``RandomFourier`` takes."""
    return RandomFourier(0.0, 1.0, 1, lengthscale).lengthscale


def is_auto(name: str, value: float | str) -> bool:
    """Whether a value is "auto".

    Raises:
        ValueError: for any other text.
    """
    if isinstance(value, str) and value != "auto":
        raise ValueError(f"{name} must be a finite number or 'auto', got {value!r}")
    return isinstance(value, str)


def _candidates(
    model: SoftmaxICTD,
    auto_sharpness: bool,
    transitions: Transitions,
    feature_map: FeatureMap,
    gamma: float,
    n_layers: Depth,
) -> list[tuple[float | None, FeatureMap]]:
    """Pairs of sharpness (None = the model's) and feature map, the most promising first."""
    maps = _fitted_maps(feature_map, transitions)
    sharpnesses: list[float | None] = [*SHARPNESSES] if auto_sharpness else [None]
    if len(maps) * len(sharpnesses) == 1:
        return [(None, maps[0])]
    middle = maps[len(maps) // 2]
    if len(transitions) < FEWEST:
        return [(DEFAULT_SHARPNESS if auto_sharpness else None, middle)]
    factors = SHARPNESSES if auto_sharpness else (1.0,)
    nobody = transitions.observations[:0]
    contexts = [build_context(transitions, one, nobody) for one in maps]
    errors = np.concatenate([_errors(model, context, factors, gamma, n_layers) for context in contexts])
    # A kernel of half the lengthscale is four times as sharp.
    sharp = [factor / _lengthscale(one) ** 2 for one in maps for factor in factors]
    order = [divmod(int(k), len(factors)) for k in ranked(errors, sharp)]
    return [(sharpnesses[column], maps[row]) for row, column in order]


def _lengthscale(feature_map: FeatureMap) -> float:
    return float(feature_map.lengthscale) if isinstance(feature_map, RandomFourier) else 1.0


def _fitted_maps(feature_map: FeatureMap, transitions: Transitions) -> list[FeatureMap]:
    """The feature map in the context's units; one per candidate lengthscale where that is "auto"."""
    if not isinstance(feature_map, RandomFourier) or feature_map.is_fitted:
        return [feature_map]
    if feature_map.lengthscale != "auto":
        return [fit_fourier(feature_map, transitions.observations)]
    median = fit_fourier(dataclasses.replace(feature_map, lengthscale="median"), transitions.observations)
    unit = float(median.lengthscale)
    return [dataclasses.replace(median, lengthscale=factor * unit) for factor in LENGTHSCALE_FACTORS]


def _errors(
    model: SoftmaxICTD,
    context: Context,
    sharpnesses: tuple[float, ...],
    gamma: float,
    n_layers: Depth,
) -> FloatArray:
    attention = model.attention_block(0).double().cpu().numpy()
    layer_gamma, step_size, scale = effective_step(model, gamma)
    return held_out_errors(context, attention, sharpnesses, layer_gamma, step_size, scale, n_layers)


def _sharpened(model: SoftmaxICTD, sharpness: float) -> SoftmaxICTD:
    sharpened = copy.deepcopy(model)
    with torch.no_grad():
        sharpened.attention_weight.mul_(sharpness)
    return sharpened
