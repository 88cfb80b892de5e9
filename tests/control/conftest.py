"""Histories of a controller, read off one by one, and the literal prompt and layer on them."""

from __future__ import annotations

import gymnasium as gym
import pytest
import torch

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent import ICRLAgent
from icrl_agent.envs import garnet_mdp
from icrl_agent.model import SoftmaxICTD

DIM = 32
GAMMA = 0.9


def per_layer_model():
    """Five layers that all differ, A full and not symmetric."""
    model = SoftmaxICTD(DIM, n_layers=5, shared=False, dtype=torch.float64)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        shape = model.attention_weight.shape
        model.attention_weight.copy_(0.8 * torch.randn(shape, generator=noise, dtype=torch.float64))
        for layer in range(5):
            entries = torch.tensor([0.8, 0.6, -0.7], dtype=torch.float64) * (1 + 0.1 * layer)
            model.value_weight[layer, DIM + 2, DIM:] = entries
    return model


AGENTS = {
    "theory": lambda: ICRLAgent.from_theory(feature_dim=DIM, n_layers=40),
    "universal": lambda: ICRLAgent.from_pretrained("universal"),
    "per layer": lambda: ICRLAgent(per_layer_model()),
}


class History:
    """Wraps a controller and writes down every transition beside it: (obs, action, reward, next_obs, continues)."""

    def __init__(self, controller):
        self.controller, self.transitions = controller, []

    def act(self, obs):
        self.action = self.controller.act(obs)
        self.obs = obs
        return self.action

    def observe(self, reward, next_obs, terminated, truncated):
        self.controller.observe(reward, next_obs, terminated, truncated)
        self.transitions.append((self.obs, self.action, reward, next_obs, 0.0 if terminated else 1.0))


def play(history, env, n_steps, seed=0):
    obs, _ = env.reset(seed=seed)
    for _ in range(n_steps):
        obs, reward, terminated, truncated, _ = env.step(history.act(obs))
        history.observe(reward, obs, terminated, truncated)
        if terminated or truncated:
            obs, _ = env.reset()
    return obs


_GARNET = garnet_mdp(n_states=6, n_actions=3, branching=3, task_seed=1)
#: Six states, the last one terminal.
EPISODES = {
    "transition": _GARNET.transition,
    "reward": _GARNET.reward,
    "initial": [0.2] * 5 + [0.0],
    "terminal": [False] * 5 + [True],
}

ENVIRONMENTS = {
    "RandomMDP": lambda: gym.make("RandomMDP-v0", n_states=5, n_actions=3, task_seed=4),
    "episodes": lambda: gym.make("TabularMDP-v0", **EPISODES, max_episode_steps=7),
    "CartPole": lambda: gym.make("CartPole-v1", max_episode_steps=15),
}


def make(agent, environment="RandomMDP", **options):
    env = ENVIRONMENTS[environment]()
    return env, agent.controller(env, GAMMA, **{"seed": 1, **options})


@pytest.fixture(scope="session")
def agents():
    return {name: make() for name, make in AGENTS.items()}
