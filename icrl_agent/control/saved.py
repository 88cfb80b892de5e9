"""The context of a controller as a file: what happened, with the features and actions it belongs to."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl_agent.control.saved_arrays import fault_of
from icrl_agent.streaming import Stream, stream_arrays, stream_from_arrays

__all__ = ["read_context", "write_context"]


def write_context(path: str | Path, stream: Stream, n_steps: int) -> None:
    """Write a stream of pairs and the number of steps observed to an ``.npz`` file, under exactly this name.

    The file appears whole or not at all.
    """
    path = Path(path)
    arrays: dict[str, Any] = stream_arrays(stream)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, about=np.array(json.dumps(_about(stream))), n_steps=np.array(n_steps), **arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_context(
    path: str | Path, like: Stream, check_observations: Callable[[NDArray[Any]], None]
) -> tuple[Stream, int]:
    """Read a stream with the weights and settings of ``like``, and the number of steps.

    Args:
        path: the file.
        like: a stream of pairs.
        check_observations: raises ValueError for rows of numbers (S, k) that are no observations.

    Raises:
        ValueError: for a file that holds no context, or one of other features, actions or window.
    """
    try:
        arrays = _arrays(Path(path))
        about, n_steps = _header(arrays)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as a saved context: {error}") from error
    for name, value in json.loads(json.dumps(_about(like))).items():
        if about.get(name) != value:
            raise ValueError(f"the context in {path} has {name} {about.get(name)}, this controller has {value}")
    fault = fault_of(arrays, like.context_length)
    if fault is not None:
        raise ValueError(f"{path} cannot be read as a saved context: {fault}")
    try:
        if len(arrays["observations"]):
            check_observations(arrays["observations"][:, :-1])
        return stream_from_arrays(arrays, like), n_steps
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read as a saved context: {error}") from error


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise ValueError("there is no such file")
    if not zipfile.is_zipfile(path):
        raise ValueError("it is no .npz file")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in file.files}
    except ValueError as error:
        raise ValueError("it holds something else than arrays of numbers and text") from error
    except (OSError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise ValueError(f"it is damaged: {error}") from error


def _header(arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, Any], int]:
    """Take what it belongs to and the number of steps out of the arrays."""
    if missing := [name for name in ("about", "n_steps") if name not in arrays]:
        raise ValueError(f"it has no array {' and no '.join(missing)}")
    about, n_steps = arrays.pop("about"), arrays.pop("n_steps")
    try:
        described = json.loads(str(about))
    except json.JSONDecodeError:
        described = None
    if not isinstance(described, dict):
        raise ValueError("its array about is no JSON object")
    if n_steps.shape != () or n_steps.dtype.kind not in "iu" or n_steps < 0:
        raise ValueError(f"n_steps must be a non-negative integer, got {n_steps.tolist()!r:.80}")
    return described, int(n_steps)


def _about(stream: Stream) -> dict[str, object]:
    spec = stream.feature_map.spec()
    return {
        "n_actions": spec["n_actions"],
        "context_length": stream.context_length,
        "features": spec,
    }
