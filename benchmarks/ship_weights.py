"""Make the weights that the package ships, and measure them.

    python benchmarks/ship_weights.py --preset universal --run-dir runs/universal
    python benchmarks/ship_weights.py --preset order --run-dir runs/order

Pretrains the preset in that folder (or goes on there), then writes into icrl_agent/weights/: the weights, the
configuration, the log of the training and the table over cells of unseen tasks. About 5 minutes on one core.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch

from icrl_agent.eval.weights_table import weights_table
from icrl_agent.frozen import SHIPPED_WEIGHTS
from icrl_agent.model import load_weights
from icrl_agent.train.loop import pretrain
from icrl_agent.train.presets import preset

TABLE_SEED = 1


def main() -> None:
    """Pretrain, measure, copy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="universal")
    parser.add_argument("--run-dir", type=Path, required=True)
    arguments = parser.parse_args()
    name, run_dir = arguments.preset, arguments.run_dir
    config = preset(name)
    torch.set_num_threads(1)
    result = pretrain(config, run_dir, resume=run_dir.exists())
    if not result.finished:
        raise SystemExit(f"stopped after {result.n_steps} updates; the same command goes on")
    model, _ = load_weights(run_dir)
    # Tasks of this seed were never looked at while the preset was chosen.
    table = weights_table(model, seed=TABLE_SEED, features=config.features).to_markdown()
    SHIPPED_WEIGHTS.mkdir(exist_ok=True)
    for source, target in (
        ("weights.safetensors", "safetensors"),
        ("config.json", "config.json"),
        ("metrics.csv", "metrics.csv"),
    ):
        shutil.copy(run_dir / source, SHIPPED_WEIGHTS / f"{name}.{target}")
    command = f"python benchmarks/ship_weights.py --preset {name} --run-dir runs/{name}"
    text = f"# The weights `{name}`\n\nMade by `{command}`, torch {torch.__version__}.\n\n{table}"
    (SHIPPED_WEIGHTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
