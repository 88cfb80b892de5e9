"""Run the benchmarks that have a bound, and write their ratios beside those of the last committed table.

    make bench            (python benchmarks/run_all.py, about ten minutes on one idle core)

Writes docs/benchmarks.md. A ratio 1.3 times worse than the committed one is flagged. Exit status 1 if one is, or if a
bound is not kept. Seconds are of this machine and hour, so they are held against their bounds only.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from ratios import Ratio, arguments

HERE = Path(__file__).parent
TABLE = HERE.parent / "docs" / "benchmarks.md"
SCRIPTS = (
    "streaming_speed",
    "dense_engine",
    "long_context",
    "many_environments",
    "vector_contexts",
    "control_speed",
    "against_a2c",
)
#: A ratio this many times worse than the committed one is flagged.
WORSE = 1.3


def run(script: str) -> list[Ratio]:
    """The ratios of one script, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratios.json"
        subprocess.run([sys.executable, str(HERE / f"{script}.py"), "--json", str(path)], check=True)
        return [Ratio(**item) for item in json.loads(path.read_text())]


def committed() -> dict[str, float]:
    """Ratios by name in the last committed table."""
    command = ["git", "-C", str(HERE), "show", "HEAD:docs/benchmarks.md"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.stdout.splitlines() if "|" in line]
    return {row[0]: float(row[1]) for row in cells[2:]} if shown.returncode == 0 else {}


def times_worse(ratio: Ratio, before: float) -> float:
    """How many times worse than before, above 1 where it is worse."""
    return ratio.value / before if ratio.at_most else before / ratio.value


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def table(ratios: list[Ratio], before: dict[str, float]) -> tuple[str, bool]:
    """The page, and whether all is well."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "gymnasium", "stable-baselines3"))
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. One thread; times are processor times, ratios compare measurements of one run.",
        "",
        f"Machine: {processor()}, {platform.system()}, Python {platform.python_version()}, {versions}.",
        "",
        "| figure | measured | bound | last committed | kept | measured as |",
        "|---|---|---|---|---|---|",
    ]
    well = True
    for ratio in ratios:
        last = before.get(ratio.name)
        worse = last is not None and not ratio.absolute and times_worse(ratio, last) > WORSE
        well = well and ratio.holds and not worse
        kept = ("yes" if ratio.holds else "NO") + (f", {times_worse(ratio, last):.1f} times worse" if worse else "")
        sign = "at most" if ratio.at_most else "at least"
        shown = "" if last is None else f"{last:.3g}"
        lines.append(
            f"| {ratio.name} | {ratio.value:.3g} | {sign} {ratio.bound:g} | {shown} | {kept} | {ratio.detail} |"
        )
    return "\n".join(lines) + "\n", well


def main() -> None:
    """Run all, write the table."""
    arguments(__doc__)
    page, well = table([ratio for script in SCRIPTS for ratio in run(script)], committed())
    TABLE.write_text(page)
    print(page)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
