"""Transitions in .npz and .csv files."""

from __future__ import annotations

import contextlib
import csv
import math
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl_agent.logged_data.arrays import PARTS, transitions_from_arrays
from icrl_agent.transitions import Transitions

__all__ = ["transitions_from_csv", "transitions_from_npz", "transitions_to_csv", "transitions_to_npz"]

#: Parts that may be missing.
OPTIONAL = ("truncated", "copy")

_OBSERVATION_COLUMNS = {"observations": "observation", "next_observations": "next_observation"}


def transitions_to_npz(transitions: Transitions, path: str | Path) -> None:
    """Write transitions to an .npz file, one array per part; the file appears whole or not at all."""
    with _appearing_whole(Path(path)) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **{name: getattr(transitions, name) for name in PARTS})


def transitions_from_npz(path: str | Path) -> Transitions:
    """Read transitions from an .npz file with the arrays of ``transitions_from_arrays``, named as its arguments.

    Raises:
        ValueError: if there is no such file, it is cut off, or an array is missing or wrong.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in PARTS if name in stored}
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}") from error
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as .npz with arrays of numbers: is it cut off?") from error
    missing = [name for name in PARTS if name not in arrays and name not in OPTIONAL]
    if missing:
        raise ValueError(f"{path} has no array {' and no '.join(missing)}")
    return _checked(path, arrays)


def transitions_to_csv(transitions: Transitions, path: str | Path) -> None:
    """Write transitions to a .csv file that ``transitions_from_csv`` reads, every number exactly."""
    scalar = transitions.observations.ndim == 1
    left, entered = (
        array.reshape(len(array), -1) for array in (transitions.observations, transitions.next_observations)
    )
    names = {
        name: [name] if scalar else [f"{name}_{k}" for k in range(left.shape[1])]
        for name in _OBSERVATION_COLUMNS.values()
    }
    with _appearing_whole(Path(path)) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            [*names["observation"], "reward", *names["next_observation"], "copy", "terminated", "truncated"]
        )
        rows = zip(
            left.tolist(),
            transitions.rewards.tolist(),
            entered.tolist(),
            transitions.copy.tolist(),
            transitions.terminated.tolist(),
            transitions.truncated.tolist(),
            strict=True,
        )
        for s_tm1, r_t, s_t, copy, terminated, truncated in rows:
            writer.writerow([*map(repr, [*s_tm1, r_t, *s_t]), copy, terminated, truncated])


def transitions_from_csv(path: str | Path) -> Transitions:
    """Read transitions from a .csv file with a header, one row per transition in any order.

    Columns, in any order: ``observation`` (states of a finite space, or one number) or ``observation_0``,
    ``observation_1``, ...; ``next_observation`` likewise; ``reward``; ``terminated`` and optionally ``truncated``
    (true, false, 1 or 0); optionally ``copy``. Other columns are not read.

    Raises:
        ValueError: if there is no such file, a column is missing, or a cell is no number or flag; line (the header
            is line 1) and column are named.
    """
    header, lines, rows = _cells(path)

    def column(name: str, convert: Callable[[str], Any], wanted: str) -> NDArray[Any]:
        if name not in header:
            raise ValueError(f"{path}, line 1: there is no column {name} among {', '.join(header)}")
        at, values = header.index(name), []
        for line, row in zip(lines, rows, strict=True):
            try:
                values.append(convert(row[at].strip()))
            except ValueError as error:
                raise ValueError(f"{path}, line {line}, column {name}: {row[at]!r} is not {wanted}") from error
        return np.array(values)

    def observations(name: str) -> NDArray[Any]:
        numbered = sum(re.fullmatch(rf"{name}_\d+", title) is not None for title in header)
        if name in header and numbered:
            raise ValueError(f"{path}, line 1: there are columns {name} and {name}_0: one of them is too many")
        if not numbered:
            return column(name, _number, "a finite number")
        return np.stack([column(f"{name}_{k}", _number, "a finite number") for k in range(numbered)], axis=1)

    arrays = {part: observations(name) for part, name in _OBSERVATION_COLUMNS.items()}
    arrays["rewards"] = column("reward", _number, "a finite number")
    arrays["terminated"] = column("terminated", _flag, "true, false, 1 or 0")
    if "truncated" in header:
        arrays["truncated"] = column("truncated", _flag, "true, false, 1 or 0")
    if "copy" in header:
        arrays["copy"] = column("copy", int, "an integer")
    return _checked(path, arrays)


def _cells(path: str | Path) -> tuple[list[str], list[int], list[list[str]]]:
    """Header, and the other lines that are not empty with their numbers."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            numbered = [(reader.line_num, row) for row in reader if row]
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as .csv: {error}") from error
    if len(numbered) < 2:
        raise ValueError(f"{path} holds no transition: it needs a header and at least one row")
    header = [name.strip() for name in numbered[0][1]]
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise ValueError(f"{path}, line 1: there are two columns {' and two columns '.join(twice)}")
    for line, row in numbered[1:]:
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {line}: {len(row)} cells, the header has {len(header)}: is the file cut off?"
            )
    return header, [line for line, _ in numbered[1:]], [row for _, row in numbered[1:]]


def _number(cell: str) -> int | float:
    if re.fullmatch(r"[+-]?\d{1,18}", cell):
        return int(cell)
    number = float(cell)
    if not math.isfinite(number) or "_" in cell:
        raise ValueError(cell)
    return number


def _flag(cell: str) -> bool:
    flags = {"true": True, "1": True, "false": False, "0": False}
    if cell.lower() not in flags:
        raise ValueError(cell)
    return flags[cell.lower()]


def _checked(path: str | Path, arrays: Mapping[str, NDArray[Any]]) -> Transitions:
    try:
        return transitions_from_arrays(**arrays)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@contextlib.contextmanager
def _appearing_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes ``path`` when the block ends well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
