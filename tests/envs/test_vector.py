"""The native vector environment: tasks, copies, seeds, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorWrapper

from icrl_agent.envs.vector import TabularVectorEnv

# A line of seven states walked one or two at a time by choice.
LINE = {
    "transition": [[[float(t == min(s + a, 6)) for t in range(7)] for a in (1, 2)] for s in range(7)],
    "reward": [[float(s + 10 * a) for a in range(2)] for s in range(7)],
    "initial": [1.0] + [0.0] * 6,
    "terminal": [False] * 6 + [True],
}
NUM_ENVS = 5


def native(mode: AutoresetMode, limit: int | None, env_id: str = "TabularMDP-v0", **kwargs: Any) -> Any:
    kwargs = kwargs or LINE
    return gym.make_vec(env_id, num_envs=NUM_ENVS, autoreset_mode=mode, max_episode_steps=limit, **kwargs)


def check_task_option(envs: Any, make: Callable[..., Any]) -> None:
    first, second = (make(task_seed=k).unwrapped.mdp for k in (3, 8))
    for kwargs in ({}, {"seed": 8}, {"options": {"other": 8}}):
        envs.reset(**kwargs)
        assert (envs.mdp.same_tables(first), envs.task_seed) == (True, 3)
    _, infos = envs.reset(seed=1, options={"task_seed": 8})
    assert (envs.mdp.same_tables(second), envs.task_seed) == (True, 8)
    assert infos["task_seed"].tolist() == [8] * NUM_ENVS
    assert infos["_task_seed"].all()
    seen = {int(state) for _ in range(50) for state in envs.reset()[0]}
    assert len(seen) > 1
    states = envs.reset(seed=1)[0]
    for _ in range(20):  # the new tables are the ones that are played
        next_states, rewards, *_ = envs.step(np.zeros(NUM_ENVS, int))
        assert rewards.tolist() == second.reward[states, 0].tolist()
        assert (second.transition[states, 0, next_states] > 0).all()
        states = next_states


def test_the_task_option_changes_the_task_of_all_copies(seeded_case: Any) -> None:
    def build() -> Any:
        return native(AutoresetMode.NEXT_STEP, None, seeded_case.id, **{**seeded_case.kwargs, "task_seed": 3})

    class OptionDropped(VectorWrapper):
        mdp = property(lambda self: self.env.mdp)
        task_seed = property(lambda self: self.env.task_seed)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed=seed)

    check_task_option(build(), seeded_case.make)
    with pytest.raises(AssertionError):
        check_task_option(OptionDropped(build()), seeded_case.make)
    mask = np.array([True, False, False, True, False])
    with pytest.raises(ValueError, match="changes the task of all copies"):
        build().reset(options={"reset_mask": mask, "task_seed": 8})
    with pytest.raises(ValueError, match=r"task_seed must be a non-negative integer below 2.63, got -1"):
        build().reset(options={"task_seed": -1})


def test_fixed_tables_take_no_task_option(fixed_case: Any) -> None:
    envs = fixed_case.make_vec(2)
    assert envs.task_seed is None
    with pytest.raises(ValueError, match="takes no task_seed"):
        envs.reset(options={"task_seed": 1})


def rollout(envs: Any, seed: int) -> np.ndarray:
    zeros = np.zeros(envs.num_envs, int)
    return np.array([envs.reset(seed=seed)[0], *(envs.step(zeros)[0] for _ in range(40))])


def check_copies(make: Callable[[], Any]) -> None:
    """Same seed, same rollouts; another seed or another copy, other rollouts."""
    first = rollout(make(), 0)
    assert np.array_equal(first, rollout(make(), 0))
    assert not np.array_equal(first, rollout(make(), 1))
    assert len({tuple(copy) for copy in first.T.tolist()}) == first.shape[1]


def test_copies_share_the_task_but_not_the_trajectory(case: Any) -> None:
    envs = case.make_vec(4, max_episode_steps=9)
    assert isinstance(envs, TabularVectorEnv)
    assert envs.mdp.same_tables(case.make().unwrapped.mdp)
    check_copies(lambda: case.make_vec(4, max_episode_steps=9))

    class SharedTrajectory(VectorWrapper):
        def step(self, actions: Any) -> Any:
            observations, *rest = super().step(actions)
            return np.full_like(observations, observations[0]), *rest

        def reset(self, **kwargs: Any) -> Any:
            observations, infos = super().reset(**kwargs)
            return np.full_like(observations, observations[0]), infos

    class SeedDropped(VectorWrapper):
        def reset(self, **kwargs: Any) -> Any:
            return super().reset()

    for double in (SharedTrajectory, SeedDropped):
        with pytest.raises(AssertionError):
            check_copies(lambda d=double: d(case.make_vec(4, max_episode_steps=9)))


@pytest.mark.parametrize(
    "actions", [[0, 1], [-1, 0, 0, 0, 0], [0, 2, 0, 0, 0], [0.0] * 5, [[0]] * 5, [True] * 5, 0, None]
)
def test_wrong_actions_are_refused_and_move_nothing(actions: Any) -> None:
    envs = native(AutoresetMode.NEXT_STEP, None)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"actions must (be 5 integers|lie in 0 \.\. 1), got "):
        envs.step(actions)
    assert envs.step(np.ones(5, np.int32))[0].tolist() == [2] * 5


def test_steps_need_running_episodes() -> None:
    for mode in AutoresetMode:
        with pytest.raises(ResetNeeded, match="reset"):
            native(mode, None).step(np.zeros(5, int))
    envs = native(AutoresetMode.DISABLED, 2)
    envs.reset(seed=0)
    envs.step(np.zeros(5, int))
    envs.step(np.zeros(5, int))
    with pytest.raises(ResetNeeded, match="over"):
        envs.step(np.zeros(5, int))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_envs": 0}, "num_envs must be an integer of at least 1, got 0"),
        ({"num_envs": 2.0}, "num_envs must be an integer of at least 1, got 2.0"),
        ({"max_episode_steps": 0}, "max_episode_steps must be an integer of at least 1, got 0"),
        ({"max_episode_steps": True}, "max_episode_steps must be an integer of at least 1, got True"),
        (
            {"autoreset_mode": "next"},
            r"autoreset_mode must be one of \['NextStep', 'SameStep', 'Disabled'\], got 'next'",
        ),
    ],
)
def test_bad_arguments_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gym.make_vec("BoyanChain-v0", **{"num_envs": 2, **kwargs})


def test_returned_arrays_are_not_reused() -> None:
    envs = native(AutoresetMode.NEXT_STEP, 3)
    kept = [envs.reset(seed=0)[0]]
    copies = [kept[0].copy()]
    for _ in range(6):
        for array in envs.step(np.zeros(5, int))[:4]:
            kept.append(array)
            copies.append(array.copy())
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies, strict=True))
    kept[-4][:] = 5  # writing into an observation moves no copy
    assert envs.step(np.zeros(5, int))[0].max() < 6
