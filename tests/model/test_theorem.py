"""Theorem 1 and Lemma 1: after every layer the current memory is weighted softmax TD, in every column."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import icrl_agent.model.transformer
from icrl_agent.algorithms import weighted_softmax_td
from icrl_agent.model import SoftmaxICTD, attention_weights

N_PROMPTS = 200


def prompts(random_context, n=N_PROMPTS, seed=0):
    """Contexts with gamma, sharpness and depth, over the whole stated range."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        context = random_context(
            rng,
            int(rng.integers(1, 61)),
            int(rng.integers(1, 9)),
            n_states=int(rng.integers(1, 12)),
            padding=int(rng.integers(0, 5)),
            n_queries=int(rng.integers(0, 5)),
        )
        yield context, float(rng.uniform(0, 0.99)), float(rng.uniform(0, 5)), int(rng.integers(1, 26))


def theory_layer(layer, dtype):
    """One layer of the constructed transformer as a function of everything it depends on."""

    def step(Z, gamma, sharpness, source_mask, continues):
        d = Z.shape[1] - 3
        model = SoftmaxICTD.from_theory(d, n_layers=1, sharpness=sharpness, layer=layer, dtype=dtype)
        return model(Z, gamma, source_mask=source_mask, continues=continues).detach()

    return step


def flawed_layer(flaw):
    """The dual-head layer written out again, with one mistake."""

    def step(Z, gamma, sharpness, source_mask, continues):
        d = Z.shape[1] - 3
        x, is_source = Z[0, :d], source_mask[0]
        scores = (sharpness * x.T @ x).masked_fill(~is_source[:, None], float("-inf"))  # (source, query)
        if flaw == "softmax over the wrong axis":
            weights = torch.softmax(sharpness * x.T @ x, dim=1) * is_source[:, None]
        else:
            weights = torch.softmax(scores, dim=0)
        signs = [1.0, 1.0, 1.0] if flaw == "swapped sign in V" else [1.0, 1.0, -1.0]
        update = (torch.tensor(signs, dtype=Z.dtype) @ Z[0, d:]) @ weights
        out = Z.clone()
        out[0, d + 2] += update
        following = torch.cat([update[1:], torch.zeros(1, dtype=Z.dtype)])
        target = update if flaw == "target not shifted" else following
        c = torch.ones_like(target) if flaw == "continues ignored" else continues[0]
        discount = 1.0 if flaw == "gamma missing in the shift" else gamma
        out[0, d + 1] += discount * c * target
        return out

    return step


def check_theorem(step, context, gamma, sharpness, n_layers, *, dtype=torch.float64, tolerance=1e-10):
    n = context.n_columns
    trajectory = context.features[:n]
    options = {
        "score": lambda q, s: sharpness * q @ s.T,
        "source_mask": context.source_mask[:n],
        "continues": context.continues[:n],
    }
    arguments = (trajectory, context.rewards[: n - 1], gamma, n_layers)
    columns = weighted_softmax_td(*arguments, **options)
    extra = weighted_softmax_td(*arguments, queries=context.features[n:], **options)
    expected = np.concatenate([columns, extra], axis=1)
    d = trajectory.shape[1]
    Z = context.prompt(dtype)
    for v in expected[1:]:
        Z = step(Z, gamma, sharpness, **context.masks())
        assert np.abs(Z[0, d + 2].numpy() - v).max() < tolerance
        target = gamma * context.continues[: n - 1] * v[1:n]
        assert np.abs(Z[0, d + 1, : n - 1].numpy() - target).max(initial=0.0) < tolerance
    # Features and rewards stand as they were.
    assert torch.equal(Z[0, : d + 1], context.prompt(dtype)[0, : d + 1])


@pytest.mark.parametrize("layer", ["tsm", "dual_head"])
def test_every_layer_is_weighted_softmax_td(random_context, layer):
    n_ended = n_padded = n_asked = 0
    for context, gamma, sharpness, n_layers in prompts(random_context):
        check_theorem(theory_layer(layer, torch.float64), context, gamma, sharpness, n_layers)
        n_ended += int((context.continues == 0).any())
        n_padded += int((context.features[0] == 0).all())
        n_asked += int(context.n_queries > 0)
    assert min(n_ended, n_padded, n_asked) > N_PROMPTS / 4


@pytest.mark.parametrize("layer", ["tsm", "dual_head"])
def test_in_single_precision(random_context, layer):
    for context, gamma, sharpness, n_layers in prompts(random_context, n=60, seed=1):
        step = theory_layer(layer, torch.float32)
        check_theorem(step, context, gamma, sharpness, n_layers, dtype=torch.float32, tolerance=1e-5)


@pytest.mark.parametrize(
    "flaw",
    [
        "swapped sign in V",
        "softmax over the wrong axis",
        "gamma missing in the shift",
        "target not shifted",
        "continues ignored",
    ],
)
def test_the_check_catches(random_context, flaw):
    context = random_context(np.random.default_rng(2), 30, 4, padding=2, n_queries=2)
    assert (context.continues == 0).any()
    check_theorem(flawed_layer(None), context, 0.8, 3.0, 5)
    with pytest.raises(AssertionError):
        check_theorem(flawed_layer(flaw), context, 0.8, 3.0, 5)


@pytest.mark.parametrize("layer", ["tsm", "dual_head"])
@pytest.mark.parametrize("step_size", [0.5, 1.5])
def test_scaling_v_is_the_step_size(random_context, layer, step_size):
    context = random_context(np.random.default_rng(3), 20, 3)
    model = SoftmaxICTD.from_theory(3, n_layers=7, sharpness=2.0, step_size=step_size, layer=layer, dtype=torch.float64)
    expected = weighted_softmax_td(
        context.features,
        context.rewards[:-1],
        0.9,
        7,
        step_size=step_size,
        score=lambda q, s: 2.0 * q @ s.T,
        source_mask=context.source_mask,
        continues=context.continues,
    )
    values = model.values(context.prompt(), 0.9, **context.masks())
    np.testing.assert_allclose(values[0].detach(), expected[-1], atol=1e-12)


def check_lemma(first, second, context, gamma):
    """Two models of different layer kinds are one map, trained weights included: all rows but the queries' targets."""
    n, d = context.n_columns, context.features.shape[1]
    a, b = (model(context.prompt(), gamma, **context.masks()).detach()[0] for model in (first, second))
    rows = [i for i in range(d + 3) if i != d + 1]
    np.testing.assert_allclose(a[rows], b[rows], atol=1e-10)
    np.testing.assert_allclose(a[d + 1, : n - 1], b[d + 1, : n - 1], atol=1e-10)


def random_model(layer, shared, seed=0):
    model = SoftmaxICTD(3, n_layers=4, layer=layer, shared=shared, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


@pytest.mark.parametrize("shared", [True, False])
def test_both_layers_are_the_same_map_for_any_weights(random_context, shared):
    context = random_context(np.random.default_rng(4), 25, 3, padding=2)
    first = random_model("tsm", shared)
    check_lemma(first, random_model("dual_head", shared), context, 0.7)
    with pytest.raises(AssertionError):
        check_lemma(first, random_model("dual_head", shared, seed=1), context, 0.7)


def test_theory_weights_are_those_of_the_paper():
    model = SoftmaxICTD.from_theory(2, sharpness=3.0, step_size=0.5, dtype=torch.float64)
    A, V = model.layer_weights(0)
    assert A.tolist() == np.diag([3.0, 3.0, 0.0, 0.0, 0.0]).tolist()
    expected = np.zeros((5, 5))
    expected[-1] = [0, 0, 0.5, 0.5, -0.5]
    assert V.tolist() == expected.tolist()


@pytest.mark.parametrize(("shared", "n_kernels"), [(True, 1), (False, 4)])
def test_looped_layers_compute_their_attention_once(random_context, monkeypatch, shared, n_kernels):
    """Layers that share A share their attention; it is that of every layer's own input."""
    computed = []

    def counted(Z, A, source_mask):
        computed.append(attention_weights(Z, A, source_mask))
        return computed[-1]

    monkeypatch.setattr(icrl_agent.model.transformer, "attention_weights", counted)
    context = random_context(np.random.default_rng(0), 9, 3, n_queries=2)
    model = SoftmaxICTD(3, n_layers=4, shared=shared, dtype=torch.float64, seed=1)
    with torch.no_grad():
        model.value_weight.mul_(20.0)
    Z = context.prompt()
    out = model(Z, 0.9, **context.masks())
    assert len(computed) == n_kernels
    for layer in range(4):
        A, _ = model.layer_weights(layer)
        own = attention_weights(Z, A, context.masks()["source_mask"])
        assert torch.equal(own, computed[0 if shared else layer])
        Z = model(context.prompt(), 0.9, **context.masks(), n_layers=layer + 1)
    assert torch.equal(Z, out)
