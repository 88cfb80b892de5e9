"""The folder a command writes: refused while it is in use, filled beside its place, then moved there whole."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["check_free", "new_run_folder", "write_json"]


def check_free(path: Path) -> Path:
    """Return the path if a run folder can be made there.

    Raises:
        ValueError: if it is a file or a folder that is not empty.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} is in use: name a folder that is new or empty")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise ValueError(f"{path} cannot be a folder: {above} is a file")
    return path


@contextlib.contextmanager
def new_run_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` when the block ends well, and vanishes when it raises.

    Raises:
        ValueError: if ``path`` is in use.
    """
    check_free(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise ValueError(f"cannot write in {path.parent}: {error.strerror}") from error
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        if path.exists():
            path.rmdir()
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON that a person reads."""
    path.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
