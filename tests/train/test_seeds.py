"""Several seeds: each is the single run, wherever it ran; and the interval over them."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import math

import pytest

from icrl_agent.train.loop import pretrain
from icrl_agent.train.run_log import RunLog
from icrl_agent.train.seeds import pretrain_seeds, seed_folder, summarise


def read_csv(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture(scope="module")
def single_runs(tiny, tmp_path_factory):
    """Seeds 5 and 6, one after the other in this process."""
    folder = tmp_path_factory.mktemp("single")
    config = tiny(seed=5, n_steps=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunLog, "pictures", lambda *_: None)
        for seed in (5, 6):
            pretrain(dataclasses.replace(config, seed=seed), folder / f"seed-{seed}")
    return config, folder


def check_seeds(run, single_runs, folder, bit_equal, run_content):
    config, single = single_runs
    ticks = []
    results = run(config, folder, 2, progress=ticks.append)
    assert [result.run_dir.name for result in results] == ["seed-5", "seed-6"]
    assert ticks == [1, 2]
    for seed in (5, 6):
        assert bit_equal(run_content(folder / f"seed-{seed}"), run_content(single / f"seed-{seed}"))
    assert json.loads((folder / "config.json").read_text()) == {**config.to_dict(), "n_seeds": 2}
    assert (folder / "emergence.png").read_bytes()[:4] == b"\x89PNG"
    pair = [read_csv(single / f"seed-{seed}" / "metrics.csv") for seed in (5, 6)]
    summary = read_csv(folder / "summary.csv")
    assert [row["step"] for row in summary] == [row["step"] for row in pair[0]]
    for joined, one, other in zip(summary, *pair, strict=True):
        mean = (float(one["td_loss"]) + float(other["td_loss"])) / 2
        # Two values: the standard error is half their distance; one degree of freedom is Cauchy's distribution.
        half = math.tan(0.475 * math.pi) * abs(float(one["td_loss"]) - float(other["td_loss"])) / 2
        expected = (mean, mean - half, mean + half)
        found = tuple(float(joined[f"td_loss_{part}"]) for part in ("mean", "low", "high"))
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_seeds_in_local_processes(single_runs, tmp_path, bit_equal, run_content, n_jobs):
    run = functools.partial(pretrain_seeds, n_jobs=n_jobs)
    check_seeds(run, single_runs, tmp_path / "runs", bit_equal, run_content)


def one_seed_for_all(config, folder, n_seeds, progress):
    from icrl_agent.train import seeds

    real = seeds._run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeds, "_run", lambda c, where, resume: real(dataclasses.replace(c, seed=5), where, resume))
        return pretrain_seeds(config, folder, n_seeds, n_jobs=1, progress=progress)


@pytest.mark.usefixtures("no_pictures")
def test_the_seed_check_catches(single_runs, tmp_path, bit_equal, run_content):
    with pytest.raises(AssertionError):
        check_seeds(one_seed_for_all, single_runs, tmp_path / "runs", bit_equal, run_content)


def test_seeds_on_a_dask_cluster(single_runs, tmp_path, bit_equal, run_content):
    """Two worker processes on this machine, reached by the scheduler's address like any others."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, worker_dashboard_address=None
    ) as cluster:
        run = functools.partial(pretrain_seeds, backend="dask", scheduler=cluster.scheduler_address)
        check_seeds(run, single_runs, tmp_path / "runs", bit_equal, run_content)


@pytest.mark.usefixtures("no_pictures")
def test_resume_of_a_partly_finished_set(single_runs, tmp_path, bit_equal, run_content):
    """One seed finished, one stopped, one not begun; then more seeds than at first."""
    config, single = single_runs
    folder = tmp_path / "runs"
    pretrain_seeds(config, folder, 1, n_jobs=1)
    finished = {path: path.read_bytes() for path in (folder / "seed-5").rglob("*") if path.is_file()}
    pretrain(dataclasses.replace(config, seed=6), folder / "seed-6", stop_after=2)
    results = pretrain_seeds(config, folder, 3, resume=True, n_jobs=1)
    assert all(result.finished for result in results)
    assert {path: path.read_bytes() for path in (folder / "seed-5").rglob("*") if path.is_file()} == finished
    assert bit_equal(run_content(folder / "seed-6"), run_content(single / "seed-6"))
    assert json.loads((folder / "config.json").read_text())["n_seeds"] == 3


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refuse(folder, config, match, n_seeds=2, **options):
    before = content(folder.parent), folder.exists()
    with pytest.raises(ValueError, match=match) as caught:
        pretrain_seeds(config, folder, n_seeds, **options)
    assert "\n" not in str(caught.value)
    assert (content(folder.parent), folder.exists()) == before


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_seeds": 0}, "n_seeds must be at least 1, got 0"),
        ({"n_jobs": 0}, "n_jobs must be at least 1, got 0"),
        ({"backend": "ray"}, "backend must be 'local' or 'dask', got 'ray'"),
        ({"backend": "dask"}, "needs the scheduler's address, for example tcp://"),
        ({"scheduler": "tcp://127.0.0.1:8786"}, "a scheduler's address goes with backend 'dask'"),
        ({"backend": "dask", "scheduler": "nonsense:abc"}, "no Dask scheduler answers at 'nonsense:abc': ."),
        ({"backend": "dask", "scheduler": "127.0.0.1"}, "no Dask scheduler answers at '127.0.0.1': missing port"),
        ({"backend": "dask", "scheduler": ""}, "needs the scheduler's address, for example tcp://"),
    ],
    ids=str,
)
def test_bad_calls(tiny, tmp_path, options, match):
    refuse(tmp_path / "runs", tiny(), match, **options)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "foo://x"])
def test_no_scheduler_there(tiny, tmp_path, monkeypatch, address):
    import distributed

    real = distributed.Client
    monkeypatch.setattr(distributed, "Client", lambda where, timeout: real(where, timeout=timeout / 20))
    refuse(tmp_path / "runs", tiny(), f"no Dask scheduler answers at '{address}': .", backend="dask", scheduler=address)


def test_without_the_extra(tiny, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "distributed", None)
    match = r"optional extra: pip install 'icrl-agent\[cluster\]'"
    refuse(tmp_path / "runs", tiny(), match, backend="dask", scheduler="tcp://127.0.0.1:8786")


FOREIGN = {
    "in use": (None, False, "is in use"),
    "no config": (None, True, "holds no run to resume"),
    "one run": ({}, True, "holds one run, not several seeds"),
    "another first seed": ({"seed": 3, "n_seeds": 2}, True, "seed: 3 there, 0 here"),
    "another configuration": ({"n_seeds": 2, "learning_rate": 0.5}, True, "learning_rate: 0.5 there, 0.01 here"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_foreign_folders(tiny, tmp_path, case):
    changes, resume, match = FOREIGN[case]
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    if changes is not None:
        (folder / "config.json").write_text(json.dumps(tiny().to_dict() | changes))
    refuse(folder, tiny(), match, resume=resume)


def test_interval_by_hand():
    runs = [[{"step": 0, "x": value, "y": 2.0}] for value in (1.0, 2.0, 6.0)]
    (row,) = summarise(runs)
    # Mean 3, variance (4 + 1 + 9) / 2 = 7, standard error sqrt(7 / 3), 2 degrees of freedom: 0.95 = t / sqrt(2 + t^2).
    half = 0.95 * math.sqrt(2 / (1 - 0.95**2)) * math.sqrt(7 / 3)
    assert (row["step"], row["x_mean"]) == (0, 3.0)
    assert (row["x_low"], row["x_high"]) == pytest.approx((3 - half, 3 + half), rel=1e-6)
    assert (row["y_low"], row["y_mean"], row["y_high"]) == (2.0, 2.0, 2.0)
    assert summarise(runs[:1])[0] == {"step": 0, "x_mean": 1.0, "x_low": 1.0, "x_high": 1.0,
                                      "y_mean": 2.0, "y_low": 2.0, "y_high": 2.0}  # fmt: skip


def test_runs_of_different_length_are_not_joined():
    with pytest.raises(ValueError, match="shorter"):
        summarise([[{"step": 0, "x": 1.0}, {"step": 1, "x": 1.0}], [{"step": 0, "x": 1.0}]])


def test_folders(tmp_path):
    assert seed_folder(tmp_path, 7) == tmp_path / "seed-7"
