"""From transitions to an evaluation: one context, one forward pass, and what is known about the answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from icrl_agent.context import Context, build_context, build_contexts
from icrl_agent.depth import FIXED_POINT, ContextValues, Depth, batch_values, context_values, effective_step
from icrl_agent.features import FeatureMap
from icrl_agent.model import SoftmaxICTD
from icrl_agent.queries import answered_states
from icrl_agent.results import Diagnostics, Evaluation
from icrl_agent.transitions import Transitions
from icrl_agent.truth import Task, value_errors
from icrl_agent.uncertainty import bootstrap_stderr, resampled_units

__all__ = ["estimate", "estimate_each", "refuse_endless"]

#: Largest number of entries of the matrices of a batch, contexts x states squared: 1 GiB in float64.
LARGEST_BATCH = 2**27


def estimate(
    model: SoftmaxICTD,
    transitions: Transitions,
    feature_map: FeatureMap,
    space: spaces.Space[Any],
    gamma: float,
    n_layers: Depth,
    asked: NDArray[Any] | None,
    task: Task,
    true_values: NDArray[np.float64] | None,
    tolerance: float | None = None,
) -> Evaluation:
    """Write transitions as one context, run the layers, and put values beside what is known.

    Args:
        model: the transformer.
        transitions: the context.
        feature_map: of the observations.
        space: of the observations.
        gamma: discount factor in [0, 1].
        n_layers: resolved depth.
        asked: raw observations; None = the states ``answered_states`` names.
        task: the reward process behind the transitions, or why it is unknown.
        true_values: of all states of that process, or None.
        tolerance: stop after a layer that changes no value above it; None = run all.

    Raises:
        ValueError: for gamma 1 without certain termination, or layers that diverge.
    """
    start = time.perf_counter()
    states = answered_states(space, transitions) if asked is None else asked
    context = build_context(transitions, feature_map, states)
    if gamma == 1:
        refuse_endless(context)
    found = context_values(model, context, gamma, n_layers, tolerance)
    seconds = time.perf_counter() - start
    return _evaluation(
        model, transitions, context, found, space, gamma, task, true_values, seconds, all_states=asked is None
    )


def estimate_each(
    model: SoftmaxICTD,
    transitions: Sequence[Transitions],
    feature_map: FeatureMap,
    space: spaces.Space[Any],
    gamma: float,
    n_layers: Depth,
    asked: NDArray[Any] | None,
    tasks: Sequence[Task],
    true_values: Sequence[NDArray[np.float64] | None],
    tolerance: float | None = None,
) -> list[Evaluation]:
    """``estimate`` of many contexts of equal length; where they share their states, in one batch of small matrices.

    ``seconds`` of each is then its share of the batch.
    """
    batch = len(transitions)
    small = isinstance(space, spaces.Discrete) and batch * int(space.n) ** 2 <= LARGEST_BATCH
    if batch == 1 or not small or n_layers == FIXED_POINT:
        return [
            estimate(model, one, feature_map, space, gamma, n_layers, asked, task, true, tolerance)
            for one, task, true in zip(transitions, tasks, true_values, strict=True)
        ]
    start = time.perf_counter()
    states = answered_states(space, transitions[0]) if asked is None else asked
    contexts = build_contexts(transitions, feature_map, states)
    if gamma == 1:
        for context in contexts:
            refuse_endless(context)
    found = batch_values(model, contexts, gamma, n_layers, tolerance)
    seconds = (time.perf_counter() - start) / batch
    return [
        _evaluation(model, one, context, values, space, gamma, task, true, seconds, all_states=asked is None)
        for one, context, values, task, true in zip(transitions, contexts, found, tasks, true_values, strict=True)
    ]


def _evaluation(
    model: SoftmaxICTD,
    transitions: Transitions,
    context: Context,
    found: ContextValues,
    space: spaces.Space[Any],
    gamma: float,
    task: Task,
    true_values: NDArray[np.float64] | None,
    seconds: float,
    *,
    all_states: bool,
) -> Evaluation:
    states = context.queries
    first = int(space.start) if isinstance(space, spaces.Discrete) else 0
    values = found.values[context.query_state]
    values[context.query_is_terminal] = 0.0
    errors, reason = value_errors(values, states, task, true_values, all_states=all_states)
    return Evaluation(
        states=states,
        values=values,
        visits=context.visits[context.query_state],
        true_values=None if true_values is None else true_values[states - first],
        **errors,
        n_steps=len(transitions),
        n_layers=found.n_layers,
        gamma=gamma,
        seconds=seconds,
        diagnostics=_diagnostics(model, context, gamma, found.last_layer_change, isinstance(space, spaces.Discrete)),
        transitions=transitions,
        reason=reason,
        chosen={},
        make_stderr=partial(_stderr, model, context, transitions, gamma, found.n_layers),
    )


def _stderr(
    model: SoftmaxICTD, context: Context, transitions: Transitions, gamma: float, n_layers: Depth
) -> NDArray[np.float64]:
    stderr = bootstrap_stderr(model, context, resampled_units(transitions), gamma, n_layers)[context.query_state]
    stderr[context.query_is_terminal] = 0.0
    return stderr


def _diagnostics(
    model: SoftmaxICTD, context: Context, gamma: float, last_layer_change: float, finite: bool
) -> Diagnostics:
    attention = model.attention_block(0).double().cpu().numpy()
    layer_gamma, step_size, _ = effective_step(model, gamma)
    return Diagnostics(
        make_layer_map=partial(context.layer_map, attention) if finite else None,
        gamma=layer_gamma,
        step_size=step_size,
        last_layer_change=last_layer_change,
        n_visited=int((context.visits > 0).sum()),
    )


def refuse_endless(context: Context) -> None:
    """Raise a ValueError if termination is not certain, which gamma 1 needs."""
    endless = context.never_ending_state()
    if endless is not None:
        n_visits = int(context.visits[endless])
        raise ValueError(
            "gamma 1 needs certain termination, but no recorded path leads from a state that was left"
            f" {n_visits} times to a terminated transition: use gamma < 1 or more steps"
        )
