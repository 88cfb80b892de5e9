"""The ``icrl`` command: its flags are the fields of the commands' dataclasses.

Bad values end in one plain line on stderr and exit status 2; nothing is half-written.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import gymnasium as gym
import tyro

from icrl_agent.cli.evaluate import Evaluate
from icrl_agent.cli.info import Info, TensorBoard
from icrl_agent.cli.pretrain import Pretrain

__all__ = ["Evaluate", "Info", "Pretrain", "TensorBoard", "main"]

Command = (
    Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Pretrain, tyro.conf.subcommand("pretrain")]
    | Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[TensorBoard, tyro.conf.subcommand("tensorboard")]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the ``icrl`` command; returns its exit status: 0, 2 for a bad value, 128 + n after signal n."""
    command: Any = tyro.cli(
        Command,
        prog="icrl",
        description="In-context reinforcement learning with softmax attention.",
        args=arguments,
    )
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
            status = command.run()
    except (ValueError, TypeError, gym.error.Error, OSError) as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    return status or 0


def _say(message: str) -> None:
    print(f"icrl: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201 - the command's own output
