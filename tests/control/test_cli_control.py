"""``icrl control``: the table, the folder and its events, bad values in one line."""

from __future__ import annotations

import csv
import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from icrl_agent.cli import main

SHORT = ["--n-steps", "60", "--n-seeds", "2", "--n-layers", "10"]


def test_a_run_folder_holds_curves_figure_and_events(tmp_path, capsys):
    folder = tmp_path / "run"
    rivals = ["--rivals", "Q-learning", "value iteration"]
    assert main(["control", "RandomMDP-v0", *SHORT, *rivals, "--run-dir", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "frozen agent: 0 parameters changed, 0 gradients" in shown
    assert json.loads((folder / "config.json").read_text())["n_steps"] == 60
    assert (folder / "control.png").stat().st_size > 1000
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"frozen agent", "Q-learning", "value iteration"}
    mine = [float(row["return"]) for row in rows if row["method"] == "frozen agent" and row["n_steps"] == "60"]
    assert len(mine) == 2
    events = EventAccumulator(str(folder / "tensorboard" / "frozen_agent"))
    events.Reload()
    (last,) = [event for event in events.Scalars("control/return") if event.step == 60]
    assert last.value == pytest.approx(sum(mine) / 2, abs=1e-6)
    assert len(events.Scalars("control/return")) == 20


def test_observations_without_tables_show_episode_returns(capsys):
    assert main(["control", "CartPole-v1", "--n-steps", "80", "--n-seeds", "1", "--n-layers", "5"]) == 0
    shown = capsys.readouterr().out
    assert "mean return of ten episodes" in shown
    assert "no exact returns: CartPoleEnv has no tables" in shown


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--epsilon", "2", "--bonus", "0"], "must be a number in [0, 1], got 2.0"),
        (["--bonus", "-1"], "scale must be a positive finite number, got -1.0"),
        (["--n-seeds", "0"], "n_seeds must be at least 1"),
        (["--rivals", "chess"], "unknown rival 'chess'"),
        (["--n-steps", "0"], "n_steps must be an integer of at least 1, got 0"),
        (["--env-kwargs", "{"], "--env-kwargs must be JSON"),
    ],
)
def test_bad_values_are_one_line(tmp_path, capsys, flags, message):
    folder = tmp_path / "run"
    assert main(["control", "RandomMDP-v0", *SHORT, *flags, "--run-dir", str(folder)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not folder.exists()


def test_continuous_actions_are_refused(capsys):
    assert main(["control", "MountainCarContinuous-v0", *SHORT]) == 2
    assert "a controller chooses among Discrete actions" in capsys.readouterr().err
