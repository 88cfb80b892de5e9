"""Registers this package's environments with Gymnasium."""

from __future__ import annotations

import gymnasium as gym

__all__ = ["ENVIRONMENT_IDS", "register_environments"]

_ENTRY_POINTS = {
    "BoyanChain-v0": ("icrl_agent.envs.boyan:BoyanChainEnv", "icrl_agent.envs.vector:boyan_chain"),
    "BoyanChainClassic-v0": (
        "icrl_agent.envs.boyan:BoyanChainClassicEnv",
        "icrl_agent.envs.vector:boyan_chain_classic",
    ),
    "RandomMDP-v0": ("icrl_agent.envs.decision:RandomMDPEnv", "icrl_agent.envs.vector:random_mdp"),
    "TabularMDP-v0": ("icrl_agent.envs.decision:TabularMDPEnv", "icrl_agent.envs.vector:tabular_mdp"),
}

#: The registered ids.
ENVIRONMENT_IDS = tuple(_ENTRY_POINTS)


def register_environments() -> None:
    """Register every id that is not registered yet; calling it again does nothing.

    >>> register_environments()
    >>> "BoyanChain-v0" in gym.registry
    True
    """
    for env_id, (entry_point, vector_entry_point) in _ENTRY_POINTS.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=entry_point, vector_entry_point=vector_entry_point)
