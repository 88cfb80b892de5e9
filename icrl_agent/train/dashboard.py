"""TensorBoard: the tags, and a writer that is always closed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.utils.tensorboard import SummaryWriter

__all__ = [
    "ERROR_CURVE",
    "ERROR_FIGURE",
    "TENSORBOARD_FOLDER",
    "VALUES",
    "VALUES_FIGURE",
    "open_writer",
    "write_figure",
]

#: Folder of the event files inside a run folder.
TENSORBOARD_FOLDER = "tensorboard"

# Tags: "group/name", at most 33 characters after the group.
#: Normalised squared error; the step is the context length.
ERROR_CURVE = "evaluation/normalized_msve"
#: Value of a state; the step is the state's number.
VALUES = "evaluation/value_by_state"
#: Estimated and true values as a picture.
VALUES_FIGURE = "evaluation/values"
#: Error against context length as a picture.
ERROR_FIGURE = "evaluation/error"


@contextlib.contextmanager
def open_writer(folder: Path) -> Iterator[SummaryWriter]:
    """Open an event file in ``folder``; whatever happens in the block, every point written is readable afterwards."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))
    try:
        yield writer
    finally:
        writer.close()


def write_figure(writer: SummaryWriter, tag: str, figure: Figure, step: int) -> None:
    """Write a figure as an image; unlike ``add_figure`` it needs no pyplot."""
    canvas = figure.canvas
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]  # type: ignore[attr-defined]
    writer.add_image(tag, pixels, step, dataformats="HWC")
