"""In-context control: the frozen layers evaluate state-action pairs, and the agent acts on what they say."""

from icrl_agent.control.controller import Controller
from icrl_agent.control.exploration import Epsilon, Exploration, Optimism

__all__ = ["Controller", "Epsilon", "Exploration", "Optimism"]
