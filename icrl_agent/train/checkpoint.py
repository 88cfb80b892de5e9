"""Training state on disk: one file, written whole or not at all, the one before it kept.

A checkpoint opens with plain ``torch.load(path)``: it holds tensors, numbers, strings, lists and dictionaries only.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["CHECKPOINT", "PREVIOUS_CHECKPOINT", "load_checkpoint", "plain", "save_checkpoint"]

CHECKPOINT = "checkpoint.pt"
PREVIOUS_CHECKPOINT = "checkpoint.previous.pt"

#: Says that a file is one of ours, and how its content is laid out.
_FORMAT = "icrl-agent training state 1"


def save_checkpoint(folder: Path, content: Mapping[str, Any]) -> None:
    """Write a checkpoint; the present one becomes the previous one only after the new one is safely on disk.

    Raises:
        OSError: if it cannot be written; both older files are then as they were.
    """
    temporary = folder / f".{CHECKPOINT}.tmp"
    try:
        with open(temporary, "wb") as file:
            torch.save({"format": _FORMAT, **plain(content)}, file)
            file.flush()
            os.fsync(file.fileno())
        if (folder / CHECKPOINT).exists():
            os.replace(folder / CHECKPOINT, folder / PREVIOUS_CHECKPOINT)
        os.replace(temporary, folder / CHECKPOINT)
    finally:
        temporary.unlink(missing_ok=True)


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """Read the newest checkpoint that can be read; None if there is none.

    Falls back to the previous one, with a warning, where the newest is damaged or missing.

    Raises:
        ValueError: if no file that is there can be read.
    """
    problems = []
    for name in (CHECKPOINT, PREVIOUS_CHECKPOINT):
        path = folder / name
        if not path.exists():
            continue
        try:
            content = _read(path)
        except ValueError as error:
            problems.append(str(error))
            continue
        if name == PREVIOUS_CHECKPOINT:
            reason = problems[0] if problems else f"{folder / CHECKPOINT} is missing"
            warnings.warn(f"{reason}; going on from {PREVIOUS_CHECKPOINT}", stacklevel=2)
        return content
    if problems:
        raise ValueError("; ".join(problems))
    return None


def plain(value: Any) -> Any:
    """Turn a value into what plain ``torch.load`` opens: arrays into tensors, paths into text, tuples into lists.

    >>> plain({"rate": np.float64(0.5), "folder": Path("runs"), "range": (1, 2)})
    {'rate': 0.5, 'folder': 'runs', 'range': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {key if isinstance(key, str | int) else str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu")
    except Exception as error:  # torch raises many kinds for a damaged file
        # Its text is left out: it advises to load the file in a way that runs whatever code the file holds.
        raise ValueError(f"{path} is damaged or no checkpoint") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"{path} is no checkpoint of this package")
    content.pop("format")
    return content
