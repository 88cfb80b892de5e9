"""TensorBoard: the tags, the page's layout, and a writer that is always closed.

Tags are "group/name" with at most 33 characters after the group.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.utils.tensorboard import SummaryWriter

__all__ = [
    "ATTENTION_IMAGE",
    "CLAIM_CHECK",
    "CLAIM_TEXT",
    "CLAIM_THRESHOLD",
    "COMPARISON_ERROR",
    "COMPARISON_RATIO",
    "CONFIG_TEXT",
    "CONTROL_FIGURE",
    "CONTROL_RETURN",
    "EMERGENCE",
    "EMPTY_CONTEXT",
    "EPISODE_FIGURE",
    "ERROR_CURVE",
    "ERROR_FIGURE",
    "ERROR_TABLE",
    "KERNEL_IMAGE",
    "OTHER_TASK",
    "PROMPTS_PER_SECOND",
    "TENSORBOARD_FOLDER",
    "TRAIN",
    "VALUES_FIGURE",
    "VALUE_IMAGE",
    "VALUE_MAP",
    "claim_curve_tag",
    "claim_figure_tag",
    "open_writer",
    "validation_tag",
    "write_figure",
    "write_hparams",
    "write_layout",
]

#: Folder of the event files inside a run folder.
TENSORBOARD_FOLDER = "tensorboard"

#: Normalised squared error; the step is the context length.
ERROR_CURVE = "evaluation/normalized_msve"
#: All errors as a table.
ERROR_TABLE = "evaluation/errors"
#: Estimated and true values as a picture.
VALUES_FIGURE = "evaluation/values"
#: Values over two dimensions of the states, and along an episode beside its returns, as pictures.
VALUE_MAP = "evaluation/value_map"
EPISODE_FIGURE = "evaluation/episode"
#: Error against context length as a picture.
ERROR_FIGURE = "evaluation/error"

#: A method's mean error, and its ratio to certainty equivalence's; the step is the number of environment steps.
COMPARISON_ERROR = "comparison/normalized_msve"
COMPARISON_RATIO = "comparison/ratio_to_ce"

#: A tested claim in words; the numbers of its checks and their thresholds, the step is the check's place.
CLAIM_TEXT = "claim/verdict"
CLAIM_CHECK = "claim/value"
CLAIM_THRESHOLD = "claim/threshold"
#: Return of the policy that acts; the step is the number of environment steps.
CONTROL_RETURN = "control/return"
#: Learning curves of all methods as a picture.
CONTROL_FIGURE = "control/curves"

#: Columns of metrics.csv that describe the training.
TRAIN = ("td_loss", "neu", "learning_rate")
PROMPTS_PER_SECOND = "train/prompts_per_second"
#: Columns of metrics.csv that describe the weights.
EMERGENCE = (
    "kdm_mean",
    "kdm_min",
    "value_reward",
    "value_target",
    "value_current",
    "attention_diagonal",
    "attention_off_diagonal",
    "theory_distance",
)
ATTENTION_IMAGE = "emergence/A"
VALUE_IMAGE = "emergence/V"
KERNEL_IMAGE = "emergence/kernel"
EMPTY_CONTEXT = "empty_context"
OTHER_TASK = "other_task"
CONFIG_TEXT = "config"


def validation_tag(name: str, context_length: int) -> str:
    """Tag of a validation result at one context length.

    >>> validation_tag("error", 64)
    'validation/error_n64'
    """
    return f"validation/{name}_n{context_length}"


def claim_curve_tag(name: str) -> str:
    """Tag of a curve that a claim's test measured.

    >>> claim_curve_tag("sup error, median chain")
    'curve/sup_error__median_chain'
    """
    return "curve/" + "".join(c if c.isalnum() else "_" for c in name)[:33]


def claim_figure_tag(name: str) -> str:
    """Tag of a claim's figure."""
    return f"claim/{name}"[:39]


@contextlib.contextmanager
def open_writer(folder: Path, purge_step: int | None = None) -> Iterator[SummaryWriter]:
    """Open an event file in ``folder``; whatever happens in the block, every point written is readable afterwards.

    With ``purge_step`` points of older files from that step on no longer count.
    """
    from torch.utils.tensorboard import SummaryWriter

    newest = _newest_events(folder)
    writer = SummaryWriter(str(folder), purge_step=purge_step)
    # Readers take files in the order of their names, which start with the second: within one second a resumed run's
    # file may sort before the older one. The attempt holds nothing but its start, which does no harm.
    for _ in range(30):
        if _newest_events(folder) != newest:
            break
        writer.close()
        time.sleep(0.1)
        writer = SummaryWriter(str(folder), purge_step=purge_step)
    try:
        yield writer
    finally:
        writer.close()


def _newest_events(folder: Path) -> str:
    return max((path.name for path in folder.glob("events.out.tfevents.*")), default="")


def write_figure(writer: SummaryWriter, tag: str, figure: Figure, step: int) -> None:
    """Write a figure as an image; unlike ``add_figure`` it needs no pyplot."""
    canvas = figure.canvas
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]  # type: ignore[attr-defined]
    writer.add_image(tag, pixels, step, dataformats="HWC")


def write_hparams(writer: SummaryWriter, config: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
    """Write hyperparameters beside their final metrics into the writer's own folder."""
    from torch.utils.tensorboard.summary import hparams

    plain = {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for name, value in config.items()
    }
    final = {f"final/{name}": float(value) for name, value in metrics.items()}
    for summary in hparams(plain, final):  # type: ignore[no-untyped-call]
        writer.file_writer.add_summary(summary)  # type: ignore[attr-defined]
    for tag, value in final.items():
        writer.add_scalar(tag, value, 0)


def write_layout(writer: SummaryWriter, context_lengths: Sequence[int]) -> None:
    """Group the scalars into the charts a person wants: emergence on one page, validation on another."""
    emergence = {
        "attention turns diagonal": ["emergence/kdm_mean", "emergence/kdm_min"],
        "V: signs (+, +, -)": ["emergence/value_reward", "emergence/value_target", "emergence/value_current"],
        "A: diagonal against off-diagonal": ["emergence/attention_diagonal", "emergence/attention_off_diagonal"],
        "distance to the theorem's weights": ["emergence/theory_distance"],
        "TD loss": ["train/td_loss"],
    }
    validation = {
        "ratio to the best classical estimator": [validation_tag("ratio", n) for n in context_lengths],
        "error": [validation_tag("error", n) for n in context_lengths],
        "controls": [validation_tag(name, context_lengths[-1]) for name in ("error", EMPTY_CONTEXT, OTHER_TASK)],
    }
    pages = {"emergence": emergence, "validation": validation}
    writer.add_custom_scalars(
        {page: {title: ["Multiline", tags] for title, tags in charts.items()} for page, charts in pages.items()}
    )
