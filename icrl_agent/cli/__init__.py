"""The ``icrl`` command: its flags are the fields of the commands' dataclasses.

Bad values end in one plain line on stderr and exit status 2; nothing is half-written.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import gymnasium as gym
import tyro

from icrl_agent.cli.compare import Compare
from icrl_agent.cli.control import Control
from icrl_agent.cli.evaluate import Evaluate
from icrl_agent.cli.info import Info, TensorBoard
from icrl_agent.cli.pretrain import Pretrain
from icrl_agent.cli.reproduce import Reproduce

__all__ = ["Compare", "Control", "Evaluate", "Info", "Pretrain", "Reproduce", "TensorBoard", "main"]

Command = (
    Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Pretrain, tyro.conf.subcommand("pretrain")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Control, tyro.conf.subcommand("control")]
    | Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[TensorBoard, tyro.conf.subcommand("tensorboard")]
)


#: Environment variable that lets unexpected errors through.
SHOW_TRACEBACK = "ICRL_TRACEBACK"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the ``icrl`` command; returns its exit status.

    0 is success, 2 a bad value, 1 any other failure, 128 + n the end by signal n.
    """
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
    except Exception as error:
        # Not a bad value but a failure, ours or the environment's: one line, and the whole story on request.
        if os.environ.get(SHOW_TRACEBACK):
            raise
        _say(f"{type(error).__name__}: {error} (set {SHOW_TRACEBACK}=1 for the traceback)")
        return 1
    return status or 0


def _say(message: str) -> None:
    print(f"icrl: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201 - the command's own output
