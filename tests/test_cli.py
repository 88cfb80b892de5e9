"""The ``icrl`` command: tables, run folders, and one plain line for every bad value."""

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from icrl_agent.cli import main
from icrl_agent.train import dashboard


def read_csv(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "chain"
    arguments = ["evaluate", "BoyanChain-v0", "--env-kwargs", '{"task_seed": 1000}', "--n-steps", "100"]
    assert main([*arguments, "--run-dir", str(folder)]) == 0
    return folder


def test_run_folder_holds_what_was_asked_for(run_dir):
    config = json.loads((run_dir / "config.json").read_text())
    assert (config["env"], config["n_steps"], config["gamma"]) == ("BoyanChain-v0", 100, 0.9)
    for name in ("values.png", "error.png"):
        assert (run_dir / "figures" / name).read_bytes()[:4] == b"\x89PNG"


def test_values_csv_agrees_with_the_api(run_dir):
    import gymnasium as gym

    from icrl_agent import ICRLAgent

    env = gym.make("BoyanChain-v0", task_seed=1000)
    result = ICRLAgent.from_theory().evaluate(env, n_steps=100, gamma=0.9, seed=0)
    rows = read_csv(run_dir / "values.csv")
    assert list(rows[0]) == ["state", "value", "true_value", "visits"]
    np.testing.assert_array_equal([float(row["value"]) for row in rows], result.values)
    np.testing.assert_array_equal([float(row["true_value"]) for row in rows], result.true_values)
    np.testing.assert_array_equal([int(row["visits"]) for row in rows], result.visits)


def test_metrics_csv_has_rivals_and_controls(run_dir):
    rows = read_csv(run_dir / "metrics.csv")
    full = {row["method"]: float(row["normalized_msve"]) for row in rows if row["n_steps"] == "100"}
    assert full["control: empty context"] == pytest.approx(1.0)
    assert {"frozen agent", "LSTD, one-hot", "control: context of another task"} < set(full)
    assert full["frozen agent"] < full["control: context of another task"]
    lengths = {int(row["n_steps"]) for row in rows if row["method"] == "frozen agent"}
    assert lengths == {16, 32, 64, 100}


def test_event_files_read_back(run_dir):
    rows = read_csv(run_dir / "metrics.csv")
    expected = {int(r["n_steps"]): float(r["normalized_msve"]) for r in rows if r["method"] == "frozen agent"}
    events = EventAccumulator(str(run_dir / "tensorboard" / "frozen_agent"))
    events.Reload()
    points = events.Scalars(dashboard.ERROR_CURVE)
    assert {point.step: point.value for point in points} == pytest.approx(expected, rel=1e-6)
    assert set(events.Tags()["images"]) == {dashboard.VALUES_FIGURE, dashboard.ERROR_FIGURE}
    (table,) = events.Tensors(f"{dashboard.ERROR_TABLE}/text_summary")
    text = table.tensor_proto.string_val[0].decode()
    assert text.count("\n") == len(rows) + 1
    assert f"| 100 | frozen agent | {expected[100]:.4g} |" in text


def test_unknown_truth_is_said(capsys):
    assert main(["evaluate", "CartPole-v1", "--n-steps", "50"]) == 0
    assert "CartPoleEnv has no tables" in capsys.readouterr().out


def test_zero_rewards_are_written(tmp_path, capsys):
    tables = '{"transition": [[0, 1], [1, 0]], "reward": [0, 0], "initial": [1, 0]}'
    arguments = ["evaluate", "TabularMDP-v0", "--env-kwargs", tables, "--n-steps", "20", "--run-dir"]
    assert main([*arguments, str(tmp_path / "run")]) == 0
    assert "the true values do not vary" in capsys.readouterr().out
    assert (tmp_path / "run" / "figures" / "values.png").exists()


def test_a_drawn_task_is_recorded(tmp_path):
    arguments = ["evaluate", "BoyanChain-v0", "--env-kwargs", '{"task_seed": null}', "--n-steps", "20", "--run-dir"]
    assert main([*arguments, str(tmp_path / "run")]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert isinstance(json.loads(config["env_kwargs"])["task_seed"], int)
    again = ["evaluate", "BoyanChain-v0", "--env-kwargs", config["env_kwargs"], "--n-steps", "20", "--run-dir"]
    assert main([*again, str(tmp_path / "again")]) == 0
    assert (tmp_path / "run" / "values.csv").read_text() == (tmp_path / "again" / "values.csv").read_text()


def test_a_failure_is_one_line_and_a_traceback_on_request(monkeypatch, capsys):
    monkeypatch.setattr("icrl_agent.cli.evaluate.Evaluate.run", lambda self: {}["missing"])
    assert main(["evaluate", "BoyanChain-v0"]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "KeyError" in message
    monkeypatch.setenv("ICRL_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["evaluate", "BoyanChain-v0"])


def test_fourier_features_change_the_estimate(tmp_path):
    for features in ("unit", "fourier"):
        arguments = ["evaluate", "BoyanChain-v0", "--n-steps", "60", "--features", features]
        assert main([*arguments, "--run-dir", str(tmp_path / features)]) == 0
    unit, fourier = ((tmp_path / f / "values.csv").read_text() for f in ("unit", "fourier"))
    assert unit != fourier


BAD_CALLS = {
    "unknown id": (["evaluate", "BoyanChian-v0"], "BoyanChian-v0.*BoyanChain-v0"),
    "gamma": (["evaluate", "BoyanChain-v0", "--gamma", "1.5"], r"gamma.*\[0, 1\].*1.5"),
    "gamma 1": (["evaluate", "BoyanChain-v0", "--gamma", "1"], "gamma 1 needs certain termination"),
    "no steps": (["evaluate", "BoyanChain-v0", "--n-steps", "0"], "n_steps.*at least 1.*0"),
    "negative steps": (["evaluate", "BoyanChain-v0", "--n-steps", "-5"], "n_steps.*at least 1.*-5"),
    "no layers": (["evaluate", "BoyanChain-v0", "--n-layers", "0"], "n_layers.*at least 1"),
    "negative seed": (["evaluate", "BoyanChain-v0", "--seed", "-1"], "seed.*-1"),
    "unknown argument": (["evaluate", "BoyanChain-v0", "--env-kwargs", '{"n_sates": 3}'], "n_sates"),
    "no JSON": (["evaluate", "BoyanChain-v0", "--env-kwargs", "{n_states: 3}"], "JSON"),
    "JSON list": (["evaluate", "BoyanChain-v0", "--env-kwargs", "[3]"], "JSON object"),
    "bad size": (["evaluate", "BoyanChain-v0", "--env-kwargs", '{"n_states": 1}'], "n_states.*at least 2"),
    "no weights": (["evaluate", "BoyanChain-v0", "--weights", "nowhere"], "nowhere"),
    "no tables": (["evaluate", "TabularMDP-v0", "--env-kwargs", '{"transition": "no.npz"}'], "no.npz"),
    "no folder": (["tensorboard", "nowhere"], "nowhere"),
    "no port": (["tensorboard", ".", "--port", "99999999"], "port must lie in 0 .. 65535"),
    "no module": (["evaluate", "no_such_module:Env-v0"], "no_such_module"),
    "huge seed": (["evaluate", "BoyanChain-v0", "--seed", "99999999999999999999999"], "seed must be"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_value_is_one_plain_line(case, tmp_path, capsys):
    arguments, pattern = BAD_CALLS[case]
    folder = tmp_path / "run"
    if arguments[0] == "evaluate":
        arguments = [*arguments, "--run-dir", str(folder)]
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert message.startswith("icrl: ")
    assert "Traceback" not in message
    assert re.search(pattern, message), message
    assert list(tmp_path.iterdir()) == []


def test_folder_in_use_is_refused_and_left_alone(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    assert main(["evaluate", "BoyanChain-v0", "--n-steps", "20", "--run-dir", str(tmp_path / "run")]) == 2
    assert "in use" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_exit_status_of_the_real_command():
    command = [sys.executable, "-m", "icrl_agent", "evaluate", "BoyanChain-v0", "--gamma", "nan"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "gamma must be a number in [0, 1]" in done.stderr


def test_info_lists_environments_and_weights(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert "BoyanChainClassic-v0" in out
    assert "theory" in out
