"""The comparison: paired on the same transitions, resumable, and honest about what each method took."""

import csv
import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from icrl_agent.algorithms import certainty_equivalence
from icrl_agent.cli import main
from icrl_agent.collect import collect
from icrl_agent.envs import state_values, stationary_distribution
from icrl_agent.eval import compare as module
from icrl_agent.eval.compare import Comparison, compare
from icrl_agent.eval.compare_config import CompareConfig
from icrl_agent.eval.comparison_report import REFERENCE, summarise, write_report
from icrl_agent.eval.methods import METHODS
from icrl_agent.metrics import normalized_msve
from icrl_agent.train import dashboard

METHODS_HERE = ("frozen agent, theorem", "certainty equivalence, mean", "SB3 A2C, linear, one-hot")
CONFIG = CompareConfig("BoyanChain-v0", steps=(40, 20), n_tasks=3, methods=METHODS_HERE)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("compare") / "run"
    rows = compare(CONFIG, run_dir, n_jobs=1)
    return run_dir, rows, write_report(run_dir, rows, CONFIG)


def test_one_row_per_task_method_and_budget(finished):
    _, rows, _ = finished
    keys = {(row["task"], row["method"], row["n_steps"]) for row in rows}
    assert len(keys) == len(rows) == 3 * len(Comparison.of(CONFIG).methods) * 2
    assert {"frozen agent, theorem", "frozen agent, theorem, ordered features", REFERENCE} <= {m for _, m, _ in keys}


def test_every_method_sees_the_transitions_of_the_task(finished):
    """Certainty equivalence recomputed from the environment, the task's seed and the budget."""
    _, rows, _ = finished
    for task in range(3):
        env = gym.make("BoyanChain-v0", task_seed=1000 + task)
        mrp = env.unwrapped.mdp.policy_mrp()
        columns = collect(env, None, 20, 1000 + task).columns()
        values = certainty_equivalence(columns.observations, columns.rewards, 0.9, 10)
        expected = normalized_msve(values, state_values(mrp, 0.9), stationary_distribution(mrp))
        (row,) = [r for r in rows if (r["task"], r["method"], r["n_steps"]) == (task, REFERENCE, 20)]
        assert row["normalized_msve"] == pytest.approx(expected, rel=1e-12)


def test_the_frozen_agent_changes_nothing_and_critics_do(finished):
    _, rows, _ = finished
    for row in rows:
        trained = row["method"].startswith("SB3")
        assert (row["parameters_changed"] > 0) == trained
        assert row["gradient_updates"] == (row["n_steps"] // 5 if trained else 0)
        assert row["seconds"] > 0


def test_files_and_curves(finished):
    run_dir, rows, summary = finished
    read = list(csv.DictReader((run_dir / "results.csv").read_text().splitlines()))
    assert [float(r["msve"]) for r in read] == [r["msve"] for r in rows]
    report = (run_dir / "report.md").read_text()
    assert all(f"| {method} |" in report for method in Comparison.of(CONFIG).methods)
    assert len(list((run_dir / "figures").glob("*.png"))) == 2
    events = EventAccumulator(str(run_dir / "tensorboard" / "frozen_agent__theorem"))
    events.Reload()
    mine = {line["n_steps"]: line["normalized_msve"] for line in summary if line["method"] == "frozen agent, theorem"}
    points = {p.step: p.value for p in events.Scalars(dashboard.COMPARISON_ERROR)}
    assert points == pytest.approx(mine, rel=1e-6)


def test_ratio_is_the_geometric_mean_over_paired_tasks(finished):
    _, rows, summary = finished

    def errors(method):
        return np.array([r["msve"] for r in rows if r["method"] == method and r["n_steps"] == 40])

    (line,) = [s for s in summary if s["method"].startswith("SB3") and s["n_steps"] == 40]
    logs = np.log(errors(line["method"]) / errors(REFERENCE))
    assert line["ratio"] == pytest.approx(np.exp(logs.mean()), rel=1e-12)
    # 3 tasks: the bootstrap's 95 % interval spans their extremes at most.
    assert np.exp(logs.min()) <= line["ratio_low"] <= line["ratio"] <= line["ratio_high"] <= np.exp(logs.max()) + 1e-12


def test_resume_runs_only_what_is_missing(finished, monkeypatch):
    run_dir, rows, _ = finished
    gone = sorted((run_dir / "cells").iterdir())[:2]
    for path in gone:
        path.unlink()
    ran = []
    real = module._run_cell
    monkeypatch.setattr(module, "_run_cell", lambda c, d, *cell: (ran.append(cell), real(c, d, *cell)))
    again = compare(CONFIG, run_dir, resume=True, n_jobs=1)
    assert len(ran) == 2
    stable = [{k: v for k, v in row.items() if k != "seconds"} for row in again]
    assert stable == [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def test_summary_of_one_task_has_no_width():
    rows = [
        {"task": 0, "method": m, "n_steps": 5, "msve": e, "normalized_msve": e, "centred_msve": e, "seconds": 1.0,
         "gradient_updates": 0, "parameters_changed": 0}
        for m, e in ((REFERENCE, 2.0), ("Monte Carlo", 3.0))
    ]  # fmt: skip
    config = CompareConfig("BoyanChain-v0", steps=(5,), n_tasks=1, methods=("mean fill", "Monte Carlo"))
    _, line = summarise(rows, config)
    assert (line["ratio"], line["ratio_low"], line["ratio_high"]) == pytest.approx((1.5, 1.5, 1.5))


BAD = {
    "budget": ({"steps": (0,)}, r"steps must be integers of at least 1, got \(0,\)"),
    "no budget": ({"steps": ()}, "steps must be"),
    "tasks": ({"n_tasks": 0}, "n_tasks must be at least 1"),
    "gamma": ({"gamma": 1.5}, "gamma must be a number"),
    "gamma 1": ({"gamma": 1.0}, "gamma must be below 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_configurations(case):
    changes, match = BAD[case]
    with pytest.raises(ValueError, match=match):
        CompareConfig(**{"env": "BoyanChain-v0", **changes})


def test_bad_environments_and_folders(tmp_path, finished, capsys):
    with pytest.raises(TypeError, match="needs Discrete observations"):
        compare(CompareConfig("CartPole-v1", steps=(5,)), tmp_path / "a")
    assert not (tmp_path / "a").exists()
    run_dir, _, _ = finished
    with pytest.raises(ValueError, match="is in use"):
        compare(CONFIG, run_dir)
    with pytest.raises(ValueError, match="no comparison with this configuration"):
        compare(CompareConfig("BoyanChain-v0", steps=(7,)), run_dir, resume=True)
    assert main(["compare", "BoyanChain-v0", "--run-dir", str(tmp_path / "b"), "--methods", "nothing"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_other_environments_run_through_the_command(tmp_path, capsys):
    for number, env in enumerate(("RandomMDP-v0", "FrozenLake-v1", "BoyanChainClassic-v0")):
        arguments = ["compare", env, "--run-dir", str(tmp_path / str(number)), "--steps", "30", "--n-tasks", "2"]
        assert main([*arguments, "--n-jobs", "1", "--methods", "theorem", "fill", "LSTD"]) == 0
        assert "report.md" in capsys.readouterr().out
        config = json.loads((tmp_path / str(number) / "config.json").read_text())
        assert config["env"] == env


def run_compare(tmp_path, env, *arguments):
    run_dir = tmp_path / "run"
    status = main(["compare", env, "--run-dir", str(run_dir), "--n-jobs", "1", "--n-tasks", "1", *arguments])
    return status, run_dir


class Doubled(gym.Wrapper):
    """A wrapper that nobody knows: rewards are twice the chain's."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, 2 * reward, terminated, truncated, info


@pytest.fixture
def unknown_truth():
    gym.register("DoubledChain-v0", lambda: Doubled(gym.make("BoyanChain-v0", task_seed=7)))
    yield "DoubledChain-v0"
    gym.registry.pop("DoubledChain-v0")


def test_without_known_truth_errors_are_against_monte_carlo_returns(tmp_path, unknown_truth):
    options = ["--steps", "300", "--methods", "mean fill", "constant", "--truth-steps", "20000"]
    status, run_dir = run_compare(tmp_path, unknown_truth, *options)
    assert status == 0
    report = (run_dir / "report.md").read_text()
    assert "Monte-Carlo returns of 20000 steps" in report
    rows = json.loads((run_dir / "cells" / "0000-certainty_equivalence__mean_fill.json").read_text())
    assert 0 < rows[0]["reference_noise"] < 0.01
    # The exact values are known here after all: twice the chain's.
    mrp = gym.make("BoyanChain-v0", task_seed=1000).unwrapped.mdp.policy_mrp()
    values, weights, errors = json.loads((run_dir / "cells" / "0000.reference.json").read_text())
    scores = (np.array(values) - 2 * state_values(mrp, 0.9)) / np.array(errors)
    assert np.abs(scores).max() < 4.5
    assert np.allclose(weights, stationary_distribution(mrp), atol=0.02)


def test_a_policy_file(tmp_path):
    policy = np.eye(4)[np.arange(10) % 4]
    np.save(tmp_path / "policy.npy", policy)
    options = ["--steps", "200", "--methods", "mean fill", "--policy", str(tmp_path / "policy.npy")]
    status, run_dir = run_compare(tmp_path, "RandomMDP-v0", *options)
    assert status == 0
    env = gym.make("RandomMDP-v0", task_seed=1000)
    mrp = env.unwrapped.mdp.policy_mrp(policy)
    columns = collect(env, policy, 200, 1000).columns()
    values = certainty_equivalence(
        columns.observations, columns.rewards, 0.9, 10, continues=columns.continues, source_mask=columns.source_mask
    )
    rows = json.loads((run_dir / "cells" / "0000-certainty_equivalence__mean_fill.json").read_text())
    expected = normalized_msve(values, state_values(mrp, 0.9), stationary_distribution(mrp))
    assert rows[0]["normalized_msve"] == pytest.approx(expected, rel=1e-9)
    assert str(tmp_path / "policy.npy") in (run_dir / "report.md").read_text()


BAD_COMMANDS = {
    "no file": (["--policy", "nothing.npy"], "no policy file nothing.npy"),
    "env arguments": (["--env-kwargs", "[1]"], "env_kwargs must be a JSON object"),
    "cluster": (["--backend", "dask"], "needs the scheduler's address"),
    "budget": (["--steps", "0"], "steps must be integers of at least 1, got (0,)"),
    "same budget twice": (["--steps", "5", "5"], "steps must differ"),
}


@pytest.mark.parametrize("case", BAD_COMMANDS)
def test_bad_commands_end_in_one_line(tmp_path, capsys, case):
    arguments, text = BAD_COMMANDS[case]
    status, run_dir = run_compare(tmp_path, "BoyanChain-v0", *arguments)
    assert status == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
    assert not run_dir.exists()


def test_unsuitable_spaces_and_policies(tmp_path, capsys):
    np.save(tmp_path / "policy.npy", np.ones((3, 3)) / 3)
    for env, arguments, text in (
        ("Pendulum-v1", [], "needs Discrete observations numbered from 0"),
        ("BoyanChain-v0", ["--policy", str(tmp_path / "policy.npy")], "policy"),
    ):
        status, run_dir = run_compare(tmp_path, env, *arguments)
        assert status == 2
        assert text in capsys.readouterr().err
        assert not run_dir.exists()


def test_a_box_action_space_is_refused(tmp_path):
    class Steered(gym.Env):
        observation_space = gym.spaces.Discrete(3)
        action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    gym.register("Steered-v0", Steered)
    try:
        with pytest.raises(TypeError, match="needs Discrete actions numbered from 0, Steered-v0 has Box"):
            compare(CompareConfig("Steered-v0"), tmp_path / "run")
    finally:
        gym.registry.pop("Steered-v0")


def test_cells_on_a_dask_cluster(finished, tmp_path):
    from distributed import LocalCluster

    config = dataclasses.replace(CONFIG, n_tasks=1, methods=METHODS_HERE[:2])
    with LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, worker_dashboard_address=None
    ) as cluster:
        rows = compare(config, tmp_path / "run", backend="dask", scheduler=cluster.scheduler_address)
    mine = {(row["method"], row["n_steps"]): row["msve"] for row in finished[1] if row["task"] == 0}
    assert rows
    assert all(row["msve"] == mine[row["method"], row["n_steps"]] for row in rows)


def test_names_are_unique_in_folders():
    folders = {"".join(c if c.isalnum() else "_" for c in method) for method in METHODS}
    assert len(folders) == len(METHODS)
