"""The softmax ICTD transformer, written as the equations are: the specification that every faster path must equal.

With the prompt Z of ``icrl_agent.prompt``, A and V of size (d+3) x (d+3) under fixed 0/1 masks, and M adding
-infinity to every column that is no source:

    dual head:    H  = V Z softmax(Z' A Z + M)           softmax down each column, over the sources
                  Z <- Z + H + gamma * (row d+2 of H, shifted one column to the left) written into row d+1
    one head      Z~ = Z + V Z softmax(Z' A Z + M)
    + TSM:        Z <- U Z~ + gamma * (row d+2 of Z~, shifted one column to the left) written into row d+1,
                  where U clears row d+1

No 1/n and no sqrt(d). Both are the same map (Lemma 1). Source: Xie et al. (2026), eqs 1-3 and 10-19. Ours: the
shifted row is multiplied by ``continues``, so that a terminated transition bootstraps from 0; columns without any
source get attention weights 0; the parameter masks (the feature block of A; the last row of V at reward, target
memory and current memory), as the paper's own entries were not at hand.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from icrl_agent.prompt import MEMORY_ROWS, current_row, feature_rows, reward_row, target_row

__all__ = ["LayerKind", "SoftmaxICTD", "attend", "attention_weights", "dual_head_layer", "tsm_layer", "with_target"]

LayerKind = Literal["tsm", "dual_head"]

#: Standard deviation of the free parameters of an untrained model.
INITIAL_SCALE = 0.02


def attention_weights(Z: Tensor, A: Tensor, source_mask: Tensor) -> Tensor:
    """softmax(Z' A Z + M), shape (B, N, N): entry [b, i, j] is the weight of source column i for query column j.

    Sums over i to 1; all 0 for a prompt without a source.
    """
    scores = Z.transpose(1, 2) @ A @ Z  # (B, sources, queries)
    no_source = ~source_mask
    scores.masked_fill_(no_source[:, :, None], float("-inf"))
    empty = no_source.all(dim=1)
    if not bool(empty.any()):
        return torch.softmax(scores, dim=1)
    # A prompt without sources gets scores 0 here, so that its weights and gradients are 0 and not NaN.
    return torch.softmax(scores.masked_fill(empty[:, None, None], 0.0), dim=1) * source_mask[:, :, None]


def attend(Z: Tensor, V: Tensor, weights: Tensor, source_mask: Tensor) -> Tensor:
    """H = V Z weights, (B, d+3, N); ``weights`` are ``attention_weights`` of Z."""
    # Columns that are no source carry weight 0; clearing them keeps whatever they hold out of the sum.
    return (V @ Z).masked_fill_(~source_mask[:, None, :], 0.0) @ weights


def _shifted_left(row: Tensor) -> Tensor:
    return torch.cat([row[:, 1:], torch.zeros_like(row[:, :1])], dim=1)


def dual_head_layer(
    Z: Tensor, V: Tensor, weights: Tensor, gamma: Tensor, source_mask: Tensor, continues: Tensor
) -> Tensor:
    """One dual-head layer (eqs 10-17).

    Args:
        Z: (B, d+3, N).
        V: (d+3, d+3).
        weights: ``attention_weights`` of Z, (B, N, N).
        gamma: (B, 1).
        source_mask: bool (B, N).
        continues: (B, N).
    """
    feature_dim = Z.shape[1] - MEMORY_ROWS
    H = attend(Z, V, weights, source_mask)
    shifted = gamma * continues * _shifted_left(H[:, current_row(feature_dim)])
    out = Z + H
    target = out[:, target_row(feature_dim)] + shifted
    return with_target(out, target, feature_dim)


def tsm_layer(Z: Tensor, V: Tensor, weights: Tensor, gamma: Tensor, source_mask: Tensor, continues: Tensor) -> Tensor:
    """One single-head layer with the temporal shift module (eqs 18-19); arguments as in ``dual_head_layer``."""
    feature_dim = Z.shape[1] - MEMORY_ROWS
    out = Z + attend(Z, V, weights, source_mask)
    target = gamma * continues * _shifted_left(out[:, current_row(feature_dim)])
    return with_target(out, target, feature_dim)


def with_target(Z: Tensor, target: Tensor, feature_dim: int) -> Tensor:
    """Z with another row of target memories, (B, N)."""
    row = target_row(feature_dim)
    return torch.cat([Z[:, :row], target[:, None], Z[:, row + 1 :]], dim=1)


_LAYERS = {"tsm": tsm_layer, "dual_head": dual_head_layer}


class SoftmaxICTD(nn.Module):
    """Softmax in-context TD transformer: after l layers, row d+2 of the prompt holds v_l of weighted softmax TD.

    Parameters ``attention_weight`` and ``value_weight``, shape (n_layers, d+3, d+3) or (1, d+3, d+3) where the layers
    share one pair, act through the fixed buffers ``attention_mask`` and ``value_mask`` (d+3, d+3).

    Args:
        feature_dim: d, at least 1.
        n_layers: number of layers, at least 1.
        layer: "tsm" (one head and temporal shift module) or "dual_head"; the same map.
        shared: one pair (A, V) for all layers ("looped"), or one pair each.
        dtype: torch.float32 or torch.float64.
        seed: of the small random initial weights; the global generator is left alone.

    Raises:
        ValueError: for a size below 1, an unknown layer, or another dtype.

    >>> import torch
    >>> model = SoftmaxICTD.from_theory(feature_dim=2, n_layers=3, sharpness=50.0)
    >>> prompt = torch.tensor([[[1.0, 1.0], [0.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]])  # s -> s, reward 2
    >>> model.query_value(prompt, gamma=0.5).tolist()  # 2 + 1 + 0.5
    [3.5]
    """

    attention_weight: nn.Parameter
    value_weight: nn.Parameter
    attention_mask: Tensor
    value_mask: Tensor

    def __init__(
        self,
        feature_dim: int,
        n_layers: int = 15,
        layer: LayerKind = "tsm",
        shared: bool = True,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value in (("feature_dim", feature_dim), ("n_layers", n_layers)):
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        if layer not in get_args(LayerKind):
            raise ValueError(f"layer must be one of {get_args(LayerKind)}, got {layer!r}")
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        self.feature_dim, self.n_layers, self.shared = int(feature_dim), int(n_layers), shared
        self.layer: LayerKind = layer
        size = feature_dim + MEMORY_ROWS
        attention_mask = torch.zeros(size, size, dtype=dtype)
        attention_mask[feature_rows(feature_dim), feature_rows(feature_dim)] = 1.0
        value_mask = torch.zeros(size, size, dtype=dtype)
        value_mask[current_row(feature_dim), self._value_columns] = 1.0
        self.register_buffer("attention_mask", attention_mask)
        self.register_buffer("value_mask", value_mask)
        generator = torch.Generator().manual_seed(seed)
        shape = (1 if shared else n_layers, size, size)
        for name, mask in (("attention_weight", attention_mask), ("value_weight", value_mask)):
            initial = INITIAL_SCALE * torch.randn(shape, generator=generator, dtype=dtype) * mask
            self.register_parameter(name, nn.Parameter(initial))

    @property
    def _value_columns(self) -> list[int]:
        d = self.feature_dim
        return [reward_row(d), target_row(d), current_row(d)]

    @classmethod
    def from_theory(
        cls,
        feature_dim: int,
        n_layers: int = 60,
        sharpness: float = 8.0,
        step_size: float = 1.0,
        layer: LayerKind = "tsm",
        dtype: torch.dtype = torch.float32,
    ) -> SoftmaxICTD:
        """Build the transformer of Theorem 1: A = sharpness diag(I_d, 0_3), V's last row = step_size (0_d, 1, 1, -1).

        Each layer is then one step of weighted softmax TD with score sharpness <x(s), x(s')>.

        Raises:
            ValueError: as the constructor, or for a sharpness or step_size that is not finite.
        """
        for name, value in (("sharpness", sharpness), ("step_size", step_size)):
            if isinstance(value, bool | str) or not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value!r}")
        model = cls(feature_dim, n_layers=n_layers, layer=layer, shared=True, dtype=dtype)
        with torch.no_grad():
            model.attention_weight.copy_(sharpness * torch.diag(model.attention_mask.diagonal()))
            model.value_weight.zero_()
            row = torch.tensor([step_size, step_size, -step_size], dtype=dtype)
            model.value_weight[0, current_row(feature_dim), model._value_columns] = row
        return model

    def layer_weights(self, index: int) -> tuple[Tensor, Tensor]:
        """Masked (A, V) of layer ``index`` (0-based), each (d+3, d+3)."""
        at = 0 if self.shared else index
        return self.attention_weight[at] * self.attention_mask, self.value_weight[at] * self.value_mask

    def attention_block(self, index: int = 0) -> Tensor:
        """The feature block of A, shape (d, d): score(query, source) = x(source)' A x(query)."""
        block = feature_rows(self.feature_dim)
        return self.layer_weights(index)[0][block, block]

    def value_entries(self, index: int = 0) -> Tensor:
        """The free entries of V: weights of reward, target memory and current memory, shape (3,)."""
        return self.layer_weights(index)[1][current_row(self.feature_dim), self._value_columns]

    def resolve_n_layers(self, n_layers: int | None) -> int:
        """Return how many layers run: None = all; looped weights may run at any depth.

        Raises:
            ValueError: for a depth below 1, or beyond the layers of a model that has one pair of weights each.
        """
        if n_layers is None:
            return self.n_layers
        if isinstance(n_layers, bool) or not isinstance(n_layers, Integral) or n_layers < 1:
            raise ValueError(f"n_layers must be an integer of at least 1, got {n_layers!r}")
        if not self.shared and n_layers > self.n_layers:
            raise ValueError(
                f"this model has {self.n_layers} layers with weights of their own, got n_layers={n_layers}"
            )
        return int(n_layers)

    def forward(
        self,
        prompt: Tensor,
        gamma: float | Tensor,
        source_mask: Tensor | None = None,
        continues: Tensor | None = None,
        n_layers: int | None = None,
    ) -> Tensor:
        """Run the layers on a batch of prompts.

        Args:
            prompt: (B, d+3, N), the model's dtype; N = n + 1, or n + 1 + m with m extra query columns on the right.
            gamma: discount factor, a number or one per prompt (B,), in [0, 1].
            source_mask: (B, N), bool or 0/1: columns that start a transition. None = all but the last; required
                when extra queries are appended.
            continues: (B, N), 0 where the transition terminated, else 1. None = all 1.
            n_layers: depth; None = the model's own.

        Returns:
            (B, d+3, N). Row d+2 holds the values; row d+1 of query columns is never read and means nothing.

        Raises:
            TypeError: for a prompt of another dtype.
            ValueError: for a wrong shape, gamma outside [0, 1], or a last column that is marked a source.
        """
        gamma_column, sources, lasting = self.checked(prompt, gamma, source_mask, continues)
        layer = _LAYERS[self.layer]
        Z, weights = prompt, None
        for index in range(self.resolve_n_layers(n_layers)):
            A, V = self.layer_weights(index)
            if weights is None or not self.shared:
                # V leaves the features as they are, so layers that share A share their attention.
                weights = attention_weights(Z, A, sources)
            Z = layer(Z, V, weights, gamma_column, sources, lasting)
        return Z

    def values(
        self,
        prompt: Tensor,
        gamma: float | Tensor,
        source_mask: Tensor | None = None,
        continues: Tensor | None = None,
        n_layers: int | None = None,
    ) -> Tensor:
        """Current memory of every column, v(S_j): (B, N). Arguments and errors as in ``forward``."""
        out: Tensor = self(prompt, gamma, source_mask, continues, n_layers)
        return out[:, current_row(self.feature_dim)]

    def query_value(
        self,
        prompt: Tensor,
        gamma: float | Tensor,
        source_mask: Tensor | None = None,
        continues: Tensor | None = None,
        n_layers: int | None = None,
    ) -> Tensor:
        """Value of the last column, (B,). Arguments and errors as in ``forward``."""
        return self.values(prompt, gamma, source_mask, continues, n_layers)[:, -1]

    def checked(
        self, prompt: Tensor, gamma: float | Tensor, source_mask: Tensor | None, continues: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Check a call's arguments; returns gamma (B, 1), source_mask bool (B, N), continues (B, N)."""
        rows = self.feature_dim + MEMORY_ROWS
        if prompt.ndim != 3 or prompt.shape[1] != rows or prompt.shape[2] < 1:
            raise ValueError(
                f"prompt must have shape (B, feature_dim + 3, n + 1) = (B, {rows}, n + 1), got {tuple(prompt.shape)}"
            )
        dtype = self.attention_weight.dtype
        if prompt.dtype != dtype:
            raise TypeError(
                f"prompt must be {dtype} like the model, got {prompt.dtype}: cast it with prompt.to({dtype})"
            )
        batch, _, n_columns = prompt.shape
        gammas = torch.as_tensor(gamma, dtype=dtype, device=prompt.device)
        if gammas.shape not in ((), (batch,)) or not bool(((gammas >= 0) & (gammas <= 1)).all()):
            raise ValueError(f"gamma must be a number in [0, 1] or ({batch},) of them, got {gamma}")
        if source_mask is None:
            sources = torch.arange(n_columns, device=prompt.device).expand(batch, -1) < n_columns - 1
        else:
            sources = torch.as_tensor(source_mask, device=prompt.device).bool()
        if continues is None:
            lasting = torch.ones(batch, n_columns, dtype=dtype, device=prompt.device)
        else:
            lasting = torch.as_tensor(continues, dtype=dtype, device=prompt.device)
        for name, array in (("source_mask", sources), ("continues", lasting)):
            if array.shape != (batch, n_columns):
                raise ValueError(f"{name} must have shape ({batch}, {n_columns}), got {tuple(array.shape)}")
        if not bool(((lasting == 0) | (lasting == 1)).all()):
            raise ValueError("continues must hold 0 and 1 only")
        if bool(sources[:, -1].any()):
            raise ValueError("the last column is a query: source_mask must be 0 there")
        return gammas.expand(batch)[:, None], sources, lasting
