"""The comparison's figure with few enough methods to be read: error against environment steps.

    python benchmarks/comparison_figure.py RUN_DIR docs/figures/comparison.png

RUN_DIR holds a finished ``icrl compare`` with these methods.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from icrl_agent.eval.comparison_report import plot_comparison

METHODS = (
    "frozen agent, theorem",
    "certainty equivalence, zero fill",
    "constant mean(r)/(1-gamma)",
    "SB3 DQN, linear, one-hot",
    "SB3 A2C, linear, one-hot",
    "SB3 PPO, linear, one-hot",
    "SB3 DQN, [64], own features",
    "SB3 DQN, defaults",
)


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("figure", type=Path)
    arguments = parser.parse_args()
    with open(arguments.run_dir / "summary.csv", newline="", encoding="utf-8") as file:
        lines = [
            {name: text if name == "method" else float(text or "nan") for name, text in row.items()}
            for row in csv.DictReader(file)
        ]
    chosen = [line for method in METHODS for line in lines if line["method"] == method]
    plot_comparison(chosen, "n_steps", "environment steps").savefig(arguments.figure)


if __name__ == "__main__":
    main()
