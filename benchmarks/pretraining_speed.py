"""Prompts per second of pretraining against a faithful loop: one prompt at a time through the literal layers.

    python benchmarks/pretraining_speed.py

Both do the whole of an update's work on one thread: tasks, rollouts, prompts, the TD loss, its gradient, Adam's step;
the loop takes one task and its 17 windows per step. They run in turn in one process; the median ratio of the rounds
decides. Also prints where the batched update spends its time and how far that is from the bound: the matrix-vector
products of the layers alone, done by themselves on the same shapes.
"""

from __future__ import annotations

import argparse
import dataclasses
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from icrl_agent.model import SoftmaxICTD, iterate_affine
from icrl_agent.prompt import build_prompt
from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.objectives import td_loss
from icrl_agent.train.presets import preset
from icrl_agent.train.sampler import roll_out, sample_batch
from icrl_agent.train.state import TrainingState
from icrl_agent.train.tasks import draw_features, draw_tasks


def batched_rate(config: PretrainConfig, n_updates: int) -> tuple[float, dict[str, float]]:
    """Prompts per second of the batched update, and the seconds per update of its parts."""
    state = TrainingState.start(config)
    state.update(sample_batch(config, "train", 0, 0))
    sampling = updating = 0.0
    for step in range(1, n_updates + 1):
        start = time.perf_counter()
        batch = sample_batch(config, "train", 0, step)
        sampled = time.perf_counter()
        state.update(batch)
        sampling, updating = sampling + sampled - start, updating + time.perf_counter() - sampled
    prompts = n_updates * config.tasks_per_step * (config.windows_per_task + 1)
    parts = {"sampling": sampling / n_updates, "forward, backward, Adam": updating / n_updates}
    return prompts / (sampling + updating), parts


def layers_alone(config: PretrainConfig, n_updates: int) -> float:
    """Seconds of the layers' products alone, forward and backward, on the shapes of one update."""
    shape = config.tasks_per_step, config.windows_per_task + 1, config.n_states[1], config.n_states[1]
    T = (0.1 * torch.rand(shape)).requires_grad_()
    b = torch.rand(shape[:-1]).requires_grad_()
    start = time.perf_counter()
    for _ in range(n_updates):
        iterate_affine(T, b, config.n_layers[1])[-1].sum().backward()
    return (time.perf_counter() - start) / n_updates


def looped_rate(config: PretrainConfig, n_tasks: int) -> float:
    """Prompts per second, one prompt at a time through the literal layers; an update per task and its windows."""
    model = SoftmaxICTD(config.feature_dim, config.n_layers[1], seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    n, gamma, n_windows = config.context_length[1], config.gamma[1], config.windows_per_task
    start = time.perf_counter()
    for number in range(n_tasks):
        rng = np.random.default_rng(number)
        tasks = draw_tasks(rng, config.families[0], np.array([config.n_states[1]]))
        features = draw_features(rng, config.features, 1, config.n_states[1], config.feature_dim)[0]
        states, rewards = roll_out(rng, tasks, n + n_windows, np.zeros(1))
        columns = features[states[0]].astype(np.float32)
        values = [
            model.query_value(
                torch.from_numpy(build_prompt(columns[w : w + n + 1], rewards[0, w : w + n]))[None], gamma
            )
            for w in range(n_windows + 1)
        ]
        reward = torch.from_numpy(rewards[0, n:]).float()
        loss = td_loss(torch.cat(values[:-1]), reward, torch.tensor(gamma), torch.cat(values[1:]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return n_tasks * (n_windows + 1) / (time.perf_counter() - start)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    table = Table(title="pretraining, prompts per second, one thread")
    for heading in ("sizes", "batched", "one at a time", "ratio", "ms per update", "of it layers alone"):
        table.add_column(heading, justify="right")
    for name in ("paper-small", "paper"):
        config = dataclasses.replace(preset(name), tasks_per_step=128)
        rows = []
        for _ in range(rounds):
            rate, parts = batched_rate(config, 20)
            rows.append((rate, looped_rate(config, 6), *parts.values(), layers_alone(config, 20)))
        rate, loop, sampling, updating, layers = np.median(rows, axis=0)
        ratio = np.median([row[0] / row[1] for row in rows])
        sizes = f"d {config.feature_dim}, n {config.context_length[1]}, {config.n_layers[1]} layers"
        spent = f"{1000 * sampling:.1f} sampling + {1000 * updating:.1f}"
        table.add_row(sizes, f"{rate:,.0f}", f"{loop:,.0f}", f"{ratio:.0f}", spent, f"{1000 * layers:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
