"""Which task an environment plays: ``task_seed`` at construction, and ``reset(options=...)`` as the only change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

Env = gym.Env[Any, Any]


def check_task_changes_only_by_option(make: Callable[[int], Env]) -> None:
    """``make(seed)`` builds an environment of that task."""
    first, second = (make(seed).unwrapped.mdp for seed in (3, 8))
    assert not first.same_tables(second)
    env = make(3)
    assert env.unwrapped.mdp.same_tables(first)
    for kwargs in ({}, {"seed": 8}, {"seed": 5}, {"options": {}}, {"options": {"other": 8}}):
        _, info = env.reset(**kwargs)
        assert env.unwrapped.mdp.same_tables(first), kwargs
        assert info["task_seed"] == env.unwrapped.task_seed == 3
        env.step(0)
    _, info = env.reset(options={"task_seed": 8})
    assert env.unwrapped.mdp.same_tables(second)
    assert info["task_seed"] == env.unwrapped.task_seed == 8
    env.reset()
    assert env.unwrapped.mdp.same_tables(second)
    alone = make(8)
    assert env.reset(seed=1)[0] == alone.reset(seed=1)[0]
    assert [env.step(0)[:2] for _ in range(30)] == [alone.step(0)[:2] for _ in range(30)]


class SeedIsTask(gym.Wrapper[Any, Any, Any, Any]):
    """A reset's seed changes the task as well."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.env.reset(seed=seed, options=options if seed is None else {"task_seed": seed})


class OptionDropped(gym.Wrapper[Any, Any, Any, Any]):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.env.reset(seed=seed)


def test_the_option_is_the_only_way_a_reset_changes_the_task(seeded_case: Any) -> None:
    check_task_changes_only_by_option(lambda seed: seeded_case.make(task_seed=seed))
    for double in (SeedIsTask, OptionDropped):
        with pytest.raises(AssertionError):
            check_task_changes_only_by_option(lambda seed, d=double: d(seeded_case.make(task_seed=seed)))


def check_seed_none_draws_and_records(make: Callable[..., Env]) -> None:
    seeds = set()
    for _ in range(4):
        env = make(task_seed=None).unwrapped
        assert type(env.task_seed) is int
        assert env.mdp.same_tables(make(task_seed=env.task_seed).unwrapped.mdp)
        before = env.mdp
        assert env.reset(seed=0)[1]["task_seed"] == env.task_seed
        assert env.mdp is before
        seeds.add(env.task_seed)
    assert len(seeds) == 4


def test_task_seed_none_draws_one_per_make_and_records_it(seeded_case: Any) -> None:
    np.random.seed(0)  # noqa: NPY002
    check_seed_none_draws_and_records(seeded_case.make)
    with pytest.raises(AssertionError):
        check_seed_none_draws_and_records(lambda task_seed: seeded_case.make(task_seed=task_seed or 0))


@pytest.mark.parametrize("wrong", [-1, 1.5, True, None, "3", np.float64(3)])
def test_wrong_task_seeds_are_refused(seeded_case: Any, wrong: Any) -> None:
    message = "task_seed must be a non-negative integer below "
    env = seeded_case.make()
    before = env.unwrapped.mdp
    with pytest.raises(ValueError, match=message):
        env.reset(options={"task_seed": wrong})
    assert env.unwrapped.mdp is before
    if wrong is not None:
        with pytest.raises(ValueError, match=message):
            seeded_case.make(task_seed=wrong)


def test_options_are_a_dict() -> None:
    for env in (gym.make("BoyanChain-v0"), gym.make_vec("BoyanChain-v0", num_envs=2)):
        with pytest.raises(TypeError, match="options must be a dict or None, got 'x'"):
            env.unwrapped.reset(options="x")


def test_fixed_tables_take_no_task_seed(fixed_case: Any) -> None:
    env = fixed_case.make()
    assert env.unwrapped.task_seed is None
    assert env.reset(seed=0)[1] == {}
    with pytest.raises(ValueError, match="has one fixed task, it takes no task_seed"):
        env.reset(options={"task_seed": 1})


def check_action_space_stays_seeded(make: Callable[[], Env]) -> None:
    draws = []
    for _ in range(2):
        env = make()
        env.action_space.seed(0)
        env.reset(options={"task_seed": 9})
        draws.append([int(env.action_space.sample()) for _ in range(40)])
    assert draws[0] == draws[1]


def test_a_seeded_action_space_stays_seeded_when_the_task_changes() -> None:
    class NewSpace(gym.Wrapper[Any, Any, Any, Any]):
        def reset(self, **kwargs: Any) -> Any:
            self.action_space = gym.spaces.Discrete(4)
            return self.env.reset(**kwargs)

    check_action_space_stays_seeded(lambda: gym.make("RandomMDP-v0"))
    with pytest.raises(AssertionError):
        check_action_space_stays_seeded(lambda: NewSpace(gym.make("RandomMDP-v0")))


def test_representable_features_follow_the_task() -> None:
    env = gym.make("BoyanChain-v0", task_seed=1, representable=3)
    before = env.unwrapped.representable_features
    env.reset(options={"task_seed": 2})
    expected = gym.make("BoyanChain-v0", task_seed=2, representable=3).unwrapped.representable_features
    assert np.array_equal(env.unwrapped.representable_features, expected)
    assert not np.array_equal(before, expected)
    assert gym.make("BoyanChain-v0").unwrapped.representable_features is None
