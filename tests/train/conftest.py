"""Runs small enough for tests, and what several test files compare or count with."""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.loop import pretrain
from icrl_agent.train.run_log import RunLog

TINY = PretrainConfig(
    n_steps=8,
    n_states=(4, 6),
    feature_dim=4,
    context_length=(5, 5),
    n_layers=(2, 4),
    gamma=(0.5, 0.9),
    tasks_per_step=4,
    windows_per_task=3,
    log_every=2,
    validate_every=4,
    checkpoint_every=3,
)


@pytest.fixture(scope="session")
def tiny():
    """A small configuration with some fields changed."""
    return lambda **changes: dataclasses.replace(TINY, **changes)


@pytest.fixture
def no_pictures(monkeypatch):
    """Drawing takes longer than all the rest of a small run."""
    monkeypatch.setattr(RunLog, "pictures", lambda *_: None)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """A complete run, pictures included, that tests only read."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    return TINY, folder, pretrain(TINY, folder)


def same_bits(one: object, other: object) -> bool:
    """Equality of nested containers, bit for bit in every tensor and number."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_bits(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_bits, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))


@pytest.fixture(scope="session")
def bit_equal():
    return same_bits


def everything(folder: Path) -> dict[str, object]:
    """What a finished run left that must not depend on how often it was stopped."""
    text = {name: (folder / name).read_text() for name in ("config.json", "metrics.csv", "validation.csv")}
    weights = (folder / "weights.safetensors").read_bytes()
    return {**text, "weights": weights, "checkpoint": torch.load(folder / "checkpoint.pt")}


@pytest.fixture(scope="session")
def run_content():
    return everything


@pytest.fixture(scope="session")
def start_child():
    """Start a process that runs source text; its parent has the package imported, so it starts at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["icrl_agent.train.loop", "torch.utils.tensorboard"])

    def start(source: str) -> multiprocessing.Process:
        process = context.Process(target=exec, args=(source, {"__name__": "child"}))
        process.start()
        return process

    return start


def chi_square_p_value(statistic: float, degrees: float) -> float:
    """Upper tail of the chi-square distribution."""
    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


@pytest.fixture(scope="session")
def chi_square():
    """P-value of observed counts against probabilities, rows of both being separate experiments."""

    def p_value(observed: np.ndarray, probabilities: np.ndarray) -> float:
        observed, probabilities = np.atleast_2d(observed), np.atleast_2d(probabilities)
        possible = probabilities > 0
        assert (observed[~possible] == 0).all(), "something of probability 0 happened"
        expected = observed.sum(axis=1, keepdims=True) * probabilities
        if (expected[possible] < 5).any():
            raise ValueError("too few draws for the chi-square approximation")
        statistic = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
        return chi_square_p_value(float(statistic), float((possible.sum(axis=1) - 1).sum()))

    return p_value


@pytest.fixture(scope="session")
def chi_square_tail():
    return chi_square_p_value


@pytest.fixture(scope="session")
def kolmogorov_smirnov():
    """Asymptotic p-value of two samples having one distribution."""

    def p_value(one: np.ndarray, other: np.ndarray) -> float:
        both = np.concatenate([one, other])
        below = [np.searchsorted(np.sort(sample), both, side="right") / len(sample) for sample in (one, other)]
        size = len(one) * len(other) / len(both)
        scaled = math.sqrt(size) * float(np.abs(below[0] - below[1]).max())
        if scaled < 0.3:  # the series converges slowly there, and the p-value is 1 to five digits
            return 1.0
        return 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))

    return p_value
