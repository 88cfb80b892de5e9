"""Tasks and environment ids that the tests of icrl_agent.envs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import icrl_agent  # noqa: F401  (registers the ids)
from icrl_agent.envs import ENVIRONMENT_IDS, TabularMDP, TabularMRP, classic_boyan_chain, garnet_mdp, random_boyan_chain

# Three states and an end, two actions; plain lists, so that the spec can be written as JSON.
TABLES: dict[str, Any] = {
    "transition": [
        [[0.2, 0.5, 0.3, 0.0], [0.0, 0.0, 0.6, 0.4]],
        [[0.0, 0.1, 0.9, 0.0], [0.7, 0.0, 0.0, 0.3]],
        [[0.5, 0.0, 0.0, 0.5], [0.25, 0.25, 0.25, 0.25]],
        [[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]],
    ],
    "reward": [[1.0, -1.0], [0.5, 2.0], [-0.25, 3.0], [0.0, 0.0]],
    "initial": [0.5, 0.25, 0.25, 0.0],
    "terminal": [False, False, False, True],
}
KWARGS: dict[str, dict[str, Any]] = {
    "BoyanChain-v0": {"n_states": 6, "task_seed": 3},
    "BoyanChainClassic-v0": {},
    "RandomMDP-v0": {"n_states": 6, "n_actions": 3, "task_seed": 3},
    "TabularMDP-v0": TABLES,
}


class Case(NamedTuple):
    """A registered id with arguments for it."""

    id: str
    kwargs: dict[str, Any]

    def make(self, **more: Any) -> gym.Env[Any, Any]:
        return gym.make(self.id, **{**self.kwargs, **more})

    def make_vec(self, num_envs: int, **more: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
        return gym.make_vec(self.id, num_envs=num_envs, **{**self.kwargs, **more})


@pytest.fixture(params=ENVIRONMENT_IDS)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param, KWARGS[request.param])


@pytest.fixture(params=["BoyanChain-v0", "RandomMDP-v0"])
def seeded_case(request: pytest.FixtureRequest) -> Case:
    """An id whose tables come from a task seed."""
    return Case(request.param, KWARGS[request.param])


@pytest.fixture(params=["BoyanChainClassic-v0", "TabularMDP-v0"])
def fixed_case(request: pytest.FixtureRequest) -> Case:
    """An id with one fixed task, which terminates."""
    return Case(request.param, KWARGS[request.param])


@pytest.fixture
def example_mdp() -> TabularMDP:
    return TabularMDP(**TABLES)


def _episodic(seed: int) -> TabularMRP:
    """A Garnet process in which some states are made terminal."""
    mdp = garnet_mdp(n_states=8, n_actions=2, branching=3, task_seed=seed)
    terminal = np.arange(8) >= 6
    initial = np.where(terminal, 0.0, 1.0 / 6)
    return TabularMDP(mdp.transition, mdp.reward, initial, terminal).policy_mrp()


@pytest.fixture(params=["boyan", "garnet", "episodic", "classic"])
def mrp_family(request: pytest.FixtureRequest) -> Callable[[int], TabularMRP]:
    """A function from a seed to a reward process, one per kind of task."""
    makers: dict[str, Callable[[int], TabularMRP]] = {
        "boyan": lambda seed: random_boyan_chain(5 + seed % 20, seed)[0].policy_mrp(),
        "garnet": lambda seed: garnet_mdp(5 + seed % 20, 3, 4, seed).policy_mrp(),
        "episodic": _episodic,
        "classic": lambda seed: classic_boyan_chain().policy_mrp(),
    }
    return makers[request.param]
