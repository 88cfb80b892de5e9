"""``icrl pretrain``: flags, exit statuses, one plain line for every bad value, signals and resume."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agent import ICRLAgent
from icrl_agent.cli import main
from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.presets import preset

TINY = {
    "n_steps": "6", "n_states": "4 6", "feature_dim": "4", "context_length": "5 5", "n_layers": "2 4",
    "tasks_per_step": "4", "windows_per_task": "3", "log_every": "2", "validate_every": "50",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    """Drawing takes longer than all the rest of a small run."""
    from icrl_agent.train.run_log import RunLog

    monkeypatch.setattr(RunLog, "pictures", lambda *_: None)


def command(folder, *more, preset="paper-small", **changes):
    flags = [f"--{name.replace('_', '-')} {value}" for name, value in (TINY | changes).items()]
    return ["pretrain", "--preset", preset, "--run-dir", str(folder), *" ".join(flags).split(), *map(str, more)]


def read_csv(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_flags_change_the_preset_field_by_field(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(command(folder, "--seed", 3, "--families", "boyan", "loop", "--no-shared")) == 0
    config = PretrainConfig.from_dict(json.loads((folder / "config.json").read_text()))
    expected = dataclasses.replace(
        preset("paper-small"), seed=3, n_steps=6, n_states=(4, 6), feature_dim=4, context_length=(5, 5),
        n_layers=(2, 4), tasks_per_step=4, windows_per_task=3, log_every=2, validate_every=50,
        families=("boyan", "loop"), shared=False,
    )  # fmt: skip
    assert config == expected
    assert ICRLAgent.load(folder).model.shared is False
    captured = capsys.readouterr()
    rows = read_csv(folder / "metrics.csv")
    for name, text in (("td_loss", "TD loss"), ("kdm_mean", "kernel diagonality, mean")):
        line = next(line for line in captured.out.splitlines() if text in line)
        assert re.findall(r"-?\d+\.\d{3}", line) == [f"{float(row[name]):.3f}" for row in (rows[0], rows[-1])]
    assert f"icrl tensorboard {folder}" in captured.out
    assert "Traceback" not in captured.err


def test_preset_for_control(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(command(folder, "--n-actions", 2, 3, preset="control", validate_every="6")) == 0
    config = PretrainConfig.from_dict(json.loads((folder / "config.json").read_text()))
    assert (config.families, config.n_actions, config.features) == (("pairs",), (2, 3), "random_unit")
    assert "error ratio at 5 steps" in capsys.readouterr().out
    env = gym.make("icrl_agent:RandomMDP-v0", n_states=4, n_actions=2, task_seed=0)
    result = ICRLAgent.load(folder).control(env, n_steps=20, seed=0)
    assert np.isfinite(result.q_values).all()


def test_several_seeds(tmp_path, capsys):
    folder = tmp_path / "runs"
    assert main(command(folder, "--seed", 5, "--n-seeds", 2, "--n-jobs", 1)) == 0
    names = {"config.json", "summary.csv", "emergence.png", "seed-5", "seed-6"}
    assert {path.name for path in folder.iterdir()} == names
    for seed in (5, 6):
        assert json.loads((folder / f"seed-{seed}" / "config.json").read_text())["seed"] == seed
        ICRLAgent.load(folder / f"seed-{seed}")
    out = capsys.readouterr().out
    assert "2 seeds, mean [95 % interval]" in out
    row = read_csv(folder / "summary.csv")[-1]
    low, high = (f"{float(row[f'td_loss_{part}']):.3f}" for part in ("low", "high"))
    assert f"[{low}, {high}]" in next(line for line in out.splitlines() if "TD loss" in line)


BAD_CALLS = {
    "unknown preset": ({"preset": "papr"}, (), "unknown preset 'papr'; known: paper, paper-small, universal"),
    "empty range": ({"n_states": "6 4"}, (), r"n_states must be .* low <= high, got \(6, 4\)"),
    "context length 0": ({"context_length": "0 0"}, (), r"context_length .* 1 <= low <= high, got \(0, 0\)"),
    "gamma 1": ({"gamma": "0.5 1.0"}, (), r"gamma must be .* high < 1, got \(0.5, 1.0\)"),
    "negative seed": ({}, ("--seed", -1), "seed must be a non-negative integer.*got -1"),
    "no steps": ({"n_steps": "0"}, (), "n_steps must be an integer of at least 1, got 0"),
    "one-hot too short": ({"features": "one_hot"}, (), "one_hot features need feature_dim of at least n_states = 6"),
    "negative rate": ({"learning_rate": "-1"}, (), "learning_rate must be a number of at least 0, got -1"),
    "no seeds": ({}, ("--n-seeds", 0), "n_seeds must be at least 1, got 0"),
    "no jobs": ({}, ("--n-seeds", 2, "--n-jobs", 0), "n_jobs must be at least 1, got 0"),
    "unknown backend": ({}, ("--n-seeds", 2, "--backend", "ray"), "backend must be 'local' or 'dask', got 'ray'"),
    "no address": ({}, ("--backend", "dask"), "needs the scheduler's address"),
    "address alone": ({}, ("--scheduler", "tcp://127.0.0.1:1"), "address goes with backend 'dask'"),
    "bad address": ({}, ("--backend", "dask", "--scheduler", "x:y"), "no Dask scheduler answers at 'x:y'"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_value_is_one_plain_line(case, tmp_path, capsys):
    changes, more, pattern = BAD_CALLS[case]
    assert main(command(tmp_path / "run", *more, **changes)) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("icrl: ")
    assert re.search(pattern, captured.err), captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "pattern"),
    [
        (("--n-stepz", 3), "n-stepz"),
        (("--n-steps", "many"), "many"),
        (("--gamma", 0.5), "gamma"),
        (("--objective", "mse"), "mse"),
        (("--families", "maze"), "maze"),
    ],
    ids=["unknown flag", "no number", "half a pair", "unknown objective", "unknown family"],
)
def test_wrong_flags_keep_tyro_s_message(more, pattern, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["pretrain", "--preset", "paper", "--run-dir", str(tmp_path / "run"), *map(str, more)])
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert pattern in captured.out + captured.err
    assert "Traceback" not in captured.out + captured.err
    assert list(tmp_path.iterdir()) == []


def test_help_describes_every_field(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as ended:
        main(["pretrain", "--help"])
    assert ended.value.code == 0
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    for item in dataclasses.fields(PretrainConfig):
        assert f"--{item.name.replace('_', '-')}" in text, item.name
    for line in ("Largest norm of the gradient.", "Transitions in a prompt; drawn per batch", "Updates of the weights.",
                 "Discount factor, drawn per task.", "Local processes for several seeds."):  # fmt: skip
        assert line in text, line


def test_folder_in_use_and_resume(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(command(folder)) == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    for more, changes, pattern in (
        ((), {}, "in use"),
        (("--resume",), {"learning_rate": "0.5"}, "learning_rate: 0.003 there, 0.5 here"),
        (("--resume", "--n-seeds", 2), {}, "holds one run, not several seeds"),
    ):
        assert main(command(folder, *more, **changes)) == 2
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        assert re.search(pattern, message), message
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert main(command(folder, "--resume")) == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_damaged_checkpoint_is_a_warning_line(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(command(folder, checkpoint_every=2)) == 0
    (folder / "weights.safetensors").unlink()
    (folder / "checkpoint.pt").write_bytes(b"nothing")
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(command(folder, "--resume", checkpoint_every=2)) == 0
    warning = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("icrl: "))
    assert re.search("warning: .*checkpoint.pt is damaged.*going on from checkpoint.previous.pt", warning)
    (folder / "checkpoint.previous.pt").write_bytes(b"nothing")
    (folder / "checkpoint.pt").write_bytes(b"nothing")
    (folder / "weights.safetensors").unlink()
    assert main(command(folder, "--resume", checkpoint_every=2)) == 2
    assert "no checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_real_command(tmp_path, number, capsys):
    """A checkpoint, status 128 + n, a hint, no traceback; then --resume completes."""
    folder = tmp_path / "run"
    long_run = {"n_steps": "300", "checkpoint_every": 1000, "log_every": 50}
    child = subprocess.Popen(
        [sys.executable, "-m", "icrl_agent", *command(folder, **(long_run | {"n_steps": "100000"}))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and child.poll() is None:
        if (folder / "metrics.csv").exists() and (folder / "metrics.csv").read_text().count("\n") >= 3:
            break
        time.sleep(0.01)
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 128 + number, err
    assert "the same command with --resume goes on" in out
    assert "Traceback" not in err
    step = torch.load(folder / "checkpoint.pt")["step"]
    assert 50 <= step < 100000
    rows = [int(row["step"]) for row in read_csv(folder / "metrics.csv")]
    assert rows == list(range(0, step + 1, 50))


def test_signal_and_resume(tmp_path, monkeypatch, capsys):
    """The same through ``main``, to the end: as if nothing had happened."""
    from icrl_agent.train import state

    real, calls = state.TrainingState.update, []

    def update(self, batch):
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGTERM)
        return real(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(state.TrainingState, "update", update)
        assert main(command(tmp_path / "run")) == 143
    assert "--resume" in capsys.readouterr().out
    assert main(command(tmp_path / "run", "--resume")) == 0
    assert main(command(tmp_path / "straight")) == 0
    for name in ("weights.safetensors", "metrics.csv", "validation.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def test_full_disk_is_one_line(tmp_path, monkeypatch, capsys):
    import errno
    import os

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert main(command(tmp_path / "run")) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("icrl: ")]
    assert len(lines) == 1
    assert "No space left on device" in lines[0]
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.endswith(".tmp")]
    assert main(command(tmp_path / "run", "--resume")) == 0
