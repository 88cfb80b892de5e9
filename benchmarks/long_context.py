"""Continuous observations that never repeat: 100,000 transitions against torch's own fused attention.

    python benchmarks/long_context.py

64 features, one thread. One layer of the estimator in float64 against scaled_dot_product_attention of the same queries,
keys and 64 value columns in float64 and float32 (both without a causal mask), and the peak memory of a process that
evaluates the 100,000 transitions with one layer. Then 10,000 transitions with 1, 5 and 20 layers.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

from ratios import Ratio, arguments, report, seconds

import numpy as np  # isort: skip - after the number of threads is set
import torch

from icrl_agent import ICRLAgent
from icrl_agent.features import RandomFourier
from icrl_agent.transitions import Transitions

DIM = 64
FEATURES = RandomFourier((0.0,) * 4, (1.0,) * 4, DIM, lengthscale=2.0)


def transitions(n: int) -> Transitions:
    """A random walk in four dimensions with an end every 200 steps."""
    rng = np.random.default_rng(0)
    path = np.cumsum(rng.normal(size=(n + 1, 4)), axis=0) / 10
    ends = np.arange(n) % 200 == 199
    return Transitions(path[:-1], rng.normal(size=n), path[1:], ends, np.zeros(n, bool), np.zeros(n, np.intp))


def evaluate(n: int, n_layers: int) -> float:
    """Seconds of the estimate."""
    agent, context = ICRLAgent.from_theory(DIM), transitions(n)
    return seconds(lambda: agent.evaluate_transitions(context, n_layers=n_layers, feature_map=FEATURES))


def fused(n: int, dtype: torch.dtype) -> float:
    """Seconds of torch's attention, value columns as wide as the features."""
    x = torch.tensor(FEATURES(transitions(n).observations), dtype=dtype)[None, None]
    return seconds(lambda: torch.nn.functional.scaled_dot_product_attention(x, x, x, scale=8.0))


def main() -> None:
    """Run and print."""
    options = arguments(__doc__, n=100_000, alone=0)
    torch.set_num_threads(1)
    if options.alone:
        spent = evaluate(options.n, 1)
        print(json.dumps([spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))
        return
    command = [sys.executable, __file__, "--alone", "1", "--n", str(options.n)]
    layer, gigabytes = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    double, single = fused(options.n, torch.float64), fused(options.n, torch.float32)
    one, five, twenty = (evaluate(10_000, n_layers) for n_layers in (1, 5, 20))
    n = f"{options.n:,} transitions"
    report(
        [
            Ratio(f"one layer on {n} over float32 fused attention", layer / single, 3.0, True,
                  f"{layer:.1f} and {single:.1f} s"),
            Ratio(f"one layer on {n} over float64 fused attention", layer / double, 3.0, True,
                  f"{layer:.1f} and {double:.1f} s"),
            Ratio(f"peak memory of {n}, GB", gigabytes, 1.5, True, "of the whole process"),
            Ratio("20 layers over 4 times 5 layers, 10,000 transitions", twenty / (4 * five), 1.1, True,
                  f"1, 5 and 20 layers: {one:.2f}, {five:.2f}, {twenty:.2f} s"),
        ],
        options.json,
    )  # fmt: skip


if __name__ == "__main__":
    main()
