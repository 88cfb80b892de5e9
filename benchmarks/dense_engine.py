"""The literal layers against the matrix products and the one softmax that they must do, on the same shapes.

    python benchmarks/dense_engine.py

64 prompts of 256 transitions, 32 features, 20 looped layers, float32, one thread, no gradient. The bound is torch's own
matmul for scores, V Z and attention in every layer, and one softmax. Both run in turn; the median ratio decides.
"""

from __future__ import annotations

from ratios import Ratio, arguments, report, seconds

import numpy as np  # isort: skip - after the number of threads is set
import torch

from icrl_agent.model import SoftmaxICTD

BATCH, N, DIM, LAYERS = 64, 256, 32, 20


def main() -> None:
    """Run and print."""
    options = arguments(__doc__, rounds=9)
    torch.set_num_threads(1)
    model = SoftmaxICTD.from_theory(DIM, n_layers=LAYERS)
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randn(BATCH, DIM + 3, N + 1, generator=generator)
    prompt[:, :DIM] /= prompt[:, :DIM].norm(dim=1, keepdim=True)
    prompt[:, DIM + 1 :] = 0.0
    prompt[:, DIM, -1] = 0.0
    A, V = model.layer_weights(0)

    def products() -> None:
        weights = torch.softmax(torch.matmul(torch.matmul(prompt.transpose(1, 2), A), prompt), dim=1)
        for _ in range(LAYERS):
            torch.matmul(torch.matmul(V, prompt), weights)

    with torch.no_grad():
        products()
        model(prompt, 0.9)
        pairs = [(seconds(lambda: model(prompt, 0.9)), seconds(products)) for _ in range(options.rounds)]
    engine, bound = np.median(pairs, axis=0)
    ratio = float(np.median([a / b for a, b in pairs]))
    report(
        [Ratio("literal layers over their products and softmax", ratio, 2.0, True,
               f"{1e3 * engine:.0f} and {1e3 * bound:.0f} ms")],
        options.json,
    )  # fmt: skip


if __name__ == "__main__":
    main()
