"""Tables on disk: the .npz round trip and files that are damaged, missing or incomplete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from icrl_agent.envs import TabularMDP, classic_boyan_chain, garnet_mdp, random_boyan_chain

TASKS = {"classic": classic_boyan_chain(), "garnet": garnet_mdp(), "boyan": random_boyan_chain()[0]}
NAMES = ("transition", "reward", "initial", "terminal")


def check_round_trip(write: Callable[[TabularMDP, Path], None], mdp: TabularMDP, path: Path) -> None:
    write(mdp, path)
    read = TabularMDP.from_npz(path)
    for name in NAMES:
        assert getattr(read, name).dtype == getattr(mdp, name).dtype
        assert np.array_equal(getattr(read, name), getattr(mdp, name)), name


@pytest.mark.parametrize("name", ["tables.npz", "tables", "tables.v1"])
@pytest.mark.parametrize("mdp", TASKS.values(), ids=TASKS)
def test_round_trip_is_exact_under_any_file_name(mdp: TabularMDP, name: str, tmp_path: Path) -> None:
    check_round_trip(TabularMDP.to_npz, mdp, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_round_trip_check_catches_a_dropped_table(tmp_path: Path) -> None:
    def without_terminal(mdp: TabularMDP, path: Path) -> None:
        np.savez(path, transition=mdp.transition, reward=mdp.reward, initial=mdp.initial)

    def float32(mdp: TabularMDP, path: Path) -> None:
        np.savez(path, **{name: getattr(mdp, name).astype(np.float32) for name in NAMES[:3]}, terminal=mdp.terminal)

    with pytest.raises(AssertionError):
        check_round_trip(without_terminal, classic_boyan_chain(), tmp_path / "a.npz")
    with pytest.raises(AssertionError):
        check_round_trip(float32, random_boyan_chain()[0], tmp_path / "b.npz")


def test_a_file_without_terminal_has_no_terminal_state(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", transition=np.eye(2), reward=np.zeros(2), initial=[1.0, 0.0])
    assert not TabularMDP.from_npz(tmp_path / "t.npz").terminal.any()


def _whole(tmp_path: Path) -> bytes:
    garnet_mdp(task_seed=1).to_npz(tmp_path / "whole")
    return (tmp_path / "whole").read_bytes()


def _flipped(tmp_path: Path) -> bytes:
    content = bytearray(_whole(tmp_path))
    content[len(content) // 3] ^= 0xFF
    return bytes(content)


def _saved(save: Callable[..., None], *args: Any, **kwargs: Any) -> Callable[[Path], bytes]:
    def content(tmp_path: Path) -> bytes:
        with (tmp_path / "saved").open("wb") as file:
            save(file, *args, **kwargs)
        return (tmp_path / "saved").read_bytes()

    return content


DAMAGED: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda tmp_path: b"",
    "text": lambda tmp_path: b"state,action\n0,1\n",
    "cut short": lambda tmp_path: _whole(tmp_path)[: len(_whole(tmp_path)) // 2],
    "one byte changed": _flipped,
    "a single array": _saved(np.save, np.eye(3)),
    "python objects": _saved(np.savez, transition=np.array([None, 1], object), reward=[0.0], initial=[1.0]),
}


def check_refused_in_one_sentence(read: Callable[[Path], Any], path: Path, message: str) -> None:
    try:
        read(path)
    except Exception as error:
        assert type(error) is ValueError  # noqa: PT017
        assert str(path) in str(error)  # noqa: PT017
        assert message in str(error)  # noqa: PT017
    else:
        raise AssertionError("the file was accepted")


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damaged_files_are_refused_by_name(content: Callable[[Path], bytes], tmp_path: Path) -> None:
    path = tmp_path / "damaged.npz"
    path.write_bytes(content(tmp_path))
    check_refused_in_one_sentence(TabularMDP.from_npz, path, "cannot be read as an .npz file of tables")
    check_refused_in_one_sentence(lambda p: gym.make("TabularMDP-v0", transition=str(p)), path, "cannot be read")


def test_missing_files_and_folders_are_refused_by_name(tmp_path: Path) -> None:
    check_refused_in_one_sentence(TabularMDP.from_npz, tmp_path / "none.npz", "No such file")
    check_refused_in_one_sentence(TabularMDP.from_npz, tmp_path, "Is a directory")


@pytest.mark.parametrize("missing", NAMES[:3])
def test_a_missing_table_is_named(missing: str, tmp_path: Path) -> None:
    tables = {"transition": np.eye(2), "reward": np.zeros(2), "initial": [1.0, 0.0]}
    np.savez(tmp_path / "t.npz", **{name: table for name, table in tables.items() if name != missing})
    check_refused_in_one_sentence(TabularMDP.from_npz, tmp_path / "t.npz", f"lacks a table: {missing}")


def test_refusal_check_catches_raw_numpy_errors(tmp_path: Path) -> None:
    path = tmp_path / "cut.npz"
    path.write_bytes(_whole(tmp_path)[:-40])

    def plain(path: Path) -> Any:
        with path.open("rb") as file:
            return np.load(file)

    with pytest.raises(AssertionError):
        check_refused_in_one_sentence(plain, path, "cannot be read")


def test_the_environment_plays_the_file_that_it_is_given(tmp_path: Path) -> None:
    mdp = classic_boyan_chain()
    mdp.to_npz(tmp_path / "classic.npz")
    for path in (tmp_path / "classic.npz", str(tmp_path / "classic.npz")):
        assert gym.make("TabularMDP-v0", transition=path).unwrapped.mdp.same_tables(mdp)
    with pytest.raises(ValueError, match="holds all tables"):
        gym.make("TabularMDP-v0", transition=path, reward=[0.0])
    with pytest.raises(ValueError, match="needs reward and initial"):
        gym.make("TabularMDP-v0", transition=np.eye(2), reward=[0.0, 0.0])
