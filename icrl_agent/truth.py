"""Finds the true values behind an environment, where they are certain.

They are certain where tables are there (``unwrapped.mdp`` or toy-text ``P``), every wrapper in between is known to
change neither rewards nor observations nor actions, and the policy is a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import wrappers as gym_wrappers
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from icrl_agent.collect import is_sb3_vec_env, single_spaces, without_history
from icrl_agent.envs.solve import NoUniqueSolution, stationary_distribution
from icrl_agent.envs.tables import TabularMDP, TabularMRP
from icrl_agent.envs.tabular_env import TabularEnv
from icrl_agent.envs.vector import TabularVectorEnv
from icrl_agent.metrics import centred_msve, msve, normalized_msve
from icrl_agent.wrappers.policy import BoundPolicy, PolicyLike, PolicyWrapper
from icrl_agent.wrappers.vector import PolicyWrapper as VectorPolicyWrapper

__all__ = ["Task", "decision_process", "induced_process", "induced_processes", "value_errors"]

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
)
_TRANSPARENT_VECTOR = (gym_wrappers.vector.RecordEpisodeStatistics,)


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
    return _processes(env, policy, per_env=False)[0]


def induced_processes(env: Any, policy: PolicyLike) -> list[Task]:
    """The process of every copy of a vector environment; the copies may play different tables.

    Raises:
        ValueError: if a policy table does not fit.
    """
    return _processes(env, policy, per_env=True)


def _processes(env: Any, policy: PolicyLike, *, per_env: bool) -> list[Task]:
    env = without_history(env)
    known: dict[tuple[int, int], Task] = {}

    def process(tables: _Tables) -> Task:
        if tables.mdp is None:
            return Task(None, tables.reason)
        bound = tables.policies[0] if tables.policies else given
        key = id(tables.mdp), id(bound)
        if key not in known:
            table = bound.table()
            known[key] = (
                Task(None, "the policy is no table: its action probabilities are not known")
                if table is None
                else Task(tables.mdp.policy_mrp(table), None)
            )
        return known[key]

    copies = _tables(env, per_env)
    if any(tables.mdp is not None and not tables.policies for tables in copies):
        given = BoundPolicy(policy, *single_spaces(env))
    return [process(tables) for tables in copies]


def decision_process(env: Any) -> tuple[TabularMDP | None, str | None]:
    """The decision process that a single environment plays, where that is certain, or the reason why it is unknown."""
    (tables,) = _tables(without_history(env), per_env=False)
    if tables.policies:
        return None, "a policy is folded in: there are no decisions left"
    return tables.mdp, tables.reason


def _tables(env: Any, per_env: bool) -> list[_Tables]:
    """Of every copy, or (not per_env) once for all copies."""
    if isinstance(env, gym.Env):
        return [_single_tables(env)]
    times = env.num_envs if per_env else 1
    if isinstance(env, VectorWrapper):
        below = _tables(env.env, per_env)
        if type(env) is VectorPolicyWrapper:
            # A policy that is folded in further below acts on the tables; this one has a single action.
            return [tables if tables.policies else tables._replace(policies=[env.policy]) for tables in below]
        return below if type(env) in _TRANSPARENT_VECTOR else [_unknown_wrapper(env)] * times
    if isinstance(env, TabularVectorEnv):
        return [_Tables(env.mdp, [], None)] * times
    if isinstance(env, SyncVectorEnv):
        return _listed_tables(env.envs, per_env)
    if is_sb3_vec_env(env) and "venv" in vars(env):  # a VecEnvWrapper, which passes on its inner attributes
        below = _tables(env.venv, per_env)
        known = _is_sb3(env, "vec_env.vec_monitor", "vec_env.vec_check_nan")
        return below if known else [_unknown_wrapper(env)] * times
    if is_sb3_vec_env(env) and isinstance(getattr(env, "envs", None), list):
        return _listed_tables(env.envs, per_env)
    if isinstance(env, VectorEnv) and not isinstance(env, AsyncVectorEnv):
        return [_Tables(None, [], f"{type(env).__name__} has no tables of its transitions")] * times
    # Copies in other processes: their wrappers are out of sight, but different tasks still must not be mixed.
    if not per_env:
        _refuse_different_tables(list(_remote_tables(env)))
    reason = f"the copies of {type(env).__name__} run in other processes, their wrappers are unknown"
    return [_Tables(None, [], reason)] * times


def _remote_tables(env: Any) -> list[TabularMDP]:
    if isinstance(env, AsyncVectorEnv):
        return list(env.get_attr("mdp")) if all(env.call("has_wrapper_attr", "mdp")) else []
    if is_sb3_vec_env(env) and hasattr(env, "has_attr") and env.has_attr("mdp"):
        return list(env.get_attr("mdp"))
    return []


def _single_tables(env: gym.Env[Any, Any]) -> _Tables:
    policies: list[BoundPolicy] = []
    while isinstance(env, gym.Wrapper):
        if type(env) is PolicyWrapper:
            policies.append(env.policy)
        elif type(env) not in _TRANSPARENT and not _is_sb3(env, "monitor"):
            return _unknown_wrapper(env)
        env = env.env
    mdp = _own_tables(env)
    if mdp is None:
        return _Tables(None, [], f"{type(env).__name__} has no tables of its transitions")
    return _Tables(mdp, policies[-1:], None)


def _own_tables(env: gym.Env[Any, Any]) -> TabularMDP | None:
    mdp = getattr(env, "mdp", None)
    if isinstance(env, TabularEnv) and (type(env).step, type(env).reset) != (TabularEnv.step, TabularEnv.reset):
        return None  # a subclass that plays differently from its tables
    if isinstance(mdp, TabularMDP):
        return mdp
    try:
        return TabularMDP.from_gymnasium(env)
    except ValueError:
        return None


def _refuse_different_tables(mdps: list[TabularMDP | None]) -> None:
    known = [(number, mdp) for number, mdp in enumerate(mdps) if mdp is not None]
    for number, mdp in known[1:]:
        if not known[0][1].same_tables(mdp):
            raise ValueError(
                f"copies {known[0][0]} and {number} play different tasks: one context needs copies with equal tables"
                " (give task_seed)"
            )


def _listed_tables(envs: Sequence[gym.Env[Any, Any]], per_env: bool) -> list[_Tables]:
    """Those of every copy, or those that all share; different ones are then refused whatever wraps them."""
    if not per_env:
        _refuse_different_tables([_own_tables(env.unwrapped) for env in envs])
    copies = [_single_tables(env) for env in envs]
    return copies if per_env else [_same_tables(copies)]


def _same_tables(copies: list[_Tables]) -> _Tables:
    """The tables of the first copy, if all copies' tables and policies are known and the policies agree."""
    for number, copy in enumerate(copies):
        if copy.mdp is None:
            return copy
        if not np.array_equal(_policy_table(copies[0]), _policy_table(copy)):
            return _Tables(None, [], f"copies 0 and {number} follow different policies")
    return copies[0] if copies else _Tables(None, [], None)


def _policy_table(tables: _Tables) -> Any:
    return tables.policies[0].table() if tables.policies else None


def _unknown_wrapper(env: Any) -> _Tables:
    return _Tables(None, [], f"the wrapper {type(env).__name__} may change rewards, observations or actions")


def _is_sb3(env: Any, *modules: str) -> bool:
    # By module name, because SB3 is not imported here.
    return type(env).__module__ in {f"stable_baselines3.common.{module}" for module in modules}


def value_errors(
    values: NDArray[np.float64],
    states: NDArray[Any],
    task: Task,
    true_values: NDArray[np.float64] | None,
    *,
    all_states: bool,
) -> tuple[dict[str, float | None], str | None]:
    """The three error measures, None where unknown, and the reason."""
    unknown: dict[str, float | None] = {"msve": None, "normalized_msve": None, "centred_msve": None}
    if task.mrp is None or true_values is None:
        return unknown, task.reason
    if not all_states or len(states) != task.mrp.n_states:
        return unknown, "errors are weighted over all states, but only some were answered"
    try:
        weights = stationary_distribution(task.mrp)
    except NoUniqueSolution as error:
        return unknown, str(error)
    errors: dict[str, float | None] = {
        "msve": msve(values, true_values, weights),
        "normalized_msve": normalized_msve(values, true_values, weights),
        "centred_msve": centred_msve(values, true_values, weights),
    }
    undefined = [name for name, error in errors.items() if error is None or np.isnan(error)]
    reason = f"{' and '.join(undefined)} would divide by 0: the true values do not vary" if undefined else None
    return {name: None if name in undefined else error for name, error in errors.items()}, reason
