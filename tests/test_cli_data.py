"""``icrl evaluate --data``: the values of the Python call, in a run folder; bad input in one line."""

from __future__ import annotations

import csv
import json

import gymnasium as gym
import numpy as np
import pytest

from icrl_agent import ICRLAgent
from icrl_agent.cli import main
from icrl_agent.collect import collect
from icrl_agent.logged_data import transitions_to_csv


@pytest.fixture
def data(tmp_path):
    transitions_to_csv(collect(gym.make("MountainCar-v0"), None, 80, seed=0), tmp_path / "t.csv")
    return tmp_path / "t.csv"


def test_values_are_those_of_the_call(data, tmp_path, capsys):
    run = tmp_path / "run"
    arguments = ["--sharpness", "auto", "--feature-dim", "16", "--n-layers", "20", "--gamma", "0.8"]
    assert main(["evaluate", "--data", str(data), "--run-dir", str(run), *arguments]) == 0
    from icrl_agent.logged_data import load_transitions

    agent = ICRLAgent.from_theory(feature_dim=16, sharpness="auto")
    expected = agent.evaluate_transitions(load_transitions(data), 0.8, n_layers=20)
    with open(run / "values.csv") as file:
        got = [float(row["value"]) for row in csv.DictReader(file)]
    np.testing.assert_array_equal(got, expected.values)
    assert json.loads((run / "summary.json").read_text())["chosen"] == dict(expected.chosen)
    assert json.loads((run / "config.json").read_text())["data"] == str(data)
    assert "chosen from the context: sharpness" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ([], "name either an environment or logged transitions (--data)"),
        (["BoyanChain-v0", "--data", "t.csv"], "name either an environment or logged transitions (--data)"),
        (["--data", "nothing.csv"], "there is no file nothing.csv"),
        (["--data", "t.parquet"], "logged data are a .npz or .csv file or minari:NAME"),
        (["BoyanChain-v0", "--weights", "universal", "--sharpness", "auto"], "belong to the theorem's weights"),
    ],
)
def test_bad_input_ends_in_one_line(arguments, match, capsys, tmp_path):
    run = tmp_path / "run"
    assert main(["evaluate", *arguments, "--run-dir", str(run)]) == 2
    told = capsys.readouterr().err
    assert match in told
    assert told.count("\n") == 1
    assert not run.exists()
