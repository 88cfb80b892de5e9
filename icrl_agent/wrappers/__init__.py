"""Gymnasium wrappers: a policy folded in, features as observations, the history as a prompt.

Their versions for vector environments have the same names in ``icrl_agent.wrappers.vector``.
"""

from icrl_agent.wrappers.observation import FeatureObservation, HistoryWrapper
from icrl_agent.wrappers.policy import BoundPolicy, PolicyWrapper

__all__ = ["BoundPolicy", "FeatureObservation", "HistoryWrapper", "PolicyWrapper"]
