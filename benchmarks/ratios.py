"""What the benchmark scripts share: seconds of one thread, ratios with their bounds, printed and written as JSON."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Before NumPy and torch load: one thread each.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"


class Ratio(NamedTuple):
    """One figure: a ratio of two measurements of the same run."""

    name: str
    value: float
    bound: float
    at_most: bool
    """Whether the bound is the largest value allowed, else the smallest."""
    detail: str
    """What was measured, with units."""
    absolute: bool = False
    """Seconds of this machine and hour: held against its bound, not against what was measured before."""

    @property
    def holds(self) -> bool:
        """Whether the bound is kept."""
        return self.value <= self.bound if self.at_most else self.value >= self.bound


def seconds(work: Callable[[], Any], rounds: int = 1) -> float:
    """Shortest processor time of a call, which on an idle core is its wall time."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def arguments(docstring: str | None, **defaults: int) -> argparse.Namespace:
    """The options of a script: ``--json PATH`` and integers."""
    parser = argparse.ArgumentParser(description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the ratios to this file")
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    return parser.parse_args()


def report(ratios: Sequence[Ratio], path: Path | None) -> None:
    """Print the ratios, and write them where a path is given."""
    for ratio in ratios:
        sign, verdict = ("<=" if ratio.at_most else ">="), ("" if ratio.holds else "  NOT KEPT")
        print(f"{ratio.name}: {ratio.value:.3g} (bound {sign} {ratio.bound:g}){verdict}\n    {ratio.detail}")
    if path is not None:
        path.write_text(json.dumps([ratio._asdict() for ratio in ratios]))
