"""The layer with a pooled shift: the target memory reads several columns, the pairs of the next state, not one.

The prompt's columns are state-action pairs: column j = 0..n-1 is (S_j, A_j), and after them stand query columns, which
are never sources: one for (S_{j+1}, a) of every action a. G_j names the A query columns of column j. One layer is

    Z~ = Z + V Z softmax(Z' A Z + M)                                                     as in the paper's TSM layer
    Z' = U Z~ + gamma e_{d+1} p',     p_j = c_j pool_{i in G_j} Z~[d+2, i],              U = I - e_{d+1} e_{d+1}'
    pool = sum_a w_j(a) ...     (recorded: 1 on the action taken next, which is the TSM; expected: the policy's)
    pool = max_a ...            (greedy)

so after l layers row d+2 holds q_l of ``weighted_softmax_q``. With w it is the TSM with a stochastic matrix in place of
the shift Pi; the maximum is the one nonlinearity. A, V and M are the paper's, unchanged: no weight is added. Source:
Xie et al. (2026), eqs 18-19, for the recorded action; the pooled shift is ours. This literal layer is the
specification; ``icrl_agent.control`` runs the same on sums by pair.
"""

from __future__ import annotations

import torch
from torch import Tensor

from icrl_agent.model.transformer import SoftmaxICTD, attend, attention_weights, with_target
from icrl_agent.prompt import MEMORY_ROWS, current_row

__all__ = ["pooled_layer", "pooled_values"]


def pooled_layer(
    Z: Tensor,
    A: Tensor,
    V: Tensor,
    gamma: Tensor,
    source_mask: Tensor,
    continues: Tensor,
    successors: Tensor,
    probabilities: Tensor | None,
) -> Tensor:
    """One layer: Z (B, d+3, N), gamma (B, 1), source_mask bool and continues (B, N), successors and w (B, N, A)."""
    feature_dim = Z.shape[1] - MEMORY_ROWS
    out = Z + attend(Z, V, attention_weights(Z, A, source_mask), source_mask)
    q = out[:, current_row(feature_dim)]
    q_t = torch.gather(q[:, None, :].expand(-1, Z.shape[2], -1), 2, successors)
    pooled = q_t.max(dim=2).values if probabilities is None else (probabilities * q_t).sum(dim=2)
    return with_target(out, gamma * continues * pooled, feature_dim)


def pooled_values(
    model: SoftmaxICTD,
    prompt: Tensor,
    gamma: float | Tensor,
    source_mask: Tensor,
    continues: Tensor,
    successors: Tensor,
    probabilities: Tensor | None = None,
    n_layers: int | None = None,
) -> Tensor:
    """Current memory of every column after all layers, q(column): (B, N).

    Args:
        model: gives A and V of every layer.
        prompt, gamma, source_mask, continues, n_layers: as in ``SoftmaxICTD.forward``.
        successors: G, the columns that each column's target reads, int64 (B, N, A); of columns that are no source any.
        probabilities: w, (B, N, A); None = the maximum.

    Raises:
        TypeError, ValueError: as ``SoftmaxICTD.forward``.
    """
    gamma_column, sources, lasting = model.checked(prompt, gamma, source_mask, continues)
    Z = prompt
    for index in range(model.resolve_n_layers(n_layers)):
        Z = pooled_layer(Z, *model.layer_weights(index), gamma_column, sources, lasting, successors, probabilities)
    return Z[:, current_row(model.feature_dim)]
