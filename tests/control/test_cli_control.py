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
        (["--epsilon", "2"], "--epsilon must be a number in [0, 1], got 2.0"),
        (["--bonus", "-1"], "--bonus must be 0 or a positive finite float32 number, got -1.0"),
        (["--bonus", "1e308"], "--bonus must be 0 or a positive finite float32 number, got 1e+308"),
        (["--gamma", "1"], "--gamma must be in [0, 1), got 1.0"),
        (["--gamma", "nan"], "--gamma must be in [0, 1), got nan"),
        (["--n-seeds", "0"], "n_seeds must be at least 1"),
        (["--rivals", "chess"], "unknown rival 'chess': choose among 'Q-learning', 'SARSA', "),
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


def test_one_action_is_nothing_to_control(capsys):
    assert main(["control", "BoyanChain-v0", *SHORT]) == 2
    assert "the environment has one action: there is nothing to control" in capsys.readouterr().err


@pytest.mark.parametrize("n_steps", ["1", "3"])
def test_few_steps(capsys, n_steps):
    assert main(["control", "RandomMDP-v0", "--n-steps", n_steps, "--n-seeds", "1", "--n-layers", "5"]) == 0
    shown = capsys.readouterr().out
    assert "1 run\n" in shown
    assert "±" not in shown


def test_rivals_that_cannot_run_are_left_out(capsys):
    assert main(["control", "CartPole-v1", *SHORT]) == 0
    out, err = capsys.readouterr()
    (line,) = [line for line in out.splitlines() if line.startswith("left out")]
    assert line.startswith("left out: Q-learning, SARSA, value iteration: rivals are judged by exact returns, and Cart")
    assert "2/2 runs" in err


def test_no_finished_episode_is_said(capsys):
    assert main(["control", "CartPole-v1", "--n-steps", "3", "--n-seeds", "1", "--n-layers", "5"]) == 0
    shown = capsys.readouterr().out
    assert "no episode ended in 3 steps" in shown
    assert "nan" not in shown


def test_a_process_whose_actions_are_alike_is_said(capsys):
    tables = {"transition": [[[0.0, 1.0]] * 2, [[1.0, 0.0]] * 2], "reward": [[1.0, 1.0], [0.0, 0.0]], "initial": [1, 0]}
    kwargs = ["--env-kwargs", json.dumps(tables)]
    assert main(["control", "TabularMDP-v0", *SHORT, *kwargs]) == 0
    shown = capsys.readouterr().out
    assert "no exact returns: the uniformly random policy is optimal" in shown
    assert "nan" not in shown


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("environment", ["RandomMDP-v0", "CartPole-v1"])
def test_the_table_fits_and_breaks_no_cell(capsys, monkeypatch, columns, environment):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["control", environment, *SHORT]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line[:1] in "│┃┏┡└" and line]
    rows = [line for line in lines if line.startswith("│")]
    assert len(rows) == (4 if environment == "RandomMDP-v0" else 1)
    assert all(len(line) <= columns for line in lines)
    assert not any("…" in line for line in lines)
    cells = [cell.strip() for line in rows for cell in line.strip("│").split("│")[1:]]
    assert all(cell == "-" or len(cell.split(" ± ")) == 2 for cell in cells)
