"""A run that is stopped, by a limit, a signal or a kill, goes on as if it had not been."""

from __future__ import annotations

import csv
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from icrl_agent.train.checkpoint import CHECKPOINT
from icrl_agent.train.loop import pretrain

#: Source of a run in another process; drawing takes longer than all the rest.
RUN = """
import sys
from icrl_agent.train import loop, run_log
from icrl_agent.train.config import PretrainConfig
run_log.RunLog.pictures = lambda *_: None
result = loop.pretrain(PretrainConfig.from_dict({values!r}), {folder!r}, resume=True)
assert result.finished
"""


def steps_of(folder):
    """Steps in metrics.csv, and in each curve that TensorBoard shows."""
    rows = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    curves = {tag: [point.step for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return [int(row["step"]) for row in rows], curves


def check_steps(folder, config):
    """Each due step once, in order, in the file and in the curves."""
    expected = sorted({*range(0, config.n_steps, config.log_every), config.n_steps})
    validated = sorted({*range(0, config.n_steps, config.validate_every), config.n_steps})
    rows, curves = steps_of(folder)
    assert rows == expected
    assert {"train/td_loss", "emergence/kdm_mean", "validation/ratio_n5", "final/td_loss"} <= set(curves)
    for tag, steps in curves.items():
        due = {"validation": validated, "final": [0]}.get(tag.split("/")[0], expected)
        assert steps == (due[1:] if tag == "train/prompts_per_second" else due), tag


def check_resume(resume, tiny, tmp_path, bit_equal, run_content):
    """20 updates straight equal 10 and 10 more in a new process, with validation between and the schedule on."""
    config = tiny(n_steps=20, log_every=3, validate_every=4, checkpoint_every=7)
    pretrain(config, tmp_path / "straight")
    first = pretrain(config, tmp_path / "stopped", stop_after=10)
    assert (first.n_steps, first.finished, first.stop_signal) == (10, False, None)
    assert not (tmp_path / "stopped" / "weights.safetensors").exists()
    resume(config, tmp_path / "stopped")
    straight, stopped = (run_content(tmp_path / name) for name in ("straight", "stopped"))
    assert straight["checkpoint"]["step"] == 20
    for name, content in straight.items():
        assert bit_equal(content, stopped[name]), name
    check_steps(tmp_path / "stopped", config)


def in_a_new_process(config, folder):
    source = RUN.format(values=config.to_dict(), folder=str(folder))
    done = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("no_pictures")
def test_straight_equals_ten_and_ten(tiny, tmp_path, bit_equal, run_content):
    check_resume(in_a_new_process, tiny, tmp_path, bit_equal, run_content)


def altered(change):
    """A resume after the checkpoint was changed: something was not kept."""

    def resume(config, folder):
        content = torch.load(folder / CHECKPOINT)
        change(content)
        torch.save(content, folder / CHECKPOINT)
        pretrain(config, folder, resume=True)

    return resume


def forget_moments(content):
    content["optimizer"]["state"] = {}


def forget_average(content):
    content["averaged"] = content["model"]


def forget_rows(content):
    content["metrics"] = content["metrics"][:-1]


def one_step_twice(content):
    content["step"] -= 1


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("change", [forget_moments, forget_average, forget_rows, one_step_twice])
def test_the_resume_check_catches(tiny, tmp_path, bit_equal, run_content, change):
    with pytest.raises(AssertionError):
        check_resume(altered(change), tiny, tmp_path, bit_equal, run_content)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("at", [1, 3, 5, 8], ids=["first", "beside a checkpoint", "between", "last"])
def test_a_signal_leaves_a_checkpoint_of_the_present_update(tiny, tmp_path, run_content, bit_equal, number, at):
    """The signal comes while progress is shown, after the loop looked for one."""

    def progress(step, _rate):
        if step == at:
            signal.raise_signal(number)

    config = tiny(checkpoint_every=3)
    result = pretrain(config, tmp_path / "run", progress=progress)
    assert (result.n_steps, result.stop_signal, result.finished) == (at, number, at == config.n_steps)
    assert torch.load(tmp_path / "run" / CHECKPOINT)["step"] == at
    assert pretrain(config, tmp_path / "run", resume=True).finished
    pretrain(config, tmp_path / "straight")
    assert bit_equal(run_content(tmp_path / "run"), run_content(tmp_path / "straight"))
    check_steps(tmp_path / "run", config)


@pytest.mark.usefixtures("no_pictures")
def test_resuming_a_finished_run_changes_nothing(tiny, tmp_path):
    config = tiny()
    first = pretrain(config, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    again = pretrain(config, tmp_path / "run", resume=True)
    assert again == first
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("no_pictures")
def test_a_lost_checkpoint_starts_again(tiny, tmp_path, run_content, bit_equal):
    config = tiny()
    pretrain(config, tmp_path / "run", stop_after=2)
    (tmp_path / "run" / CHECKPOINT).unlink()
    pretrain(config, tmp_path / "run", resume=True)
    pretrain(config, tmp_path / "straight")
    assert bit_equal(run_content(tmp_path / "run"), run_content(tmp_path / "straight"))
    check_steps(tmp_path / "run", config)


@pytest.mark.usefixtures("no_pictures")
def test_event_files_of_one_second_are_read_in_order(tiny, tmp_path):
    """Readers sort files by name; here the older one's sorts after whatever the next second and a half brings."""
    config = tiny()
    pretrain(config, tmp_path / "run", stop_after=5)
    (old,) = (tmp_path / "run" / "tensorboard").iterdir()
    old.rename(old.with_name(f"events.out.tfevents.{int(time.time()) + 1}.zzz.1.0"))
    pretrain(config, tmp_path / "run", resume=True)
    check_steps(tmp_path / "run", config)


def kill_at_random_moments(config, folder, start_child, n_kills, rng):
    """Start, kill, start again; returns in how many lives the run had not finished by itself."""
    killed = 0
    while killed < n_kills:
        child = start_child(RUN.format(values=config.to_dict(), folder=str(folder)))
        # From the first row on, so that the moments spread over updates, checkpoints and validations.
        deadline = time.monotonic() + 60
        while not (folder / "metrics.csv").exists() and child.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        child.join(rng.uniform(0.0, 0.3))
        if not child.is_alive():
            assert child.exitcode == 0
            return killed
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        killed += 1
    return killed


def check_kills(tiny, tmp_path, start_child, n_kills, bit_equal, run_content):
    config = tiny(n_steps=300 if n_kills < 10 else 3000, log_every=7, validate_every=150, checkpoint_every=10)
    folder = tmp_path / "killed"
    assert kill_at_random_moments(config, folder, start_child, n_kills, random.Random(0)) > 0
    # A warning would mean a damaged checkpoint: allowed, but a file that is renamed whole is never damaged.
    assert pretrain(config, folder, resume=True).finished
    check_steps(folder, config)
    pretrain(config, tmp_path / "straight")
    assert bit_equal(run_content(folder), run_content(tmp_path / "straight"))


@pytest.mark.usefixtures("no_pictures")
def test_kills(tiny, tmp_path, start_child, bit_equal, run_content):
    check_kills(tiny, tmp_path, start_child, 3, bit_equal, run_content)


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_many_kills(tiny, tmp_path, start_child, bit_equal, run_content):
    check_kills(tiny, tmp_path, start_child, 20, bit_equal, run_content)
