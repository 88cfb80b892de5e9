"""The control loop: act, observe, look again, and note how good the policy is where that can be known exactly."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from icrl_agent.control.controller import Controller
from icrl_agent.control.result import ControlRecord, ControlResult
from icrl_agent.envs.optimal import expected_return, normalised_return, optimal_values, uniform_is_optimal
from icrl_agent.envs.tables import TabularMDP
from icrl_agent.streaming.observations import as_array, checked_reward
from icrl_agent.truth import decision_process

__all__ = ["UNIFORM_IS_OPTIMAL", "checked_records", "run_control"]

FloatArray = NDArray[np.float64]


#: Why no return can be normalised.
UNIFORM_IS_OPTIMAL = "the uniformly random policy is optimal: there is no return between random and optimal"
#: Records of a run, unless others are asked for.
N_RECORDS = 20


def checked_records(record_at: Sequence[int] | None, n_steps: int) -> list[int]:
    """The steps to record, rising, the last step included; None = twenty of them, evenly spaced.

    Raises:
        ValueError: for anything but whole numbers in 1 .. n_steps.

    >>> checked_records([2, 1], 4), checked_records(None, 3)
    ([1, 2, 4], [1, 2, 3])
    """
    if record_at is None:
        return [int(step) for step in np.unique(np.linspace(1, n_steps, N_RECORDS + 1).round()[1:])]
    steps = as_array(record_at)
    named = steps is not None and steps.ndim == 1 and len(steps) > 0 and steps.dtype.kind in "iuf"
    if steps is None or not named or not ((steps >= 1) & (steps <= n_steps) & (steps == steps.round())).all():
        raise ValueError(f"record_at must name steps in 1 .. {n_steps}, got {record_at!r}")
    return sorted({*steps.astype(int).tolist(), n_steps})


def run_control(
    controller: Controller,
    env: gym.Env[Any, Any],
    n_steps: int,
    record_at: Sequence[int],
    seed: int | None,
    progress: Callable[[int], None] | None = None,
) -> ControlResult:
    """Reset the environment and take exactly ``n_steps`` steps; see ``ICRLAgent.control``."""
    gamma = controller.stream.gamma
    mdp, reason = decision_process(env) if gamma < 1 else (None, "gamma is 1: the optimum is not solved for")
    optimum = None if mdp is None else optimal_values(mdp, gamma)
    if mdp is not None and uniform_is_optimal(mdp, gamma):
        reason = UNIFORM_IS_OPTIMAL
    gaps = None if optimum is None else optimum.max(axis=1, keepdims=True) - optimum
    records, episodes = [], []
    regret = episode_return = seconds = 0.0
    first_action = controller.action_space.start
    obs, _ = env.reset(seed=seed)
    for step in range(1, n_steps + 1):
        began = time.perf_counter()
        action = controller.act(obs)
        seconds += time.perf_counter() - began
        if gaps is not None:
            regret += float(gaps[int(obs), action - first_action])
        obs, reward, terminated, truncated, _ = env.step(action)
        number = checked_reward(reward)
        began = time.perf_counter()
        controller.observe(number, obs, terminated, truncated)
        seconds += time.perf_counter() - began
        episode_return += number
        if terminated or truncated:
            episodes.append((step, episode_return))
            episode_return = 0.0
            obs, _ = env.reset()
        if step in record_at:
            records.append(_record(controller, mdp, gamma, step, regret))
            if progress is not None:
                progress(step)
    q, policy, visits = _tables(controller)
    return ControlResult(
        records, q, policy, visits, optimum, episodes, n_steps, gamma, seconds, controller, reason
    )  # fmt: skip


def _record(controller: Controller, mdp: TabularMDP | None, gamma: float, step: int, regret: float) -> ControlRecord:
    if mdp is None:
        return ControlRecord(step, None, None, None)
    policy = _tables(controller)[1]
    assert policy is not None
    normalised = normalised_return(mdp, policy, gamma)
    return ControlRecord(
        step, expected_return(mdp, policy, gamma), None if np.isnan(normalised) else normalised, regret
    )


def _tables(controller: Controller) -> tuple[FloatArray | None, FloatArray | None, NDArray[np.int64] | None]:
    space = controller.observation_space
    if not isinstance(space, spaces.Discrete):
        return None, None, None
    states = np.arange(space.start, space.start + space.n)
    q = controller.q_values(states)
    return q, np.eye(q.shape[1])[q.argmax(axis=1)], controller.visits(states)
