"""Frozen agent on continuous control against LSTD and Stable-Baselines3's critics, all on the same 3000 transitions.

    python benchmarks/continuous_accuracy.py --trajectories 5

Nine cases (continuous_cases.py), gamma 0.95. The agent has one setting for all: the theorem's weights, 512 random
Fourier features in the context's own units, sharpness "auto", 150 layers. Error = mean squared error over 80 visited
states over the variance of the true values there (1 = the best constant), mean over trajectories.

LSTD has the agent's features, and its ridge is chosen with the truth: the one that is best over all cases ("one
ridge", as the agent has one setting), and the best of each trajectory ("any", which nobody could know). The critics of
A2C and PPO are a linear one on the agent's features, a network [64] on the standardised observation, and
Stable-Baselines3's defaults on it; the table shows the best of the three by its mean over all cases, and the best of
each case ("any"). Where the truth is constant the table shows the largest deviation from it, as a part of it.

Trajectories 0 to 4 were looked at while it was decided how a sharpness is chosen; the table is of 5 to 9. Truths and
results are kept in --cache, so an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from continuous_cases import CASES, GAMMA, Case, Truth, truth
from rich.console import Console
from rich.table import Table

from icrl_agent import ICRLAgent
from icrl_agent.eval.baselines import SB3Baseline
from icrl_agent.features import FeatureMap, RandomFourier, fit_fourier

FEATURE_DIM, N_LAYERS = 512, 150
RIDGES = tuple(10.0**k for k in range(-6, 4))
#: Variance of the true values over their own Monte-Carlo variance, below which a case says nothing.
SMALLEST_SIGNAL = 10.0
CRITICS = ("linear, same features", "[64], standardised", "defaults, standardised")


class Standardised:
    """The observation in the context's units: features for the critics' own networks."""

    def __init__(self, fourier: RandomFourier) -> None:
        self.shift, self.scale = np.asarray(fourier.shift), np.asarray(fourier.scale)
        self.dim = len(self.shift)

    def __call__(self, observations: Any) -> np.ndarray:
        """Standardise (batch, k)."""
        return (np.asarray(observations, np.float64) - self.shift) / self.scale

    def spec(self) -> dict[str, Any]:
        """What it is."""
        return {"kind": "standardised", "shift": self.shift.tolist(), "scale": self.scale.tolist()}


def lstd_values(known: Truth, feature_map: FeatureMap, ridge: float) -> np.ndarray:
    """LSTD with a ridge at the states of the truth."""
    t = known.transitions
    x_tm1, x_t = feature_map(t.observations), feature_map(t.next_observations)
    A = x_tm1.T @ (x_tm1 - GAMMA * t.continues[:, None] * x_t) + ridge * np.eye(FEATURE_DIM)
    return np.asarray(feature_map(known.states) @ np.linalg.solve(A, x_tm1.T @ t.rewards))


def critic(kind: str, variant: str, fourier: RandomFourier) -> SB3Baseline:
    """One of the three critics."""
    if variant == CRITICS[0]:
        return SB3Baseline(kind, features=fourier)
    features = Standardised(fourier)
    if variant == CRITICS[1]:
        return SB3Baseline(kind, net_arch=(64,), features=features)
    return SB3Baseline(kind, features=features, defaults=True)


def measure(case: Case, trajectory: int, cache: Path, results: dict[str, Any], save: Any, critics: bool) -> None:
    """Errors of the methods on one trajectory, those that are not there yet."""
    known = truth(case, trajectory, cache)
    variance = float(known.values.var())

    def error(values: np.ndarray) -> float:
        if case.constant:
            return float(np.abs(values / known.values - 1).max())
        return float(((values - known.values) ** 2).mean() / variance)

    entry = results.setdefault(f"{case.name} {trajectory}", {})
    entry["signal"] = variance / max(float((known.stderr**2).mean()), 1e-300)
    unfitted = RandomFourier("context", "context", FEATURE_DIM, "median")
    fourier = fit_fourier(unfitted, known.transitions.observations)
    if "agent" not in entry:
        agent = ICRLAgent.from_theory(FEATURE_DIM, N_LAYERS, "auto")
        result = agent.evaluate_transitions(known.transitions, GAMMA, queries=known.states)
        entry |= {"agent": error(result.values), "seconds": result.seconds, "sharpness": result.chosen["sharpness"]}
        save()
    if "lstd" not in entry:
        entry["lstd"] = [error(lstd_values(known, fourier, ridge)) for ridge in RIDGES]
        save()
    space = gym.make(case.env_id).observation_space
    for kind in ("a2c", "ppo") if critics else ():
        for variant in CRITICS:
            if f"{kind} {variant}" not in entry:
                baseline = critic(kind, variant, fourier)
                baseline.fit_transitions(known.transitions, space, GAMMA, trajectory)
                entry[f"{kind} {variant}"] = error(baseline.values(known.states))
                save()


def summary(cases: list[Case], trajectories: Sequence[int], results: dict[str, Any]) -> Table:
    """The table of means over trajectories."""

    def mean(case: Case, name: str) -> np.ndarray:
        entries = (results[f"{case.name} {k}"] for k in trajectories)
        return np.mean([entry[name] for entry in entries if name in entry], axis=0)

    varying = [case for case in cases if not case.constant]
    one_ridge = int(np.argmin(np.mean([mean(case, "lstd") for case in varying], axis=0)))
    one = {
        kind: min(CRITICS, key=lambda v: np.mean([mean(case, f"{kind} {v}") for case in varying]))
        for kind in ("a2c", "ppo")
    }
    rows: dict[str, list[float]] = {}
    for case in cases:
        entries = [results[f"{case.name} {k}"] for k in trajectories]
        critics = [
            value
            for kind in ("a2c", "ppo")
            for value in (mean(case, f"{kind} {one[kind]}"), min(mean(case, f"{kind} {v}") for v in CRITICS))
        ]
        rows[case.name] = [
            float(mean(case, "agent")),
            float(mean(case, "lstd")[one_ridge]),
            float(np.mean([min(entry["lstd"]) for entry in entries])),
            *map(float, critics),
        ]
    table = Table(title=f"centred squared error, mean over {len(trajectories)} trajectories (deviation where constant)")
    table.add_column("case")
    for heading in (
        "agent", f"LSTD, one ridge ({RIDGES[one_ridge]:.0e})", "LSTD, any", f"A2C, {one['a2c']}", "A2C, any",
        f"PPO, {one['ppo']}", "PPO, any", "sharpness", "signal", "s",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for case in cases:
        entries = [results[f"{case.name} {k}"] for k in trajectories]
        table.add_row(
            case.name,
            *(f"{value:.3g}" for value in rows[case.name]),
            " ".join(f"{entry['sharpness']:g}" for entry in entries),
            "constant" if case.constant else _shown(min(entry["signal"] for entry in entries)),
            f"{np.median([entry['seconds'] for entry in entries]):.1f}",
        )
    means = np.mean([rows[case.name] for case in varying], axis=0)
    table.add_section()
    table.add_row("mean of the varying", *(f"{value:.3g}" for value in means))
    table.add_row("agent's ratio to it", *(f"{means[0] / value:.2f}" for value in means))
    return table


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=5)
    parser.add_argument("--first-trajectory", type=int, default=5)
    parser.add_argument("--critic-trajectories", type=int, help="of the critics; not given = all")
    parser.add_argument("--cache", type=Path, default=Path("runs/continuous"))
    parser.add_argument("--only", nargs="*", help="parts of the cases' names")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cases = [case for case in CASES if not arguments.only or any(part in case.name for part in arguments.only)]
    path = arguments.cache / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}

    def save() -> None:
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(results, indent=1))
        temporary.replace(path)

    n_critics = arguments.trajectories if arguments.critic_trajectories is None else arguments.critic_trajectories
    trajectories = range(arguments.first_trajectory, arguments.first_trajectory + arguments.trajectories)
    for critics, chosen in ((False, trajectories), (True, trajectories[:n_critics])):
        for trajectory in chosen:
            for case in cases:
                measure(case, trajectory, arguments.cache, results, save, critics)
    weak = [name for name, entry in results.items() if entry["signal"] < SMALLEST_SIGNAL and not _is_constant(name)]
    console = Console(width=200)
    console.print(summary(cases, trajectories, results))
    console.print(f"critics: {n_critics} trajectories")
    console.print(
        "signal: variance of the truth over its Monte-Carlo variance, the smallest; below"
        f" {SMALLEST_SIGNAL:g}: {', '.join(weak) or 'none'}"
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"largest memory of the whole process: {memory:.0f} MB")


def _shown(signal: float) -> str:
    """A deterministic policy's truth has no Monte-Carlo variance."""
    return "exact" if signal > 1e12 else f"{signal:.0f}"


def _is_constant(name: str) -> bool:
    return any(case.constant and name.startswith(f"{case.name} ") for case in CASES)


if __name__ == "__main__":
    main()
