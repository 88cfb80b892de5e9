"""What every registered environment promises to Gymnasium, Stable-Baselines3 and their users."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env as check_env_gymnasium

Env = gym.Env[Any, Any]


def check_env_sb3(env: Env) -> None:
    from stable_baselines3.common.env_checker import check_env

    check_env(env)


def check_silently(check: Callable[[Env], None], env: Env) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            check(env)
        except (Exception, Warning) as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from error


def patched(env: Env, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Env:
    """The bare environment itself, so that no checker complains about a wrapper, with changed results of step."""
    step = env.step
    env.step = lambda action: change(step(action))  # type: ignore[method-assign]
    return env


def numpy_types(result: tuple[Any, ...]) -> tuple[Any, ...]:
    observation, reward, terminated, truncated, info = result
    return observation, np.float32(reward), np.bool_(terminated), truncated, info


def global_noise(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """Next states and rewards from NumPy's global generator."""
    _, reward, terminated, truncated, info = result
    return int(np.random.randint(3)), reward + np.random.rand(), terminated, truncated, info  # noqa: NPY002


CHECKERS = {"gymnasium": check_env_gymnasium, "sb3": check_env_sb3}


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_check_env_is_silent(case: Any, checker: str, render_mode: str | None) -> None:
    check_silently(CHECKERS[checker], case.make(render_mode=render_mode).unwrapped)


@pytest.mark.parametrize(
    ("checker", "change", "message"),
    [("gymnasium", global_noise, "[Dd]eterminis"), ("sb3", numpy_types, "reward")],
    ids=["gymnasium", "sb3"],
)
def test_check_env_catches_wrong_steps(case: Any, checker: str, change: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_silently(CHECKERS[checker], patched(case.make().unwrapped, change))


def check_python_types(env: Env) -> None:
    observation, info = env.reset(seed=0)
    assert type(observation) is int
    assert type(info) is dict
    for _ in range(30):
        observation, reward, terminated, truncated, info = env.step(0)
        assert type(observation) is int
        assert type(reward) is float
        assert type(terminated) is bool
        assert type(truncated) is bool
        if terminated:
            env.reset()


@pytest.mark.parametrize("reward_noise", [0.0, 0.5, np.float32(0.5)])
def test_observations_rewards_and_flags_are_plain_python(case: Any, reward_noise: float) -> None:
    check_python_types(case.make(reward_noise=reward_noise).unwrapped)
    with pytest.raises(AssertionError):
        check_python_types(patched(case.make().unwrapped, numpy_types))


def test_metadata_and_spaces(case: Any) -> None:
    env = case.make().unwrapped
    assert env.metadata["render_fps"] > 0
    assert env.metadata["render_modes"] == ["ansi", "rgb_array"]
    assert env.observation_space == gym.spaces.Discrete(env.mdp.n_states)
    assert env.action_space == gym.spaces.Discrete(env.mdp.n_actions)
    assert case.make().spec.max_episode_steps is None


def check_actions(make: Callable[[], Env]) -> None:
    """Every spelling of action 0 is the same step; no wrong action is a silent one."""
    steps = []
    for zero in (0, np.int64(0), np.uint8(0), np.array(0)):
        env = make()
        env.reset(seed=4)
        steps.append(env.step(zero)[:4])
    assert steps == steps[:1] * len(steps)
    env = make()
    env.reset(seed=4)
    for wrong in (-1, env.action_space.n, np.int64(-1), 0.5, 0.0, np.float32(0), np.array([0]), "0", None):
        try:
            env.step(wrong)
        except ValueError as error:
            assert f"0 .. {env.action_space.n - 1}, got {wrong!r}" in str(error)  # noqa: PT017
        else:
            raise AssertionError(f"step({wrong!r}) was accepted")
    assert env.step(0)[:4] == steps[0]  # a refused action has moved nothing


class AnyAction(gym.ActionWrapper[Any, Any, Any]):
    """Clips wrong actions silently."""

    def action(self, action: Any) -> Any:
        return int(np.clip(float(np.ravel(action)[0] or 0), 0, self.action_space.n - 1))


def test_actions_are_accepted_or_refused(case: Any) -> None:
    check_actions(case.make)
    check_actions(lambda: case.make().unwrapped)
    with pytest.raises(AssertionError):
        check_actions(lambda: AnyAction(case.make().unwrapped))


def test_an_sb3_models_prediction_is_an_action(case: Any) -> None:
    from stable_baselines3 import DQN, PPO

    env = case.make()
    observation, _ = env.reset(seed=0)
    for algorithm in (DQN, PPO):
        model = algorithm("MlpPolicy", case.make(max_episode_steps=5), policy_kwargs={"net_arch": [4]}, device="cpu")
        for deterministic in (True, False):
            observation = env.step(model.predict(observation, deterministic=deterministic)[0])[0]
            assert env.observation_space.contains(observation)
            if env.unwrapped.mdp.terminal[observation]:
                observation, _ = env.reset()


def check_reset_needed(env: Env) -> None:
    """Before the first reset and after a termination; ``env`` is new."""
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(0)
    env.reset(seed=0)
    n_ends = 0
    for _ in range(200):
        if env.step(0)[2]:
            n_ends += 1
            with pytest.raises(ResetNeeded, match="reset"):
                env.step(0)
            env.reset()
    assert n_ends > 0 or not env.unwrapped.mdp.terminal.any()


def test_a_step_needs_a_running_episode(case: Any) -> None:
    check_reset_needed(case.make().unwrapped)

    class Forgiving(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            try:
                return self.env.step(action)
            except ResetNeeded:
                self.env.reset()
                return self.env.step(action)

    with pytest.raises(pytest.fail.Exception):
        check_reset_needed(Forgiving(case.make().unwrapped))


def trajectory(env: Env, n_steps: int, seed: int | None, disturb: Callable[[], None] = lambda: None) -> list[Any]:
    """The first ``n_steps`` steps, episodes restarted without a seed, ``disturb`` called between them."""
    rows: list[Any] = [env.reset(seed=seed)[0]]
    rng = np.random.default_rng(0)
    for _ in range(n_steps):
        disturb()
        rows.append(env.step(int(rng.integers(env.action_space.n)))[:4])
        if rows[-1][2]:
            rows.append(env.reset()[0])
    return rows


def check_deterministic(make: Callable[[], Env]) -> None:
    import torch

    other = make()
    other.reset(seed=99)

    def disturb() -> None:
        np.random.seed(int(np.random.rand() * 1000) + 1)  # noqa: NPY002
        torch.rand(1)
        if other.step(0)[2]:
            other.reset()

    assert trajectory(make(), 60, 1) == trajectory(make(), 60, 1, disturb)
    env = make()
    trajectory(env, 7, 5)
    assert trajectory(env, 60, 1) == trajectory(make(), 60, 1)
    assert trajectory(make(), 60, 1) != trajectory(make(), 60, 2)


def test_a_seed_fixes_the_trajectory_whatever_happens_elsewhere(case: Any) -> None:
    check_deterministic(lambda: case.make(reward_noise=0.1))
    with pytest.raises(AssertionError):
        check_deterministic(lambda: patched(case.make().unwrapped, global_noise))


def test_the_global_generators_are_left_alone(case: Any) -> None:
    import torch

    np.random.seed(3)  # noqa: NPY002
    torch.manual_seed(3)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    trajectory(case.make(reward_noise=0.1), 20, None)
    envs = case.make_vec(3, reward_noise=0.1)
    envs.reset()
    envs.step(np.zeros(3, int))
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before  # noqa: NPY002


BAD_ARGUMENTS = {
    "reward_noise": (-1.0, float("nan"), float("inf"), "0.1", None, True),
    "render_mode": ("text", 3),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD_ARGUMENTS.items() for value in values]
)
def test_bad_arguments_are_refused(case: Any, name: str, value: Any) -> None:
    entry_point = case.make().unwrapped.__class__
    with pytest.raises(ValueError, match=f"{name} must be .*, got ") as error:
        entry_point(**{**case.kwargs, name: value})
    assert repr(value) in str(error.value)
