"""In-context reinforcement learning with softmax attention.

Importing this package registers its environments with Gymnasium and loads no torch; the agent and the model load
on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icrl_agent.envs.registration import register_environments

if TYPE_CHECKING:
    from icrl_agent.agent import ICRLAgent
    from icrl_agent.results import Diagnostics, Evaluation
    from icrl_agent.wrappers import FeatureObservation, HistoryWrapper, PolicyWrapper

__version__ = "0.1.0"

__all__ = [
    "Diagnostics",
    "Evaluation",
    "FeatureObservation",
    "HistoryWrapper",
    "ICRLAgent",
    "PolicyWrapper",
    "__version__",
]

_LAZY = {
    "ICRLAgent": "icrl_agent.agent",
    "Evaluation": "icrl_agent.results",
    "Diagnostics": "icrl_agent.results",
    "HistoryWrapper": "icrl_agent.wrappers",
    "PolicyWrapper": "icrl_agent.wrappers",
    "FeatureObservation": "icrl_agent.wrappers",
}

register_environments()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
