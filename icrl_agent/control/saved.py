"""The context of a controller as a file: what happened, with the features and actions it belongs to."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from icrl_agent.streaming import Stream, stream_arrays, stream_from_arrays

__all__ = ["read_context", "write_context"]


def write_context(path: str | Path, stream: Stream, n_steps: int) -> None:
    """Write a stream of pairs and the number of steps observed to an ``.npz`` file, under exactly this name."""
    with Path(path).open("wb") as file:
        arrays: dict[str, Any] = stream_arrays(stream)
        np.savez(file, about=np.array(json.dumps(_about(stream))), n_steps=np.array(n_steps), **arrays)


def read_context(path: str | Path, like: Stream) -> tuple[Stream, int]:
    """Read a stream with the weights and settings of ``like``, and the number of steps.

    Raises:
        ValueError: for a file that holds no context, or one of other features, actions or window.
    """
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about, n_steps = json.loads(str(arrays.pop("about"))), int(arrays.pop("n_steps"))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as a saved context: {error}") from error
    expected = json.loads(json.dumps(_about(like)))
    for name, value in expected.items():
        if about.get(name) != value:
            raise ValueError(f"the context in {path} has {name} {about.get(name)}, this controller has {value}")
    return stream_from_arrays(arrays, like), n_steps


def _about(stream: Stream) -> dict[str, object]:
    spec = stream.feature_map.spec()
    return {
        "n_actions": spec["n_actions"],
        "context_length": stream.context_length,
        "features": spec,
    }
