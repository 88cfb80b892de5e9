"""What in-context control is compared with: tabular Q-learning and SARSA, value iteration, Stable-Baselines3's DQN.

Every rival acts in an environment with Discrete spaces from a seeded reset and returns its action values (S, A) after
given steps; nothing is replayed, everybody gathers experience of their own. Settings are the best of
``benchmarks/control_sweep.py``, which tunes on other tasks than any comparison reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from icrl_agent.collect import preserved_generators
from icrl_agent.control.exploration import Epsilon, Exploration, Optimism, epsilon_greedy

__all__ = ["TABULAR", "Tabular", "dqn", "tabular_control", "value_iteration_control"]

FloatArray = NDArray[np.float64]

#: Sweeps of value iteration per refresh, at most.
_MOST_SWEEPS = 10_000


@dataclass(frozen=True)
class Tabular:
    """Settings of tabular Q-learning or SARSA.

    The step size of the n-th update of a pair is ``step_size`` where ``horizon`` is None, else
    step_size horizon / (horizon - 1 + n): 1/n at 1 and 1, slower with a larger horizon.
    """

    step_size: float
    horizon: float | None
    exploration: Exploration

    def alpha(self, n: float) -> float:
        """Step size of a pair's n-th update."""
        return self.step_size if self.horizon is None else self.step_size * self.horizon / (self.horizon - 1.0 + n)


#: The best of benchmarks/control_sweep.py, with epsilon-greedy exploration and with any.
TABULAR: dict[str, Tabular] = {
    "Q-learning": Tabular(1.0, 1.0, Epsilon(1.0, 0.1, 1000)),
    "SARSA": Tabular(1.0, 1.0, Epsilon(1.0, 0.1, 1000)),
    "Q-learning, optimistic": Tabular(0.1, None, Optimism(1.0)),
    "SARSA, optimistic": Tabular(0.1, None, Optimism(1.0)),
}


def tabular_control(
    env: gym.Env[Any, Any],
    record_at: Sequence[int],
    gamma: float,
    settings: Tabular,
    seed: int,
    on_policy: bool = False,
) -> list[FloatArray]:
    """Tabular Q-learning (Watkins, 1989), or SARSA (Rummery and Niranjan, 1994) where ``on_policy``.

        q(S, A) += alpha (R + gamma max_a q(S', a) - q(S, A))        on_policy: q(S', A') instead of the maximum

    Args:
        env: a single environment with Discrete spaces that start at 0.
        record_at: steps, rising; the last one ends the run.
        gamma: discount factor in [0, 1].
        settings: step size and exploration; an optimist acts on q + scale / sqrt(1 + N).
        seed: of the environment and the actions.
        on_policy: SARSA.

    Returns:
        Action values (S, A) after each of these steps.
    """
    n_states, n_actions = _sizes(env)
    q, counts = np.zeros((2, n_states, n_actions))
    rng = np.random.default_rng(seed)
    records = []
    obs, _ = env.reset(seed=seed)
    action = _choose(q[obs], counts[obs], settings.exploration, 0, rng)
    for step in range(1, record_at[-1] + 1):
        next_obs, reward, terminated, truncated, _ = env.step(action)
        next_action = _choose(q[next_obs], counts[next_obs], settings.exploration, step, rng)
        counts[obs, action] += 1
        v_t = q[next_obs, next_action] if on_policy else q[next_obs].max()
        delta_t = float(reward) + gamma * (0.0 if terminated else v_t) - q[obs, action]
        q[obs, action] += settings.alpha(counts[obs, action]) * delta_t
        obs, action = next_obs, next_action
        if terminated or truncated:
            obs, _ = env.reset()
            action = _choose(q[obs], counts[obs], settings.exploration, step, rng)
        if step in record_at:
            records.append(q.copy())
    return records


def value_iteration_control(
    env: gym.Env[Any, Any],
    record_at: Sequence[int],
    gamma: float,
    exploration: Exploration,
    seed: int,
    refresh_every: int = 20,
) -> list[FloatArray]:
    """Act on the optimal values of the empirical model: what the greedy layers converge to, by a solver and tables.

        q(s, a) = (R(s, a) + gamma sum_s' C(s, a, s') max_a' (q + b)(s', a')) / N(s, a)      to convergence
        q(s, a) = sum N q / sum N                                                    where N(s, a) = 0: the same blend

    with b = scale / sqrt(1 + N) for an optimist, else 0. Arguments and result as in ``tabular_control``; the values
    that act are solved for every ``refresh_every`` steps, those returned have no bonus.
    """
    n_states, n_actions = _sizes(env)
    counts, rewards = np.zeros((2, n_states, n_actions))
    successors = np.zeros((n_states, n_actions, n_states))
    acting = np.zeros((n_states, n_actions))
    rng = np.random.default_rng(seed)
    records = []
    obs, _ = env.reset(seed=seed)
    for step in range(1, record_at[-1] + 1):
        if (step - 2) % refresh_every == 0:
            bonus = exploration.bonus(counts) if isinstance(exploration, Optimism) else np.zeros_like(counts)
            acting = _solved(counts, rewards, successors, gamma, bonus)
        action = _choose(acting[obs], counts[obs], exploration, step - 1, rng)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        counts[obs, action] += 1
        rewards[obs, action] += float(reward)
        successors[obs, action, next_obs] += not terminated
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step in record_at:
            records.append(_solved(counts, rewards, successors, gamma, np.zeros_like(counts)))
    return records


def _solved(
    counts: FloatArray, rewards: FloatArray, successors: FloatArray, gamma: float, bonus: FloatArray
) -> FloatArray:
    q = np.zeros_like(counts)
    visits = np.maximum(counts, 1.0)
    for _ in range(_MOST_SWEEPS):
        before = q
        q = (rewards + gamma * successors @ (q + bonus).max(axis=1)) / visits
        q = np.where(counts > 0, q, (counts * q).sum() / counts.sum())
        if np.abs(q - before).max() <= 1e-10 * np.abs(q).max():
            break
    return q


def _choose(q: FloatArray, counts: FloatArray, exploration: Exploration, step: int, rng: np.random.Generator) -> int:
    """An action for one state's values (A,): epsilon-greedy, or the best with its bonus."""
    if isinstance(exploration, Optimism):
        probabilities = epsilon_greedy(q + exploration.bonus(counts), 0.0)
    else:
        probabilities = epsilon_greedy(q, exploration.at(step))
    return int(np.searchsorted(np.cumsum(probabilities)[:-1], rng.random(), side="right"))


def _sizes(env: gym.Env[Any, Any]) -> tuple[int, int]:
    states, actions = env.observation_space, env.action_space
    if not (isinstance(states, spaces.Discrete) and isinstance(actions, spaces.Discrete)):
        raise TypeError(f"tabular rivals need Discrete spaces, got {states} and {actions}")
    return int(states.n), int(actions.n)


#: Learning rate, final epsilon and its fraction of the run by hidden layers: the best of benchmarks/control_sweep.py.
DQN_SETTINGS: dict[tuple[int, ...], dict[str, float]] = {
    (): {"rate": 0.03, "epsilon": 0.2, "fraction": 0.1},
    (64,): {"rate": 0.001, "epsilon": 0.1, "fraction": 0.5},
}


def dqn(
    env: gym.Env[Any, Any],
    record_at: Sequence[int],
    gamma: float,
    seed: int,
    net_arch: tuple[int, ...] | None = (),
    settings: dict[str, float] | None = None,
) -> list[FloatArray]:
    """Stable-Baselines3's DQN on one-hot states.

    Tuned (squared loss, an update at every step from the whole buffer, see ``icrl_agent.eval.sb3_models``), or with
    the library's own settings where ``net_arch`` is None. Other arguments and result as in ``tabular_control``.

    Args:
        settings: rate, epsilon and fraction; None = the sweep's best.
    """
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv

    from icrl_agent.eval.sb3_models import default_model, tuned_model

    states = np.arange(_sizes(env)[0])
    records: list[FloatArray] = []

    class Recorder(BaseCallback):
        def _on_step(self) -> bool:
            # Called before the step's own update: the network is that of the step before.
            if self.num_timesteps - 1 in record_at:
                records.append(q_table(self.model))
            return True

    def q_table(model: Any) -> FloatArray:
        with torch.no_grad():
            tensor, _ = model.policy.obs_to_tensor(states)
            return np.asarray(model.q_net(tensor).double().cpu().numpy())

    n_steps = record_at[-1]
    with preserved_generators(seed):
        common: dict[str, Any] = {"env": DummyVecEnv([lambda: env]), "gamma": gamma, "seed": seed, "device": "cpu"}
        if net_arch is None:
            model = default_model("dqn", common)
        else:
            chosen = DQN_SETTINGS[net_arch] if settings is None else settings
            exploring = {
                "exploration_initial_eps": 1.0,
                "exploration_final_eps": chosen["epsilon"],
                "exploration_fraction": chosen["fraction"],
                "gradient_steps": 1,
            }
            model = tuned_model("dqn", net_arch, chosen["rate"], n_steps, {**common, **exploring})
        model.learn(n_steps, callback=Recorder(), log_interval=None)
        return [*records, q_table(model)][: len(record_at)]  # learn may run a few steps beyond
