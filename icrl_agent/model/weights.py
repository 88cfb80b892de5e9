"""Weights on disk: one safetensors file with the model's shape as JSON text in its metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from icrl_agent.model.transformer import SoftmaxICTD

__all__ = ["WEIGHTS_FILE", "load_weights", "save_weights"]

#: Name of the weights inside a run folder.
WEIGHTS_FILE = "weights.safetensors"

_METADATA_KEY = "icrl_agent"


def save_weights(model: SoftmaxICTD, path: str | Path, config: Mapping[str, Any] | None = None) -> None:
    """Write the parameters, and the model's shape plus ``config`` (JSON-able) as metadata; atomically.

    The file appears whole or not at all. Masks are not written: they follow from feature_dim.

    Raises:
        ValueError: if the folder does not exist.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}")
    shape = {
        "feature_dim": model.feature_dim,
        "n_layers": model.n_layers,
        "layer": model.layer,
        "shared": model.shared,
    }
    metadata = {_METADATA_KEY: json.dumps({**shape, "config": dict(config or {})})}
    tensors = {name: parameter.detach().cpu().contiguous().clone() for name, parameter in model.named_parameters()}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(save(tensors, metadata=metadata))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load_weights(path: str | Path) -> tuple[SoftmaxICTD, dict[str, Any]]:
    """Read what ``save_weights`` wrote; returns the model (on the CPU) and the config.

    ``path`` is the file, or a run folder that holds ``weights.safetensors``.

    Raises:
        ValueError: if there is no such file, it is no safetensors file of this package, or its shapes disagree.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be text or a path, got {type(path).__name__}")
    path = Path(path)
    if path.is_dir():
        path = path / WEIGHTS_FILE
    if not path.is_file():
        raise ValueError(f"no weights at {path}: give a .safetensors file or a run folder that holds {WEIGHTS_FILE}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = (file.metadata() or {}).get(_METADATA_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}") from error
    if metadata is None:
        raise ValueError(f"{path} holds no icrl-agent model: its metadata lacks the key {_METADATA_KEY!r}")
    dtype = tensors["attention_weight"].dtype if "attention_weight" in tensors else torch.float32
    try:
        shape = json.loads(metadata)
        config = dict(shape.pop("config"))
        model = SoftmaxICTD(**shape, dtype=dtype)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} holds no icrl-agent model that this version can read: {error}") from error
    for name, parameter in model.named_parameters():
        if name not in tensors or tensors[name].shape != parameter.shape:
            found = tuple(tensors[name].shape) if name in tensors else "nothing"
            raise ValueError(f"{path} holds {found} for {name}, a model of this kind needs {tuple(parameter.shape)}")
        if not bool(torch.isfinite(tensors[name]).all()):
            raise ValueError(f"{path} holds numbers in {name} that are not finite")
        with torch.no_grad():
            parameter.copy_(tensors[name])
    return model, config
