"""Everything that is compared: the frozen agent, classical estimators, and Stable-Baselines3 critics that train.

A method turns the first k of a task's transitions into values of all its states, for every budget k, and says what that
took: seconds beyond the environment's steps, optimiser updates, parameters changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from icrl_agent.agent import ICRLAgent
from icrl_agent.algorithms.classical import certainty_equivalence, linear_td, lstd, monte_carlo, tabular_td
from icrl_agent.eval.baselines import SB3Baseline
from icrl_agent.eval.sb3_models import BaselineKind
from icrl_agent.features import FeatureMap, RandomFourier, RandomUnit
from icrl_agent.transitions import Transitions

__all__ = ["METHODS", "Outcome", "TaskData", "method_names"]

FloatArray = NDArray[np.float64]

FEATURE_DIM = 32


@dataclass(frozen=True, eq=False)
class TaskData:
    """One task's transitions, and what every method may know."""

    transitions: Transitions
    observation_space: spaces.Discrete
    gamma: float
    seed: int
    log_dir: Path | None = None
    """Folder for a critic's own TensorBoard log; None = no log."""

    @property
    def n_states(self) -> int:
        """Number of states."""
        return int(self.observation_space.n)

    @property
    def features(self) -> FeatureMap:
        """The agent's own features: random directions, others for every task."""
        return RandomUnit(self.n_states, FEATURE_DIM, self.seed)


class Outcome(NamedTuple):
    """Values after ``n_steps`` transitions, and their cost."""

    n_steps: int
    values: FloatArray
    seconds: float
    gradient_updates: int
    parameters_changed: int


Method = Callable[[TaskData, Sequence[int]], list[Outcome]]


def method_names(pattern: str = "") -> list[str]:
    """Names of the methods that contain a text.

    Raises:
        ValueError: if none does; it lists all.
    """
    chosen = [name for name in METHODS if pattern.lower() in name.lower()]
    if not chosen:
        raise ValueError(f"no method is called {pattern!r}; methods: {'; '.join(METHODS)}")
    return chosen


def _agent(make: Callable[[], ICRLAgent], *, order: bool = False) -> Method:
    def run(task: TaskData, budgets: Sequence[int]) -> list[Outcome]:
        agent = make()
        before = {name: tensor.clone() for name, tensor in agent.model.state_dict().items()}
        feature_map = RandomFourier(0.0, 1.0, FEATURE_DIM, 1.0, task.seed) if order else task.features
        states = np.arange(task.n_states)
        agent.evaluate_transitions(task.transitions.first(2), task.gamma, states, 2, feature_map)  # warm
        outcomes = []
        for budget in budgets:
            depth = 150 if agent.model.n_layers == 60 and budget >= 1000 else None
            context = task.transitions.first(budget)
            result = agent.evaluate_transitions(context, task.gamma, states, depth, feature_map)
            after = agent.model.state_dict()
            changed = sum(int((after[name] != tensor).sum()) for name, tensor in before.items())
            outcomes.append(Outcome(budget, result.values, result.seconds, 0, changed))
        return outcomes

    return run


def _classical(estimate: Callable[..., FloatArray], **options: Any) -> Method:
    """A function of ``algorithms.classical``; ``features=True`` gives it the agent's features and a constant 1."""
    with_features = options.pop("features", False)

    def run(task: TaskData, budgets: Sequence[int]) -> list[Outcome]:
        extra = dict(options)
        if with_features:
            extra["features"] = np.column_stack([task.features(np.arange(task.n_states)), np.ones(task.n_states)])
        outcomes = []
        for budget in budgets:
            columns = task.transitions.first(budget).columns()
            start = time.perf_counter()
            values = estimate(
                columns.observations,
                columns.rewards,
                task.gamma,
                task.n_states,
                continues=columns.continues,
                source_mask=columns.source_mask,
                **extra,
            )
            outcomes.append(Outcome(budget, values, time.perf_counter() - start, 0, 0))
        return outcomes

    return run


def _constant(task: TaskData, budgets: Sequence[int]) -> list[Outcome]:
    """The mean return of an endless process with the mean reward: the level alone."""
    means = [float(task.transitions.rewards[:budget].mean()) / (1.0 - task.gamma) for budget in budgets]
    return [Outcome(b, np.full(task.n_states, m), 0.0, 0, 0) for b, m in zip(budgets, means, strict=True)]


def _sb3(kind: BaselineKind, net_arch: tuple[int, ...] = (), *, own: bool = False, **options: Any) -> Method:
    def run(task: TaskData, budgets: Sequence[int]) -> list[Outcome]:
        baseline = SB3Baseline(kind, net_arch, features=task.features if own else "one_hot", **options)
        records = baseline.fit_transitions(
            task.transitions.first(max(budgets)),
            task.observation_space,
            task.gamma,
            task.seed,
            record_at=budgets,
            record_states=np.arange(task.n_states),
            log_dir=task.log_dir,
        )
        n_parameters = sum(p.numel() for p in baseline.model.policy.parameters())
        return [
            Outcome(r.n_steps, r.values, r.seconds, r.gradient_updates, n_parameters if r.gradient_updates else 0)
            for r in records
        ]

    return run


def _decaying(numerator: float, offset: float) -> Callable[[int], float]:
    return lambda k: numerator / (offset + k + 1)


#: Everything that can be compared, by the name tables show.
METHODS: dict[str, Method] = {
    "frozen agent, theorem": _agent(ICRLAgent.from_theory),
    "frozen agent, universal": _agent(lambda: ICRLAgent.from_pretrained("universal")),
    "frozen agent, theorem, ordered features": _agent(ICRLAgent.from_theory, order=True),
    "frozen agent, order": _agent(lambda: ICRLAgent.from_pretrained("order"), order=True),
    "constant mean(r)/(1-gamma)": _constant,
    "certainty equivalence, mean fill": _classical(certainty_equivalence, never_left="mean"),
    "certainty equivalence, zero fill": _classical(certainty_equivalence, never_left="zero"),
    "LSTD, one-hot": _classical(lstd, ridge=1e-3),
    "LSTD, own features": _classical(lstd, features=True, ridge=1e-3),
    "tabular TD(0)": _classical(tabular_td, step_size=_decaying(200.0, 199.0)),
    "linear TD(0), own features": _classical(linear_td, features=True, step_size=_decaying(30.0, 59.0)),
    "Monte Carlo": _classical(monte_carlo),
    "SB3 TD(0), linear, one-hot": _sb3("td0"),
    "SB3 TD(0), linear, own features": _sb3("td0", own=True),
    "SB3 DQN, linear, one-hot": _sb3("dqn"),
    "SB3 DQN, 10 updates per step, linear, one-hot": _sb3("dqn", updates_per_step=10),
    "SB3 DQN, linear, own features": _sb3("dqn", own=True),
    "SB3 DQN, [64], one-hot": _sb3("dqn", (64,)),
    "SB3 DQN, [64], own features": _sb3("dqn", (64,), own=True),
    "SB3 A2C, linear, one-hot": _sb3("a2c"),
    "SB3 A2C, linear, own features": _sb3("a2c", own=True),
    "SB3 A2C, [64], one-hot": _sb3("a2c", (64,)),
    "SB3 A2C, [64], own features": _sb3("a2c", (64,), own=True),
    "SB3 PPO, linear, one-hot": _sb3("ppo"),
    "SB3 PPO, linear, own features": _sb3("ppo", own=True),
    "SB3 PPO, [64], one-hot": _sb3("ppo", (64,)),
    "SB3 PPO, [64], own features": _sb3("ppo", (64,), own=True),
    "SB3 DQN, defaults": _sb3("dqn", defaults=True),
    "SB3 A2C, defaults": _sb3("a2c", defaults=True),
    "SB3 PPO, defaults": _sb3("ppo", defaults=True),
}
