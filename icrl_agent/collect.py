"""Collects real transitions from any environment: plain, Gymnasium vector, or Stable-Baselines3 VecEnv.

The three kinds are read through one loop over batches. A step that only resets (NEXT_STEP autoreset) is no
transition; the last state of an episode is read from wherever the kind keeps it.
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from icrl_agent.observations import flat_rows, is_composite, single_observations
from icrl_agent.transitions import Transitions, refuse_not_finite
from icrl_agent.wrappers.observation import HistoryWrapper
from icrl_agent.wrappers.policy import BoundPolicy, PolicyLike
from icrl_agent.wrappers.vector import HistoryWrapper as VectorHistoryWrapper
from icrl_agent.wrappers.vector import autoreset_mode

__all__ = ["collect", "is_sb3_vec_env", "preserved_generators", "single_spaces", "without_history"]

#: Steps of one environment that are gathered at a time.
LARGEST_BATCH = 1000


def is_sb3_vec_env(env: Any) -> bool:
    """Whether an environment is a Stable-Baselines3 VecEnv, recognised by its methods."""
    return not isinstance(env, gym.Env | VectorEnv) and all(
        hasattr(env, name) for name in ("step_async", "step_wait", "env_method", "num_envs", "reset", "seed")
    )


def without_history(env: Any) -> Any:
    """Return the environment below an outermost history wrapper, or the environment itself."""
    return env.env if isinstance(env, HistoryWrapper | VectorHistoryWrapper) else env


def single_spaces(env: Any) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Observation and action space of one copy.

    Raises:
        TypeError: for something that is no environment.
    """
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    if isinstance(env, gym.Env) or is_sb3_vec_env(env):
        return env.observation_space, env.action_space
    raise TypeError(f"env must be a Gymnasium environment, vector environment or SB3 VecEnv, got {type(env).__name__}")


def collect(env: Any, policy: PolicyLike, n_steps: int, seed: int | None, *, per_env: bool = False) -> Transitions:
    """Reset the environment and take exactly ``n_steps`` real transitions, over all copies, interleaved.

    Never waits for an episode's end. Transitions of the last batch beyond ``n_steps`` are left out. The global
    random generators of Python, NumPy and torch are as before afterwards. A history wrapper around the environment
    is stepped over and left empty, so it must be reset before it is used again. Observations of Dict, Tuple and
    MultiDiscrete spaces are recorded as ``gymnasium.spaces.flatten`` writes them; the policy sees them raw.

    Args:
        env: the environment.
        policy: see ``BoundPolicy``.
        n_steps: number of transitions, at least 1.
        seed: of the environment's reset and of the policy; None = unseeded.
        per_env: take ``n_steps`` transitions of every copy instead.

    Raises:
        ValueError: for n_steps below 1, a reward that is not a finite number (the step is named), an action outside
            the space.
        TypeError: for something that is no environment, or a policy that does not fit the spaces.
    """
    if isinstance(n_steps, bool) or not isinstance(n_steps, int | np.integer) or n_steps < 1:
        raise ValueError(f"n_steps must be an integer of at least 1, got {n_steps!r}")
    if isinstance(env, HistoryWrapper | VectorHistoryWrapper):
        env.clear()
    env = without_history(env)
    seed = None if seed is None else int(seed)
    observation_space, action_space = single_spaces(env)
    bound = BoundPolicy(policy, observation_space, action_space, seed=seed)
    with preserved_generators(seed):
        if isinstance(env, gym.Env):
            steps = _single_steps(env, bound, seed, n_steps)
        elif isinstance(env, VectorEnv):
            steps = _vector_steps(env, bound, seed)
        else:
            steps = _sb3_steps(env, bound, seed)
        return _gathered(steps, n_steps, env.num_envs if per_env else None)


class _Step(NamedTuple):
    """A batch of transitions, at most one per copy at a time; ``real`` marks those that are transitions at all."""

    observations: Any
    rewards: Any
    next_observations: Any
    terminated: Any
    truncated: Any
    real: NDArray[np.bool_]
    copies: NDArray[np.intp]


def _single_steps(env: gym.Env[Any, Any], policy: BoundPolicy, seed: int | None, n_steps: int) -> Iterator[_Step]:
    """Batches of consecutive steps: arrays of one row each would cost more than the steps."""
    space = env.observation_space
    discrete, composite = isinstance(space, spaces.Discrete), is_composite(space)

    def own(observation: Any) -> Any:
        # Copies throughout: an environment may write every observation into one array of its own.
        return _one_number(observation, "observation") if discrete else copy.deepcopy(observation)

    observation = own(env.reset(seed=seed)[0])
    left = flat_rows(space, [observation])[0] if composite else observation
    while True:
        rows: list[tuple[Any, ...]] = []
        usable = True
        while len(rows) < min(n_steps, LARGEST_BATCH) and usable:
            next_observation, reward, terminated, truncated, _ = env.step(policy.action(observation))
            observation = own(next_observation)
            reward = _one_number(reward, "reward")
            terminated, truncated = _one_number(terminated, "terminated"), _one_number(truncated, "truncated")
            entered = flat_rows(space, [observation])[0] if composite else observation
            rows.append((left, reward, entered, terminated, truncated))
            usable, left = _is_usable(reward), entered
            if usable and (terminated or truncated):
                observation = own(env.reset()[0])
                left = flat_rows(space, [observation])[0] if composite else observation
        lefts, rewards, entereds, ends, cuts = zip(*rows, strict=True)
        yield _Step(lefts, rewards, entereds, ends, cuts, np.ones(len(rows), bool), np.zeros(len(rows), np.intp))


def _vector_steps(env: VectorEnv[Any, Any, Any], policy: BoundPolicy, seed: int | None) -> Iterator[_Step]:
    mode, space = autoreset_mode(env), env.single_observation_space
    # Copies throughout: the environment may use its arrays again.
    observations = copy.deepcopy(env.reset(seed=seed)[0])
    left = _batch_rows(space, observations)
    only_resets, copies = np.zeros(env.num_envs, bool), np.arange(env.num_envs)
    while True:
        observations, rewards, terminated, truncated, infos = env.step(policy.actions(observations))
        observations = copy.deepcopy(observations)
        entered = _batch_rows(space, observations)
        done = np.asarray(terminated) | np.asarray(truncated)
        following = entered
        if mode is AutoresetMode.SAME_STEP and done.any():
            following = _with_rows(space, entered, done, np.asarray(infos["final_obs"], dtype=object)[done])
        yield _Step(left, np.array(rewards), following, np.array(terminated), np.array(truncated), ~only_resets, copies)
        left = entered
        if mode is AutoresetMode.NEXT_STEP:
            only_resets = done
        elif mode is AutoresetMode.DISABLED and done.any():
            observations = copy.deepcopy(env.reset(options={"reset_mask": done})[0])
            left = _batch_rows(space, observations)


def _sb3_steps(env: Any, policy: BoundPolicy, seed: int | None) -> Iterator[_Step]:
    if seed is not None:
        env.seed(int(seed))
    space, real, copies = env.observation_space, np.ones(env.num_envs, bool), np.arange(env.num_envs)
    observations = copy.deepcopy(env.reset())
    left = _batch_rows(space, observations)
    while True:
        observations, rewards, done, infos = env.step(policy.actions(observations))
        observations = copy.deepcopy(observations)
        entered = _batch_rows(space, observations)
        # SB3 reports one flag; a time limit that cut the episode is told apart by the info.
        truncated = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos]) & done
        ends = [infos[index]["terminal_observation"] for index in np.flatnonzero(done)]
        following = _with_rows(space, entered, done, ends) if ends else entered
        yield _Step(left, np.asarray(rewards, np.float64), following, done & ~truncated, truncated, real, copies)
        left = entered


def _batch_rows(space: spaces.Space[Any], batch: Any) -> NDArray[Any]:
    return flat_rows(space, single_observations(space, batch) if is_composite(space) else batch)


def _with_rows(
    space: spaces.Space[Any], rows: NDArray[Any], which: NDArray[np.bool_], replacements: Any
) -> NDArray[Any]:
    """Rows with some replaced by the rows of raw observations."""
    replaced = rows.copy()
    replaced[which] = flat_rows(space, [*replacements] if is_composite(space) else np.stack([*replacements]))
    return replaced


def _gathered(steps: Iterator[_Step], n_steps: int, num_envs: int | None) -> Transitions:
    """Concatenate batches until there are n_steps real transitions, of every one of num_envs copies where given."""
    kept: list[_Step] = []
    total = n_steps * (num_envs or 1)
    taken = 0
    of_each = None if num_envs is None else np.full(num_envs, n_steps)
    while taken < total:
        step = next(steps)
        wanted = np.flatnonzero(step.real if of_each is None else step.real & (of_each > 0))[: total - taken]
        if len(wanted) < len(step.real):
            step = _Step(*(np.asarray(part)[wanted] for part in step))
        for row, reward in enumerate(step.rewards):
            if not _is_usable(reward):
                at = taken + row + 1
                shown = reward.item() if isinstance(reward, np.generic) else reward
                raise ValueError(
                    f"the environment returned reward {shown!r} at step {at}, rewards must be finite numbers"
                )
        kept.append(step)
        taken += len(step.copies)
        if of_each is not None:
            of_each[step.copies] -= 1
    columns = [np.concatenate([np.asarray(part) for part in parts]) for parts in zip(*kept, strict=True)]
    for name, flags in zip(("terminated", "truncated"), columns[3:5], strict=True):
        if flags.dtype != np.bool_:
            raise TypeError(f"the environment returned {name} as {flags.dtype}, it must be True or False")
    for observations in (columns[2], columns[0]):
        if not np.issubdtype(observations.dtype, np.number) and observations.dtype != np.bool_:
            raise TypeError("the environment returned an observation that is no array of numbers")
        refuse_not_finite(observations, "the environment returned an observation at step {} that is not finite")
    return Transitions(
        observations=columns[0],
        rewards=columns[1].astype(np.float64),
        next_observations=columns[2],
        terminated=columns[3].astype(bool),
        truncated=columns[4].astype(bool),
        copy=columns[6],
    )


def _is_usable(reward: Any) -> bool:
    """Whether a reward is a finite number."""
    return isinstance(reward, (int, float, np.floating, np.integer)) and math.isfinite(reward)


def _one_number(value: Any, name: str) -> Any:
    """A number, also when it comes in an array of size 1."""
    if isinstance(value, (bool, int, float, np.generic)):
        return value
    array = np.asarray(value)
    if array.size != 1 or array.dtype == object:
        raise TypeError(f"the environment returned {name} {value!r}, it must be one number")
    return array.reshape(())[()]


@contextlib.contextmanager
def preserved_generators(seed: int | None) -> Iterator[None]:
    """Run a block with Python's, NumPy's and (if it is loaded) torch's global generators seeded, then restore them.

    Models that sample from the global generators are so reproducible, and nobody else's stream moves.
    """
    torch = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch_state = torch.get_rng_state() if torch else None
    cuda_states = torch.cuda.get_rng_state_all() if torch and torch.cuda.is_available() else None
    try:
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            if torch:
                torch.manual_seed(seed)
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        if torch:
            torch.set_rng_state(torch_state)
        if torch and cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)
