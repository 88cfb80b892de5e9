"""Finds the true values behind an environment, where they are certain.

They are certain where tables are there (``unwrapped.mdp`` or toy-text ``P``), every wrapper in between is known to
change neither rewards nor observations nor actions, and the policy is a table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import wrappers as gym_wrappers
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorWrapper

from icrl_agent.collect import is_sb3_vec_env, single_spaces, without_history
from icrl_agent.envs.tables import TabularMDP, TabularMRP
from icrl_agent.envs.vector import TabularVectorEnv
from icrl_agent.wrappers.observation import HistoryWrapper
from icrl_agent.wrappers.policy import BoundPolicy, PolicyLike, PolicyWrapper
from icrl_agent.wrappers.vector import HistoryWrapper as VectorHistoryWrapper
from icrl_agent.wrappers.vector import PolicyWrapper as VectorPolicyWrapper

__all__ = ["Task", "induced_process"]

#: Wrappers that leave rewards, observations and actions as they are (a time limit is no end: it bootstraps).
_TRANSPARENT = (
    gym_wrappers.OrderEnforcing,
    gym_wrappers.PassiveEnvChecker,
    gym_wrappers.TimeLimit,
    gym_wrappers.Autoreset,
    gym_wrappers.RecordEpisodeStatistics,
    gym_wrappers.RecordVideo,
    gym_wrappers.RenderCollection,
    gym_wrappers.HumanRendering,
    HistoryWrapper,
)
_TRANSPARENT_VECTOR = (gym_wrappers.vector.RecordEpisodeStatistics, VectorHistoryWrapper)


class Task(NamedTuple):
    """The reward process that a policy induces, or the reason why it is unknown."""

    mrp: TabularMRP | None
    reason: str | None


class _Tables(NamedTuple):
    mdp: TabularMDP | None
    policies: list[BoundPolicy]
    reason: str | None


def induced_process(env: Any, policy: PolicyLike) -> Task:
    """The Markov reward process that ``env`` under ``policy`` is, where that is certain.

    Raises:
        ValueError: if the copies of a vector environment play different tables, or a policy table does not fit.
    """
    tables = _tables(env)
    if tables.mdp is None:
        return Task(None, tables.reason)
    bound = tables.policies[0] if tables.policies else BoundPolicy(policy, *single_spaces(without_history(env)))
    table = bound.table()
    if table is None:
        return Task(None, "the policy is no table: its action probabilities are not known")
    return Task(tables.mdp.policy_mrp(table), None)


def _tables(env: Any) -> _Tables:
    if isinstance(env, gym.Env):
        return _single_tables(env)
    if isinstance(env, VectorWrapper):
        below = _tables(env.env)
        if isinstance(env, VectorPolicyWrapper):
            return below._replace(policies=[env.policy])
        return below if isinstance(env, _TRANSPARENT_VECTOR) else _unknown_wrapper(env)
    if isinstance(env, TabularVectorEnv):
        return _Tables(env.mdp, [], None)
    if isinstance(env, SyncVectorEnv):
        return _same_tables([_single_tables(copy) for copy in env.envs])
    if is_sb3_vec_env(env) and isinstance(getattr(env, "envs", None), list):
        return _same_tables([_single_tables(copy) for copy in env.envs])
    # Copies in other processes: their wrappers are out of sight, but different tasks still must not be mixed.
    _same_tables([_Tables(mdp, [], None) for mdp in _remote_tables(env)])
    return _Tables(None, [], f"the copies of {type(env).__name__} run in other processes, their wrappers are unknown")


def _remote_tables(env: Any) -> list[TabularMDP]:
    if isinstance(env, AsyncVectorEnv):
        return list(env.get_attr("mdp")) if all(env.call("has_wrapper_attr", "mdp")) else []
    if is_sb3_vec_env(env) and hasattr(env, "has_attr") and env.has_attr("mdp"):
        return list(env.get_attr("mdp"))
    return []


def _single_tables(env: gym.Env[Any, Any]) -> _Tables:
    policies: list[BoundPolicy] = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, PolicyWrapper):
            policies.append(env.policy)
        elif type(env) not in _TRANSPARENT and not _is_sb3_monitor(env):
            return _unknown_wrapper(env)
        env = env.env
    mdp = getattr(env, "mdp", None)
    if isinstance(mdp, TabularMDP):
        return _Tables(mdp, policies[-1:], None)
    try:
        return _Tables(TabularMDP.from_gymnasium(env), policies[-1:], None)
    except ValueError:
        return _Tables(None, [], f"{type(env).__name__} has no tables of its transitions")


def _same_tables(copies: list[_Tables]) -> _Tables:
    """The tables all copies share, if they do."""
    for number, copy in enumerate(copies):
        if copy.mdp is None:
            return copy
        first = copies[0].mdp
        assert first is not None
        if not np.array_equal(_policy_table(copies[0]), _policy_table(copy)):
            return _Tables(None, [], f"copies 0 and {number} follow different policies")
        if not first.same_tables(copy.mdp):
            raise ValueError(
                f"copies 0 and {number} play different tasks: one context needs copies with equal tables"
                " (give task_seed)"
            )
    return copies[0] if copies else _Tables(None, [], None)


def _policy_table(tables: _Tables) -> Any:
    return tables.policies[0].table() if tables.policies else None


def _unknown_wrapper(env: Any) -> _Tables:
    return _Tables(None, [], f"the wrapper {type(env).__name__} may change rewards, observations or actions")


def _is_sb3_monitor(env: gym.Env[Any, Any]) -> bool:
    return type(env).__module__ == "stable_baselines3.common.monitor"
