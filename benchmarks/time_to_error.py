"""How long critics that train need for what the frozen agent knows at once.

    python benchmarks/time_to_error.py

Unseen random Boyan chains, gamma 0.9. The agent (theorem's weights) evaluates 300 transitions; seconds are those beyond
the environment's steps, in a warm process on one thread: processor time, so that a busy machine does not count. Every
tuned Stable-Baselines3 critic trains on the same trajectory, which goes on for 2000 steps, and is read after each of
the first 50 steps, then after every tenth.

- time: seconds until its error is first at most the agent's, over the agent's seconds; geometric mean over tasks. A
  critic that never gets there counts with all its seconds, so the figure is then a lower bound.
- equal time: its error after 10 times the agent's seconds over the agent's error; geometric mean over tasks. A critic
  that has learnt nothing by then answers 0.
"""

from __future__ import annotations

import argparse
import time

import gymnasium as gym
import numpy as np
import torch
from ratios import seconds
from rich.console import Console
from rich.table import Table

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.agent import ICRLAgent
from icrl_agent.collect import collect
from icrl_agent.envs import state_values, stationary_distribution
from icrl_agent.eval.baselines import SB3Baseline
from icrl_agent.features import RandomUnit
from icrl_agent.metrics import geometric_mean, msve

GAMMA = 0.9
AGENT_STEPS, CRITIC_STEPS = 300, 2000
READ_AT = (*range(1, 50), *range(50, CRITIC_STEPS + 1, 10))
MORE_TIME = 10
NETWORKS: tuple[tuple[int, ...], ...] = ((), (64,))


def critics() -> dict[str, tuple[str, tuple[int, ...], bool]]:
    """Kind, network and whether it gets the agent's features, by name."""
    return {
        f"{kind}, {list(net) if net else 'linear'}, {'own features' if own else 'one-hot'}": (kind, net, own)
        for kind in ("td0", "dqn", "a2c", "ppo")
        for net in NETWORKS
        for own in (False, True)
        if not (kind == "td0" and net)
    }


def against(
    taken: np.ndarray, errors: np.ndarray, zero_error: float, agent_seconds: float, agent_error: float
) -> tuple[float, bool, float]:
    """(seconds to the agent's error over its own, whether it got there, error at equal time over the agent's)."""
    there = np.flatnonzero(errors <= agent_error)
    needed = taken[there[0]] if len(there) else taken[-1]
    early = np.flatnonzero(taken <= MORE_TIME * agent_seconds)
    error = errors[early[-1]] if len(early) else zero_error
    return needed / agent_seconds, bool(len(there)), error / agent_error


def one_task(task_seed: int) -> dict[str, tuple[float, bool, float]]:
    """Results of every critic on one chain."""
    env = gym.make("BoyanChain-v0", task_seed=task_seed)
    mrp = env.unwrapped.mdp.policy_mrp()
    truth, weights = state_values(mrp, GAMMA), stationary_distribution(mrp)
    transitions = collect(env, None, CRITIC_STEPS, task_seed)
    features = RandomUnit(10, 32, task_seed)
    agent = ICRLAgent.from_theory()
    context = transitions.first(AGENT_STEPS)
    result = agent.evaluate_transitions(context, GAMMA, range(10), feature_map=features)
    agent_seconds = seconds(
        lambda: agent.evaluate_transitions(context, GAMMA, range(10), feature_map=features), rounds=5
    )
    agent_error, zero_error = msve(result.values, truth, weights), msve(np.zeros(10), truth, weights)
    found = {}
    for name, (kind, net, own) in critics().items():
        baseline = SB3Baseline(kind, net, features if own else "one_hot")
        start, wall = time.process_time(), time.perf_counter()
        records = baseline.fit_transitions(transitions, env.observation_space, GAMMA, task_seed, record_at=READ_AT)
        # Records carry wall seconds; a thread that shares its core has had this part of them.
        share = min(1.0, (time.process_time() - start) / (time.perf_counter() - wall))
        taken = share * np.array([record.seconds for record in records])
        errors = np.array([msve(record.values, truth, weights) for record in records])
        found[name] = against(taken, errors, zero_error, agent_seconds, agent_error)
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-tasks", type=int, default=10)
    parser.add_argument("--first-task", type=int, default=3000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(arguments.first_task, arguments.first_task + arguments.n_tasks)
    results = [one_task(seed) for seed in seeds]
    table = Table(title=f"frozen agent at {AGENT_STEPS} steps against critics, {len(seeds)} chains, γ = {GAMMA}")
    for heading in ("critic", "time to the agent's error / agent's", "got there", "error at 10 x its time / agent's"):
        table.add_column(heading)
    for name in critics():
        times, there, errors = zip(*(result[name] for result in results), strict=True)
        (time, time_error), (error, error_error) = geometric_mean(times), geometric_mean(errors)
        bound = "" if all(there) else "more than "
        row = (f"{bound}{time:.0f} ± {time_error:.0f}", f"{sum(there)} of {len(there)}")
        table.add_row(name, *row, f"{error:.1f} ± {error_error:.1f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
