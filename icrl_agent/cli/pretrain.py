"""``icrl pretrain``: a preset, changed field by field, becomes weights."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, get_type_hints

import tyro

from icrl_agent.train.config import PretrainConfig

if TYPE_CHECKING:
    from icrl_agent.train.loop import PretrainResult

__all__ = ["Pretrain", "progress_bar"]


def _field_documentation(cls: type) -> dict[str, str]:
    """The text below each field of a dataclass."""
    (definition,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(below, ast.Expr):
            texts[ast.unparse(statement.target)] = " ".join(str(ast.literal_eval(below.value)).split())
    return texts


_TEXTS = _field_documentation(PretrainConfig)
_FLAGS: dict[str, Any] = {
    name: Annotated[kind, tyro.conf.arg(help=f"{_TEXTS[name]} [default: the preset's]")]
    for name, kind in get_type_hints(PretrainConfig).items()
    if name != "seed"
}
if TYPE_CHECKING:
    Changes = dict[str, Any]
else:
    #: One flag per field of the configuration but the seed; those not given stay as the preset says.
    Changes = TypedDict("Changes", _FLAGS, total=False)


@dataclass(frozen=True)
class Pretrain:
    """Pretrain a transformer on random tasks, watched by TensorBoard; resumable, bit for bit reproducible."""

    preset: str
    """Which run: "paper", "paper-small", "universal", "order" or "control"."""
    run_dir: Path
    """New folder for weights, metrics, checkpoints and TensorBoard events; with --resume the one to go on in."""
    seed: int | None = None
    """Seed of tasks and initial weights; with several seeds the first. The preset's if not given."""
    n_seeds: int = 1
    """Number of seeds, each in a folder of its own, joined into summary.csv and emergence.png."""
    resume: bool = False
    """Go on in a folder that holds the same run."""
    n_jobs: int = 2
    """Local processes for several seeds."""
    backend: str = "local"
    """Where several seeds run: "local", or "dask" (the extra 'cluster')."""
    scheduler: str | None = None
    """Address of the Dask scheduler, for example tcp://127.0.0.1:8786."""
    changes: Annotated[Changes, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name="")] = field(
        default_factory=lambda: Changes()
    )
    """Fields of the preset to change."""

    def run(self) -> int:
        """Pretrain, show progress, print where the result is."""
        from icrl_agent.train.presets import preset

        values: dict[str, Any] = {**preset(self.preset).to_dict(), **self.changes}
        if self.seed is not None:
            values["seed"] = self.seed
        config = PretrainConfig.from_dict({n: list(v) if isinstance(v, tuple) else v for n, v in values.items()})
        if self.n_seeds == 1 and self.backend == "local" and self.scheduler is None:
            results = [self._run_one(config)]
        else:
            results = self._run_seeds(config)
        self._print(results)
        stopped = [result.stop_signal for result in results if result.stop_signal is not None and not result.finished]
        return 128 + stopped[0] if stopped else 0

    def _run_one(self, config: PretrainConfig) -> PretrainResult:
        from icrl_agent.train.loop import pretrain

        with progress_bar("pretraining", "updates", config.n_steps) as tick:
            return pretrain(config, self.run_dir, self.resume, progress=tick)

    def _run_seeds(self, config: PretrainConfig) -> list[PretrainResult]:
        from icrl_agent.train.seeds import pretrain_seeds

        with progress_bar("pretraining", "seeds", self.n_seeds) as tick:
            return pretrain_seeds(
                config,
                self.run_dir,
                self.n_seeds,
                self.resume,
                n_jobs=self.n_jobs,
                backend=self.backend,  # type: ignore[arg-type]
                scheduler=self.scheduler,
                progress=tick,
            )

    def _print(self, results: list[PretrainResult]) -> None:
        from rich.console import Console
        from rich.table import Table

        from icrl_agent.train.seeds import summarise

        console = Console(highlight=False)
        n_runs = f"{len(results)} seeds, mean [95 % interval]" if len(results) > 1 else f"seed in {self.run_dir}"
        first, last = (summarise([[result.metrics[at]] for result in results])[0] for at in (0, -1))
        table = Table("", title=f"pretraining, {results[0].n_steps} updates, {n_runs}")
        for heading in ("start", "end"):
            table.add_column(heading, justify="right")
        for text, name in _SHOWN.items():
            table.add_row(text, *(_with_interval(row, name, len(results)) for row in (first, last)))
        at_end = [[row for row in r.validation if row["step"] == r.validation[-1]["step"]] for r in results]
        for rows in zip(*at_end, strict=True):
            ratios = summarise([[{"step": 0, "ratio": row["ratio"]}] for row in rows])[0]
            table.add_row(
                f"error ratio at {rows[0]['context_length']} steps", "", _with_interval(ratios, "ratio", len(rows))
            )
        console.print(table)
        console.print("error ratio: geometric mean over held-out tasks, to the best classical estimator at that length")
        if not all(result.finished for result in results):
            console.print("stopped; the same command with --resume goes on")
        console.print(f"TensorBoard: icrl tensorboard {self.run_dir}", soft_wrap=True)


#: Rows of the printed table, and their columns in metrics.csv.
_SHOWN = {
    "TD loss": "td_loss",
    "kernel diagonality, mean": "kdm_mean",
    "kernel diagonality, min": "kdm_min",
    "V: reward": "value_reward",
    "V: target memory": "value_target",
    "V: current memory": "value_current",
    "A: mean diagonal": "attention_diagonal",
    "A: mean |off-diagonal|": "attention_off_diagonal",
    "distance to the theorem": "theory_distance",
}


def _with_interval(row: Mapping[str, Any], name: str, n_runs: int) -> str:
    text = f"{row[f'{name}_mean']:.3f}"
    return text if n_runs == 1 else f"{text} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"


@contextlib.contextmanager
def progress_bar(title: str, unit: str, total: int) -> Iterator[Callable[..., None]]:
    """Yield a function (done, rate per second) that moves a progress bar, which shows from its first call on."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    task = bar.add_task("", total=total, rate="")

    def tick(done: int, prompts_per_second: float | None = None) -> None:
        if not bar.live.is_started:
            bar.start()
        rate = "" if prompts_per_second is None else f"{prompts_per_second:,.0f} prompts/s"
        bar.update(task, completed=done, rate=rate)

    try:
        yield tick
    finally:
        if bar.live.is_started:
            bar.stop()
