"""What pretraining does to the weights: how diagonal attention is, the signs of V, the distance to the theorem."""

from __future__ import annotations

import torch
from torch import Tensor

from icrl_agent.model import MergedContext, SoftmaxICTD, merged_kernel

__all__ = ["batch_diagonality", "emergence", "theory_distance"]


def emergence(model: SoftmaxICTD, context: MergedContext) -> dict[str, float]:
    """Measures of the first layer's weights, keyed by their columns in metrics.csv.

    ``kdm_mean`` and ``kdm_min`` are the mean and the minimum of M_n(s, s) over the states that were left, averaged over
    the contexts; ``value_*`` the free entries of V; ``attention_diagonal`` the mean diagonal of A's feature block and
    ``attention_off_diagonal`` the mean absolute entry beside it; ``theory_distance`` see ``theory_distance``.
    """
    with torch.no_grad():
        attention, entries = model.attention_block(), model.value_entries()
        mean, minimum = batch_diagonality(merged_kernel(context, attention.to(context.features.dtype)), context.counts)
        diagonal = attention.diagonal()
        off_diagonal = attention - torch.diag(diagonal)
        n_off = max(attention.numel() - len(diagonal), 1)
        return {
            "kdm_mean": float(mean),
            "kdm_min": float(minimum),
            "value_reward": float(entries[0]),
            "value_target": float(entries[1]),
            "value_current": float(entries[2]),
            "attention_diagonal": float(diagonal.mean()),
            "attention_off_diagonal": float(off_diagonal.abs().sum() / n_off),
            "theory_distance": theory_distance(attention, entries),
        }


def batch_diagonality(kernel: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """KDM and minimum of each context, averaged over contexts: kernel (..., S, S), counts (..., S)."""
    left = counts > 0
    diagonal = kernel.diagonal(dim1=-2, dim2=-1)
    mean = (diagonal * left).sum(dim=-1) / left.sum(dim=-1).clamp(min=1)
    minimum = diagonal.masked_fill(~left, float("inf")).amin(dim=-1)
    return mean.mean(), minimum.mean()


def theory_distance(attention: Tensor, entries: Tensor) -> float:
    """Distance to the nearest weights of the theorem, A = a I and V = c (1, 1, -1) with a, c >= 0, relative.

    sqrt of the mean of |A - a I|^2 / |A|^2 and |V - c (1, 1, -1)|^2 / |V|^2; 0 for the theorem's weights, at most 1.

    >>> theory_distance(3.0 * torch.eye(4), torch.tensor([0.5, 0.5, -0.5]))
    0.0
    """

    def relative(matrix: Tensor, direction: Tensor) -> Tensor:
        scale = ((matrix * direction).sum() / direction.square().sum()).clamp(min=0.0)
        return (matrix - scale * direction).square().sum() / matrix.square().sum().clamp(min=1e-30)

    signs = torch.tensor([1.0, 1.0, -1.0], dtype=entries.dtype)
    parts = relative(attention, torch.eye(len(attention), dtype=attention.dtype)) + relative(entries, signs)
    return float(torch.sqrt(0.5 * parts))
