"""The continuous-control cases of continuous_accuracy.py: environments, policies, and their Monte-Carlo truth.

Truth: from copies of the environment taken at visited states, the mean discounted return of rollouts of the policy
without a time limit (a limit is no end), cut after HORIZON steps, where gamma^HORIZON / (1 - gamma) is below 1e-3.
A deterministic policy in these deterministic environments needs one rollout. Truths are kept in a file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from icrl_agent.collect import collect
from icrl_agent.logged_data import transitions_from_npz, transitions_to_npz
from icrl_agent.transitions import Transitions

GAMMA = 0.95
N_STEPS = 3000
N_STATES = 80
HORIZON = 200
ROLLOUTS = 100
#: Where every return is the same.
CONSTANT_ROLLOUTS = 2

Policy = Callable[[np.ndarray], Any]


@dataclass(frozen=True)
class Case:
    """An environment and a policy; ``script`` None acts at random, ``obey`` is the probability of the script."""

    name: str
    env_id: str
    script: Policy | None = None
    obey: float = 1.0
    constant: bool = False
    """Whether the true value is the same everywhere (within the horizon)."""

    @property
    def rollouts(self) -> int:
        """Rollouts per state; one is the truth where environment and policy are deterministic."""
        if self.script is not None and self.obey == 1.0:
            return 1
        return CONSTANT_ROLLOUTS if self.constant else ROLLOUTS

    def policy(self, rng: np.random.Generator) -> Policy:
        """The policy with its own randomness."""
        space = gym.make(self.env_id).action_space
        space.seed(int(rng.integers(2**31)))

        def act(observation: np.ndarray) -> Any:
            if self.script is not None and (self.obey == 1.0 or rng.random() < self.obey):
                return self.script(observation)
            return space.sample()

        return act


def balance(observation: np.ndarray) -> int:
    """CartPole: a linear controller."""
    return int(observation @ (0.1, 0.3, 2.0, 1.0) > 0)


def pump(observation: np.ndarray) -> int:
    """MountainCar: push where it moves."""
    return 2 if observation[1] >= 0 else 0


def swing(observation: np.ndarray) -> int:
    """Acrobot: torque against the first joint's velocity bends the second in step with the swing."""
    return 0 if observation[4] > 0 else 2


def hold(observation: np.ndarray) -> np.ndarray:
    """Pendulum: a PD controller within the torque limit."""
    angle = math.atan2(observation[1], observation[0])
    return np.clip([-10.0 * angle - 2.0 * observation[2]], -2.0, 2.0).astype(np.float32)


CASES = (
    Case("CartPole, random", "CartPole-v1"),
    Case("CartPole, balancing 0.5", "CartPole-v1", balance, 0.5),
    Case("MountainCar, pumping", "MountainCar-v0", pump),
    Case("MountainCar, pumping 0.7", "MountainCar-v0", pump, 0.7),
    Case("Acrobot, swinging", "Acrobot-v1", swing),
    Case("Pendulum, random", "Pendulum-v1"),
    Case("Pendulum, PD", "Pendulum-v1", hold),
    Case("CartPole, balancing", "CartPole-v1", balance, constant=True),
    Case("MountainCar, random", "MountainCar-v0", constant=True),
)


class Truth(NamedTuple):
    """One trajectory with true values at some of its states."""

    transitions: Transitions
    states: np.ndarray
    values: np.ndarray
    stderr: np.ndarray


class _Snapshots(gym.Wrapper):
    """Copies the bare environment before the given steps, counted over episodes."""

    def __init__(self, env: gym.Env, steps: set[int]) -> None:
        super().__init__(env)
        self.steps, self.taken = steps, 0
        self.copies: list[tuple[np.ndarray, gym.Env]] = []
        self._observation: Any = None

    def reset(self, **options: Any) -> Any:
        self._observation, info = self.env.reset(**options)
        return self._observation, info

    def step(self, action: Any) -> Any:
        if self.taken in self.steps:
            self.copies.append((np.array(self._observation), copy.deepcopy(self.env.unwrapped)))
        self.taken += 1
        self._observation, *rest = self.env.step(action)
        return self._observation, *rest


def truth(case: Case, trajectory: int, cache: Path) -> Truth:
    """The case's trajectory and true values; computed once, then read from ``cache``."""
    path = cache / f"{''.join(c if c.isalnum() else '_' for c in case.name)}_{trajectory}"
    if not path.with_suffix(".values.npz").exists():
        cache.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng([trajectory, 1])
        steps = {int(k) for k in rng.choice(N_STEPS, N_STATES, replace=False)}
        env = _Snapshots(gym.make(case.env_id), steps)
        transitions = collect(env, case.policy(rng), N_STEPS, seed=trajectory)
        act = case.policy(rng)
        returns = [[_return(start, o, act) for _ in range(case.rollouts)] for o, start in env.copies]
        array = np.array(returns)
        n = array.shape[1]
        stderr = array.std(axis=1, ddof=1) / math.sqrt(n) if n > 1 else np.zeros(len(array))
        transitions_to_npz(transitions, path.with_suffix(".npz"))
        np.savez(
            path.with_suffix(".values.npz"), states=[o for o, _ in env.copies], values=array.mean(axis=1), stderr=stderr
        )
    stored = np.load(path.with_suffix(".values.npz"))
    return Truth(transitions_from_npz(path.with_suffix(".npz")), stored["states"], stored["values"], stored["stderr"])


def _return(start: gym.Env, observation: np.ndarray, act: Policy) -> float:
    env, total, discount = copy.deepcopy(start), 0.0, 1.0
    for _ in range(HORIZON):
        observation, reward, terminated, _, _ = env.step(act(observation))
        total += discount * float(reward)
        discount *= GAMMA
        if terminated:
            break
    return total
