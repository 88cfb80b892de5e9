"""Checkpoints: plain content, whole or not at all, the one before kept."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import warnings
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch

from icrl_agent.train import checkpoint
from icrl_agent.train.checkpoint import CHECKPOINT, PREVIOUS_CHECKPOINT, load_checkpoint, plain, save_checkpoint

CONTENT = {
    "metric": np.float64(0.1),
    "count": np.int64(7),
    "flag": np.bool_(True),
    "folder": PurePosixPath("runs/a"),
    "range": (1, (2, np.float32(0.5))),
    "array": np.arange(6.0).reshape(2, 3).T,
    "nested": {"states": {3: np.array([1, 2])}, "nothing": None, "text": "a"},
    "generator": np.random.default_rng(0).bit_generator.state,
    "tensor": torch.ones(2, dtype=torch.float64),
}


SHOW = "c['metric'], c['count'], c['flag'], c['folder'], c['range'], c['array'].tolist(), c['tensor'].dtype"
EXPECTED = "(0.1, 7, True, 'runs/a', [1, [2, 0.5]], [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]], torch.float64)"


def check_plain(convert, show, path):
    """``torch.load(path)`` takes tensors and Python's own types only."""
    torch.save(convert(CONTENT), path)
    assert show(path) == EXPECTED


def show_in_a_new_process(path):
    source = f"import sys, torch; c = torch.load(sys.argv[1]); print(({SHOW}))"
    done = subprocess.run([sys.executable, "-c", source, str(path)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr


def show_here(path):
    try:
        return str(eval(SHOW, {"c": torch.load(path)}))
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize("show", [show_in_a_new_process, show_here])
def test_plain_content_opens(tmp_path, show):
    check_plain(plain, show, tmp_path / "content.pt")


@pytest.mark.parametrize("name", ["metric", "folder"])
def test_the_plain_check_catches(tmp_path, name):
    with pytest.raises(AssertionError):
        check_plain(lambda content: plain(content) | {name: content[name]}, show_here, tmp_path / "content.pt")


@pytest.mark.parametrize("value", [np.float64(1), np.int64(1), np.bool_(True), 1, 1.0, True, "a", None], ids=repr)
def test_plain_scalars_have_python_s_own_types(value):
    assert type(plain(value)) in (bool, int, float, str, type(None))
    assert plain(value) == value


def test_plain_copies(tmp_path):
    tensor = torch.zeros(2)
    copy = plain({"a": [tensor]})["a"][0]
    tensor += 1
    assert copy.tolist() == [0.0, 0.0]


def test_two_newest_are_kept(tmp_path):
    for step in range(4):
        save_checkpoint(tmp_path, {"step": step})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([CHECKPOINT, PREVIOUS_CHECKPOINT])
    assert torch.load(tmp_path / CHECKPOINT)["step"] == 3
    assert torch.load(tmp_path / PREVIOUS_CHECKPOINT)["step"] == 2
    assert load_checkpoint(tmp_path) == {"step": 3}


def no_space(*_arguments, **_options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def saved_in_place(folder, content):
    with open(folder / CHECKPOINT, "wb") as file:
        torch.save({"format": "icrl-agent training state 1", **content}, file)
        os.fsync(file.fileno())


def moved_before_written(folder, content):
    os.replace(folder / CHECKPOINT, folder / PREVIOUS_CHECKPOINT)
    save_checkpoint(folder, content)


def leaving_its_temporary(folder, content):
    with open(folder / "checkpoint.new", "wb") as file:
        torch.save(content, file)
        os.fsync(file.fileno())


def contents(folder):
    """Digests by name: a difference that can be shown in a line."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def check_full_disk(save, folder, where, monkeypatch):
    """One sentence, both older files as they were, nothing else left."""
    folder.mkdir()
    for step in range(2):
        save_checkpoint(folder, {"step": step})
    before = contents(folder)
    with monkeypatch.context() as patch:
        if where == "device":
            # Whatever is written there meets a full disk, however torch writes it.
            (folder / f".{CHECKPOINT}.tmp").symlink_to("/dev/full")
        else:
            patch.setattr({"torch.save": torch, "os.fsync": os}[where], where.split(".")[1], no_space)
        with pytest.raises(OSError, match="No space left on device"):
            save(folder, {"step": 2, "large": torch.zeros(200_000)})
    assert contents(folder) == before
    assert load_checkpoint(folder) == {"step": 1}


@pytest.mark.parametrize("where", ["torch.save", "os.fsync", "device"])
def test_full_disk(tmp_path, where, monkeypatch):
    check_full_disk(save_checkpoint, tmp_path / "run", where, monkeypatch)


@pytest.mark.parametrize("double", [saved_in_place, moved_before_written, leaving_its_temporary])
def test_the_full_disk_check_catches(tmp_path, double, monkeypatch):
    with pytest.raises(AssertionError):
        check_full_disk(double, tmp_path / "run", "os.fsync", monkeypatch)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE = {
    "cut": truncate,
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("no checkpoint"),
    "another program's": lambda path: torch.save({"state_dict": {}}, path),
    "a tensor": lambda path: torch.save(torch.ones(3), path),
    "objects": lambda path: torch.save({"format": Path("x")}, path),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_alone_is_one_clear_error(tmp_path, damage):
    save_checkpoint(tmp_path, {"step": 0})
    DAMAGE[damage](tmp_path / CHECKPOINT)
    with pytest.raises(ValueError, match=rf"{CHECKPOINT} is (damaged or )?no checkpoint") as caught:
        load_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_previous_one_steps_in_with_a_warning(tmp_path, damage):
    for step in range(2):
        save_checkpoint(tmp_path, {"step": step})
    DAMAGE[damage](tmp_path / CHECKPOINT)
    with pytest.warns(UserWarning, match=f"{CHECKPOINT} is .*; going on from {PREVIOUS_CHECKPOINT}"):
        assert load_checkpoint(tmp_path) == {"step": 0}


def test_between_the_two_renames(tmp_path):
    for step in range(2):
        save_checkpoint(tmp_path, {"step": step})
    (tmp_path / CHECKPOINT).unlink()
    with pytest.warns(UserWarning, match=f"{CHECKPOINT} is missing; going on from"):
        assert load_checkpoint(tmp_path) == {"step": 0}


def test_both_damaged_are_both_named(tmp_path):
    for step in range(2):
        save_checkpoint(tmp_path, {"step": step})
    for name in (CHECKPOINT, PREVIOUS_CHECKPOINT):
        truncate(tmp_path / name)
    with pytest.raises(ValueError, match=rf"{CHECKPOINT} is damaged.*; .*{PREVIOUS_CHECKPOINT} is damaged"):
        load_checkpoint(tmp_path)


def test_nothing_there(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_checkpoint(tmp_path) is None


def test_a_temporary_left_by_a_kill_is_no_checkpoint(tmp_path):
    (tmp_path / f".{CHECKPOINT}.tmp").write_bytes(b"half")
    assert load_checkpoint(tmp_path) is None
    save_checkpoint(tmp_path, {"step": 5})
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]
    assert checkpoint.load_checkpoint(tmp_path) == {"step": 5}
