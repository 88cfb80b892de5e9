"""The softmax ICTD transformer: literal layers, the merged and the chunked engine, and its weights on disk."""

from icrl_agent.model.chunked import chunked_layer
from icrl_agent.model.merged import (
    MergedContext,
    affine_layer,
    iterate_affine,
    merge_transitions,
    merged_kernel,
    merged_values,
)
from icrl_agent.model.pooled import pooled_layer, pooled_values
from icrl_agent.model.transformer import SoftmaxICTD, attention_weights, dual_head_layer, tsm_layer
from icrl_agent.model.weights import load_weights, save_weights

__all__ = [
    "MergedContext",
    "SoftmaxICTD",
    "affine_layer",
    "attention_weights",
    "chunked_layer",
    "dual_head_layer",
    "iterate_affine",
    "load_weights",
    "merge_transitions",
    "merged_kernel",
    "merged_values",
    "pooled_layer",
    "pooled_values",
    "save_weights",
    "tsm_layer",
]
