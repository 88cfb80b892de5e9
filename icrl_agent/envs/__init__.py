"""Tabular tasks, their exact solutions, and the Gymnasium and vector environments that play them."""

from icrl_agent.envs.optimal import expected_return, normalised_return, optimal_values
from icrl_agent.envs.registration import ENVIRONMENT_IDS, register_environments
from icrl_agent.envs.solve import NoUniqueSolution, check_gamma, state_values, stationary_distribution
from icrl_agent.envs.tables import TabularMDP, TabularMRP, check_policy
from icrl_agent.envs.tasks import classic_boyan_chain, garnet_mdp, random_boyan_chain

__all__ = [
    "ENVIRONMENT_IDS",
    "NoUniqueSolution",
    "TabularMDP",
    "TabularMRP",
    "check_gamma",
    "check_policy",
    "classic_boyan_chain",
    "expected_return",
    "garnet_mdp",
    "normalised_return",
    "optimal_values",
    "random_boyan_chain",
    "register_environments",
    "state_values",
    "stationary_distribution",
]
