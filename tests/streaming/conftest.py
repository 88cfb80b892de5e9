"""Histories of random episodes, and the values of the literal float64 transformer on what a window keeps of them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from icrl_agent import ICRLAgent
from icrl_agent.features import RandomFourier, RandomUnit
from icrl_agent.model import SoftmaxICTD

DIM = 32
FEATURES = {
    "few states": RandomUnit(6, DIM, seed=1),
    "every state new": RandomFourier((0.0, 0.0), (1.0, 1.0), DIM, seed=1),
}


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
    "theory": lambda: ICRLAgent.from_theory(n_layers=60),
    "universal": lambda: ICRLAgent.from_pretrained("universal"),
    "per layer": lambda: ICRLAgent(per_layer_model()),
}


def random_events(rng, features, n_events):
    """Resets (also twice in a row and in mid-episode) and steps with every combination of flags."""

    def observation():
        return int(rng.integers(6)) if features == "few states" else rng.uniform(-1, 1, 2)

    yield "reset", observation()
    ended = False
    for _ in range(n_events):
        if ended or rng.random() < 0.08:
            yield "reset", observation()
            ended = False
        else:
            terminated, truncated = rng.random(2) < 0.12
            truncated = truncated or (terminated and rng.random() < 0.3)
            yield "append", rng.uniform(-1, 1), observation(), bool(terminated), bool(truncated)
            ended = terminated or truncated


class LiteralWindow:
    """The last ``context_length`` columns, written one by one; the values of one prompt through the literal layers."""

    def __init__(self, agent, feature_map, gamma, context_length, n_layers=None):
        self.model = copy.deepcopy(agent.model).double()
        self.feature_map, self.gamma, self.n_layers = feature_map, gamma, n_layers
        self.context_length = 10**9 if context_length is None else context_length
        self.columns, self.present, self.has_steps = [], None, False

    def reset(self, obs):
        if self.has_steps:
            self.columns.append((self.present, 0.0, False, 1.0))
        self.present, self.has_steps = obs, False

    def append(self, reward, next_obs, terminated, truncated):
        self.columns.append((self.present, reward, True, 0.0 if terminated else 1.0))
        self.present, self.has_steps = next_obs, True

    def values(self, queries):
        self.columns = self.columns[-self.context_length :]
        rows = [*self.columns, (self.present, 0.0, False, 1.0), *((query, 0.0, False, 1.0) for query in queries)]
        observations, rewards, sources, continues = zip(*rows, strict=True)
        prompt = np.concatenate([self.feature_map(np.array(observations)).T, [rewards], np.zeros((2, len(rows)))])
        masks = {"source_mask": torch.tensor(sources)[None], "continues": torch.tensor(continues)[None]}
        with torch.no_grad():
            values = self.model.values(torch.tensor(prompt)[None], self.gamma, **masks, n_layers=self.n_layers)
        return values[0, len(rows) - len(queries) :].numpy()


@pytest.fixture(scope="session")
def agents():
    return {name: make() for name, make in AGENTS.items()}
