"""Pretraining: a frozen configuration becomes weights, with a record, checkpoints and an exact resume."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icrl_agent.model import merged_kernel, save_weights
from icrl_agent.model.weights import WEIGHTS_FILE
from icrl_agent.train import dashboard
from icrl_agent.train.checkpoint import load_checkpoint, save_checkpoint
from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.emergence import emergence
from icrl_agent.train.run_log import RunLog
from icrl_agent.train.sampler import PromptBatch, sample_batch
from icrl_agent.train.state import Row, TrainingState, batch_losses
from icrl_agent.train.validation import validate, validation_lengths

__all__ = ["CONFIG_FILE", "PretrainResult", "check_resumable", "pretrain", "write_config"]

CONFIG_FILE = "config.json"

#: Called after every update with the number of updates done and prompts per second.
Progress = Callable[[int, float], None]


@dataclass(frozen=True)
class PretrainResult:
    """What a run left behind."""

    run_dir: Path
    n_steps: int
    """Updates done so far."""
    finished: bool
    """False if it was stopped; ``resume=True`` goes on."""
    stop_signal: int | None
    """The signal that stopped it."""
    metrics: list[Row]
    """Rows of metrics.csv."""
    validation: list[Row]
    """Rows of validation.csv."""


def pretrain(
    config: PretrainConfig,
    run_dir: str | Path,
    resume: bool = False,
    *,
    stop_after: int | None = None,
    progress: Progress | None = None,
) -> PretrainResult:
    """Pretrain a transformer; the result depends on the configuration alone, bit for bit.

    Writes into ``run_dir``: config.json, metrics.csv (a row every ``log_every`` updates; its weights' columns describe
    the averaged weights), validation.csv, tensorboard/, checkpoints, and at the end weights.safetensors (the
    averaged weights). SIGINT and SIGTERM end it after the present update, with a checkpoint. Runs on one thread.

    Args:
        config: the run.
        run_dir: a new or empty folder, or with ``resume`` the folder of a run with the same configuration.
        resume: go on from the newest checkpoint; a new folder starts from the beginning.
        stop_after: stop, with a checkpoint, when this many updates in all are done.
        progress: called after every update.

    Raises:
        ValueError: if the folder is in use, holds something else, or holds a run with another configuration; if the
            loss is no longer finite.
        OSError: if something cannot be written; the last checkpoint is then still good.
    """
    folder = Path(run_dir)
    state = _open_folder(folder, config, resume)
    if state.step >= config.n_steps and (folder / WEIGHTS_FILE).is_file():
        return PretrainResult(folder, state.step, True, None, state.metrics, state.validation)
    probe = sample_batch(config, "validation", config.seed, 0)
    with (
        _one_thread(),
        _deferred_signals() as stop,
        dashboard.open_writer(
            folder / dashboard.TENSORBOARD_FOLDER, purge_step=state.step + 1 if state.step else 0
        ) as writer,
    ):
        log = RunLog(folder, writer, state.metrics, state.validation)
        if state.step == 0:
            writer.add_text(dashboard.CONFIG_TEXT, f"```json\n{json.dumps(config.to_dict(), indent=2)}\n```")
            dashboard.write_layout(writer, validation_lengths(config))
            _record(state, log, probe, None)
        last = config.n_steps if stop_after is None else min(stop_after, config.n_steps)
        clock, saved = _Clock(state.step), state.step
        while state.step < last and not stop:
            loss = state.update(sample_batch(config, "train", config.seed, state.step))[config.objective]
            if not math.isfinite(loss):
                raise ValueError(
                    f"the weights diverged: the loss before update {state.step} is {loss}; lower learning_rate"
                )
            rate = clock.rate(state.step) * config.tasks_per_step * (config.windows_per_task + 1)
            _record(state, log, probe, rate)
            if state.step % config.checkpoint_every == 0 or state.step == last or stop:
                log.flush()
                save_checkpoint(folder, state.to_dict())
                saved = state.step
            if progress is not None:
                progress(state.step, rate)
        if saved < state.step:  # a signal came after the last look at it
            log.flush()
            save_checkpoint(folder, state.to_dict())
        finished = state.step >= config.n_steps
        if finished:
            final = {name: float(state.metrics[-1][name]) for name in ("td_loss", "kdm_mean", "theory_distance")}
            dashboard.write_hparams(writer, config.to_dict(), final)
            # Last: a run with weights is complete.
            save_weights(state.averaged, folder / WEIGHTS_FILE, {"pretraining": config.to_dict(), "feature_seed": 0})
    return PretrainResult(folder, state.step, finished, stop[0] if stop else None, state.metrics, state.validation)


def _open_folder(folder: Path, config: PretrainConfig, resume: bool) -> TrainingState:
    """Make the folder, or find the run in it."""
    used = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if used and not resume:
        raise ValueError(f"{folder} is in use: name a folder that is new or empty, or resume the run in it")
    if used:
        check_resumable(folder, config)
        content = load_checkpoint(folder)
        return TrainingState.start(config) if content is None else TrainingState.from_dict(config, content)
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, config.to_dict())
    return TrainingState.start(config)


def check_resumable(folder: Path, config: PretrainConfig, *, several: bool = False) -> None:
    """Refuse to resume in a folder that does not hold this run, or with ``several`` these seeds.

    Raises:
        ValueError: if the folder holds something else, or a run with another configuration.
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise ValueError(f"{folder} holds no run to resume: it has no {CONFIG_FILE}")
    try:
        values = dict(json.loads(path.read_text(encoding="utf-8")))
        if (values.pop("n_seeds", None) is not None) != several:
            there, here = ("one run", "several seeds") if several else ("several seeds", "one run")
            raise ValueError(f"{folder} holds {there}, not {here}")
        theirs = PretrainConfig.from_dict(values)
    except (json.JSONDecodeError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no configuration of a pretraining run: {error}") from error
    different = config.differing_fields(theirs)
    if different:
        pairs = (f"{name}: {getattr(theirs, name)!r} there, {getattr(config, name)!r} here" for name in different)
        raise ValueError(f"{folder} holds a run with another configuration ({'; '.join(pairs)})")


def write_config(folder: Path, values: Mapping[str, Any]) -> None:
    """Write config.json, whole or not at all."""
    temporary = folder / f".{CONFIG_FILE}.tmp"
    try:
        temporary.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, folder / CONFIG_FILE)
    finally:
        temporary.unlink(missing_ok=True)


def _record(state: TrainingState, log: RunLog, probe: PromptBatch, rate: float | None) -> None:
    """Record what is due after ``state.step`` updates."""
    config, step = state.config, state.step
    at_an_end = step in (0, config.n_steps)
    if at_an_end or step % config.log_every == 0:
        with torch.no_grad():
            losses = batch_losses(state.averaged, sample_batch(config, "train", config.seed, step))
        row: Row = {
            "step": step,
            "td_loss": float(losses["td"]),
            "neu": float(losses["neu"]),
            "true_value_loss": float(losses["true_value"]),
            "learning_rate": state.learning_rate,
            **emergence(state.averaged, probe.context),
        }
        state.metrics.append(row)
        log.metrics(row, rate)
    if at_an_end or step % config.validate_every == 0:
        rows = validate(config, state.averaged, step)
        state.validation.extend(rows)
        log.validation(rows)
        kernel = merged_kernel(probe.context, state.averaged.attention_block())[0, 0].numpy()
        log.pictures(state.averaged, np.asarray(kernel), step)


class _Clock:
    """Updates per second, smoothed."""

    def __init__(self, step: int) -> None:
        self._step, self._time, self._rate = step, time.perf_counter(), 0.0

    def rate(self, step: int) -> float:
        now = time.perf_counter()
        present = (step - self._step) / max(now - self._time, 1e-9)
        self._rate = present if self._rate == 0.0 else 0.95 * self._rate + 0.05 * present
        self._step, self._time = step, now
        return self._rate


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch on one thread: the order of sums, and so every bit, must not depend on the machine."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


@contextlib.contextmanager
def _deferred_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list instead of dying of them; only the main thread can."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number: int, _frame: object) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
