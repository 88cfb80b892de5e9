"""The native vector environment against Gymnasium's SyncVectorEnv over the single environments.

On tables without chance both must give the same numbers, step by step, in all three autoreset modes.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorWrapper

# A line of seven states walked one or two at a time by choice, so that episodes last 3 to 6 steps.
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


def sync(mode: AutoresetMode, limit: int | None, env_id: str = "TabularMDP-v0", **kwargs: Any) -> Any:
    make = lambda: gym.make(env_id, max_episode_steps=limit, **(kwargs or LINE))  # noqa: E731
    return gym.vector.SyncVectorEnv([make] * NUM_ENVS, autoreset_mode=mode)


def check_equal(mine: Any, other: Any, where: str) -> None:
    """Same keys, types, shapes and values, all the way down."""
    assert type(mine) is type(other), where
    if isinstance(mine, dict):
        assert set(mine) == set(other), where
        for key in mine:
            check_equal(mine[key], other[key], f"{where}[{key!r}]")
    elif isinstance(mine, tuple):
        assert len(mine) == len(other), where
        for k, (part, mirrored) in enumerate(zip(mine, other, strict=True)):
            check_equal(part, mirrored, f"{where}[{k}]")
    elif isinstance(mine, np.ndarray):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape), where
        assert mine.tolist() == other.tolist(), where
    else:
        assert mine == other, where


def check_same_contract(mine: Any, other: Any, n_steps: int = 60) -> None:
    for name in ("num_envs", "observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(mine, name) == getattr(other, name)
    mode = other.metadata["autoreset_mode"]
    assert mine.metadata["autoreset_mode"] is mode
    check_equal(mine.reset(seed=0), other.reset(seed=0), "reset")
    rng = np.random.default_rng(3)
    n_ends = 0
    for k in range(n_steps):
        actions = rng.integers(mine.single_action_space.n, size=NUM_ENVS)
        results = mine.step(actions)
        check_equal(results, other.step(actions), f"step {k}")
        ended = results[2] | results[3]
        n_ends += int(ended.sum())
        if mode is AutoresetMode.DISABLED and ended.any():
            resets = [envs.reset(options={"reset_mask": ended.copy()}) for envs in (mine, other)]
            check_equal(*resets, f"reset after step {k}")
    assert n_ends > 5


@pytest.mark.parametrize("limit", [None, 1, 3, 4])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_contract_equals_sync_vector_env(mode: AutoresetMode, limit: int | None) -> None:
    check_same_contract(native(mode, limit), sync(mode, limit))


class Double(VectorWrapper):
    """Passes ``metadata`` and the spaces on; subclasses break ``step``."""


class LimitAsTermination(Double):
    def step(self, actions: Any) -> Any:
        observations, rewards, terminated, truncated, infos = super().step(actions)
        return observations, rewards, terminated | truncated, np.zeros_like(truncated), infos


class OneStepLate(Double):
    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        late, self._last = getattr(self, "_last", np.zeros_like(rewards)), rewards
        return observations, late, *rest


class Float32Rewards(Double):
    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        return observations, rewards.astype(np.float32), *rest


class NoFinalObservation(Double):
    def step(self, actions: Any) -> Any:
        *results, infos = super().step(actions)
        return *results, {key: value for key, value in infos.items() if "final_obs" not in key}


class FinalObservationAfterReset(Double):
    def step(self, actions: Any) -> Any:
        observations, *rest, infos = super().step(actions)
        if "final_obs" in infos:
            infos["final_obs"][infos["_final_obs"]] = observations[infos["_final_obs"]]
        return observations, *rest, infos


class MaskIgnored(Double):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)


BROKEN = [
    *((double, mode) for mode in AutoresetMode for double in (LimitAsTermination, OneStepLate, Float32Rewards)),
    (NoFinalObservation, AutoresetMode.SAME_STEP),
    (FinalObservationAfterReset, AutoresetMode.SAME_STEP),
    (MaskIgnored, AutoresetMode.DISABLED),
]


@pytest.mark.parametrize(("double", "mode"), BROKEN)
def test_contract_check_catches(double: type[Double], mode: AutoresetMode) -> None:
    with pytest.raises(AssertionError):
        check_same_contract(double(native(mode, 4)), sync(mode, 4))


@pytest.mark.parametrize("mode", AutoresetMode)
def test_contract_check_catches_another_mode_or_limit(mode: AutoresetMode) -> None:
    others = [other for other in AutoresetMode if other is not mode]
    for mine in (native(others[0], 4), native(others[1], 4), native(mode, 5)):
        with pytest.raises(AssertionError):
            check_same_contract(mine, sync(mode, 4))


@pytest.mark.parametrize("mode", AutoresetMode)
def test_infos_of_seeded_tasks_equal_sync_vector_env(seeded_case: Any, mode: AutoresetMode) -> None:
    mine, other = (make(mode, 3, seeded_case.id, **seeded_case.kwargs) for make in (native, sync))
    check_equal(mine.reset(seed=0)[1], other.reset(seed=0)[1], "reset")
    for k in range(12):
        a, b = (envs.step(np.zeros(NUM_ENVS, int)) for envs in (mine, other))
        for part in (2, 3):
            check_equal(a[part], b[part], f"step {k}")
        for infos in (a[4], b[4]):
            if "final_obs" in infos:
                assert infos["final_obs"].dtype == object
                infos.pop("final_obs")
        check_equal(a[4], b[4], f"infos of step {k}")
        if mode is AutoresetMode.DISABLED and a[3].any():
            some = np.arange(NUM_ENVS) % 2 == 0
            for mask in (some, ~some):
                a, b = (envs.reset(options={"reset_mask": mask.copy()}) for envs in (mine, other))
                check_equal(a[1], b[1], "partial reset")


def check_reset_mask(envs: Any) -> None:
    """The chosen copies start again, the others stay where they are."""
    envs.reset(seed=0)
    before = envs.step(np.array([0, 1, 0, 1, 1]))[0]
    assert before.tolist() == [1, 2, 1, 2, 2]
    after, _ = envs.reset(options={"reset_mask": np.array([True, False, False, True, False])})
    assert after.tolist() == [0, 2, 1, 0, 2]
    assert envs.step(np.zeros(5, int))[0].tolist() == [1, 3, 2, 1, 3]


@pytest.mark.parametrize("mode", AutoresetMode)
def test_reset_mask(mode: AutoresetMode) -> None:
    check_reset_mask(native(mode, None))
    with pytest.raises(AssertionError):
        check_reset_mask(MaskIgnored(native(mode, None)))
    for wrong in (np.zeros(5, bool), np.ones(4, bool), np.ones(5, int), np.ones((5, 1), bool), "all"):
        with pytest.raises(ValueError, match=r"reset_mask'\] must be 5 booleans with a True among them, got "):
            native(mode, None).reset(options={"reset_mask": wrong})
