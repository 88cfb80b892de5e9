"""Environments of every kind, and the values of the literal float64 transformer on recorded transitions."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent import ICRLAgent

TABLES = {
    "transition": np.array([[[0.1, 0.9, 0.0], [0.0, 0.2, 0.8]], [[0.5, 0.0, 0.5], [0.9, 0.1, 0.0]], [[1, 0, 0]] * 2]),
    "reward": np.array([[1.0, -1.0], [0.5, 2.0], [0.0, 0.3]]),
    "initial": np.array([0.6, 0.4, 0.0]),
}

ENVIRONMENTS = {
    "BoyanChain-v0": {},
    "BoyanChainClassic-v0": {},
    "RandomMDP-v0": {},
    "TabularMDP-v0": TABLES,
    "FrozenLake-v1": {},
    "CliffWalking-v1": {"max_episode_steps": 30},
    "CartPole-v1": {},
    "MountainCar-v0": {"max_episode_steps": 25},
}
DISCRETE = [name for name in ENVIRONMENTS if name not in ("CartPole-v1", "MountainCar-v0")]


class Numbered(gym.Env):
    """A deterministic cycle over Discrete(5, start=first): state first + i pays i + 1 and goes to the next."""

    def __init__(self, first=1):
        self.first = first
        self.observation_space = gym.spaces.Discrete(5, start=first)
        self.action_space = gym.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.index = 0
        return self.first, {}

    def step(self, action):
        reward = float(self.index + 1)
        self.index = (self.index + 1) % 5
        return self.first + self.index, reward, False, False, {}


def literal_values_of(model, transitions, feature_map, queries, gamma, n_layers=None):
    """One prompt from the transitions' columns, an end column after every episode, and one column per query."""
    observations, rewards, sources, continues = [], [], [], []

    def column(observation, reward, is_source, c):
        observations.append(observation)
        rewards.append(reward)
        sources.append(is_source)
        continues.append(c)

    for one in np.unique(transitions.copy):
        rows = np.flatnonzero(transitions.copy == one)
        for i in rows:
            ended = transitions.terminated[i] or transitions.truncated[i]
            column(transitions.observations[i], transitions.rewards[i], True, 0.0 if transitions.terminated[i] else 1.0)
            if ended or i == rows[-1]:
                column(transitions.next_observations[i], 0.0, False, 1.0)
    for query in queries:
        column(query, 0.0, False, 1.0)
    x = feature_map(np.array(observations))
    prompt = np.concatenate([x.T, [rewards], np.zeros((2, len(rewards)))])
    values = (
        copy.deepcopy(model)
        .double()
        .values(
            torch.tensor(prompt)[None],
            gamma,
            source_mask=torch.tensor(sources)[None],
            continues=torch.tensor(continues)[None],
            n_layers=n_layers,
        )
    )
    return values[0, len(rewards) - len(queries) :].detach().numpy()


@pytest.fixture(scope="session")
def agent():
    return ICRLAgent.from_theory()


@pytest.fixture(scope="session")
def make_env():
    def make(name, **changes):
        return gym.make(name, **{**ENVIRONMENTS[name], **changes})

    return make


@pytest.fixture(scope="session")
def literal_values():
    return literal_values_of


@pytest.fixture(scope="session")
def numbered():
    return Numbered


def pytest_generate_tests(metafunc):
    if "any_env" in metafunc.fixturenames:
        metafunc.parametrize("any_env", ENVIRONMENTS)
    if "discrete_env" in metafunc.fixturenames:
        metafunc.parametrize("discrete_env", DISCRETE)
