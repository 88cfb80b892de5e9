"""Attention in chunks equals the literal layers, whatever the chunks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import icrl_agent.model.chunked
from icrl_agent.model import SoftmaxICTD, chunked_layer, merge_transitions
from icrl_agent.model.chunked import attended_errors


def random_model(d=3, n_layers=4):
    model = SoftmaxICTD(d, n_layers=n_layers, shared=False, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        model.attention_weight.copy_(
            1.5 * torch.randn(model.attention_weight.shape, generator=generator, dtype=torch.float64)
        )
        model.value_weight[:, d + 2, d:] = torch.tensor([0.8, 0.6, -0.7], dtype=torch.float64)
    return model


def merged(context, sparse):
    """Every column a state of its own, as with observations that never repeat."""
    k = np.flatnonzero(context.source_mask)
    rows = (k, k + 1, context.rewards[k], context.continues[k])
    return merge_transitions(
        torch.tensor(context.features)[None], *(torch.tensor(row)[None] for row in rows), sparse=sparse
    )


def run_chunked(model, context, gamma, sparse=True):
    values = torch.zeros(len(context.features), dtype=torch.float64)
    for layer in range(model.n_layers):
        weights = model.attention_block(layer), model.value_entries(layer)
        values = values + chunked_layer(merged(context, sparse), *weights, gamma, values)
    return values


def check_chunked(values_of, context, gamma=0.9):
    model = random_model()
    with torch.no_grad():
        expected = model.values(context.prompt(), gamma, **context.masks())[0]
        np.testing.assert_allclose(values_of(model, context, gamma), expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("chunks", [(1, 1), (3, 7), (64, 5), (500, 500)])
@pytest.mark.parametrize("sparse", [True, False])
def test_chunks_are_the_literal_layers(random_context, monkeypatch, chunks, sparse):
    monkeypatch.setattr(icrl_agent.model.chunked, "QUERIES", chunks[0])
    monkeypatch.setattr(icrl_agent.model.chunked, "SOURCES", chunks[1])
    for seed in range(3):
        context = random_context(np.random.default_rng(seed), 40, 3, n_states=200, n_queries=9)
        check_chunked(lambda *arguments: run_chunked(*arguments, sparse), context, (0.0, 0.9, 1.0)[seed])


@pytest.mark.parametrize(
    "double",
    [
        lambda model, context, gamma: run_chunked(model, context, 0.99 * gamma),
        lambda model, context, gamma: run_chunked(model, context._replace(rewards=np.roll(context.rewards, 1)), gamma),
        lambda model, context, gamma: run_chunked(
            model, context._replace(continues=np.ones_like(context.continues)), gamma
        ),
    ],
    ids=["gamma changed", "rewards shifted", "ends ignored"],
)
def test_the_chunk_check_catches(random_context, double):
    context = random_context(np.random.default_rng(1), 40, 3, n_states=200)
    check_chunked(run_chunked, context)
    with pytest.raises(AssertionError):
        check_chunked(double, context)


def test_large_scores_do_not_overflow():
    """Scores of +-1e4, chunk by chunk higher: the last source takes all."""
    key = torch.linspace(-1e4, 1e4, 2000, dtype=torch.float64)[:, None]
    errors = torch.arange(2000, dtype=torch.float64)
    one = torch.ones(3, 1, dtype=torch.float64)
    found = attended_errors(one, key, errors, torch.ones(2000, dtype=torch.float64))
    weights = torch.softmax(key[:, 0], dim=0)
    np.testing.assert_allclose(found, (weights @ errors).expand(3), rtol=1e-12)


def test_without_transitions_nothing_changes(random_context):
    context = random_context(np.random.default_rng(0), 0, 3, n_queries=4)
    assert (run_chunked(random_model(), context, 0.9) == 0).all()
