"""The merged engine equals the literal layers, in values and in gradients, for any weights."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from icrl_agent.model import MergedContext, SoftmaxICTD, affine_layer, merge_transitions, merged_values
from icrl_agent.model.merged import merged_kernel

TOLERANCE = 1e-10
N_LAYERS = 6


def random_model(shared, layer="tsm", d=3, seed=0):
    """Weights nowhere near the theorem's: A full and not symmetric, V's ratios off, all different per layer."""
    model = SoftmaxICTD(d, n_layers=N_LAYERS, layer=layer, shared=shared, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        noise = torch.randn(model.attention_weight.shape, generator=generator, dtype=torch.float64)
        model.attention_weight.copy_(1.5 * noise)
        noise = torch.randn(model.value_weight.shape, generator=generator, dtype=torch.float64)
        model.value_weight.copy_(0.3 * noise)
        model.value_weight[:, d + 2, d:] += torch.tensor([0.8, 0.6, -0.7], dtype=torch.float64)
    return model


def merge(context, n_states, sparse):
    """States by number; number n_states - 1 is one that no column shows."""
    k = np.flatnonzero(context.source_mask)
    table = np.full((n_states, context.features.shape[1]), 0.3)
    table[context.state] = context.features

    def row(array):
        return torch.tensor(np.asarray(array))[None]

    return merge_transitions(
        row(table),
        row(context.state[k]),
        row(context.state[k + 1]),
        row(context.rewards[k]),
        row(context.continues[k]),
        sparse=sparse,
    )


def check_engine(values_of, model, context, gamma, sparse):
    """Values of every column, and the gradient of a random combination of them, agree with the literal layers."""
    coefficients = torch.tensor(np.random.default_rng(9).normal(size=len(context.features)))
    literal = model.values(context.prompt(), gamma, **context.masks())[0]
    merged = values_of(model, merge(context, 8, sparse), gamma)[-1][0, torch.tensor(context.state)]
    np.testing.assert_allclose(merged.detach(), literal.detach(), atol=TOLERANCE, rtol=0)
    gradients = []
    for values in (literal, merged):
        model.zero_grad()
        (coefficients * values).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in (model.attention_weight, model.value_weight)])
    for expected, found in zip(*gradients, strict=True):
        np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert (gradients[0][1] != 0).any()


CONTEXTS = {
    "episodes and queries never left": {"n_transitions": 20, "n_states": 7, "n_queries": 7},
    "few transitions, many states": {"n_transitions": 4, "n_states": 7, "n_queries": 7},
    "long, repeated states": {"n_transitions": 90, "n_states": 3},
    "one transition": {"n_transitions": 1, "n_states": 7, "n_queries": 3},
    "unbroken": {"n_transitions": 30, "n_states": 7, "p_end": 0.0},
}


@pytest.mark.parametrize("case", CONTEXTS)
@pytest.mark.parametrize("shared", [True, False], ids=["looped", "per layer"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_merged_engine_is_the_literal_layers(random_context, case, shared, sparse):
    for seed in range(4):
        context = random_context(np.random.default_rng(seed), feature_dim=3, **CONTEXTS[case])
        model = random_model(shared, ("tsm", "dual_head")[seed % 2], seed=seed)
        check_engine(merged_values, model, context, (0.0, 0.5, 0.9, 1.0)[seed], sparse)


def test_padding_is_left_out(random_context):
    context = random_context(np.random.default_rng(0), 15, 3, n_states=7, padding=6)
    # Padding columns are no sources and no state of the merged context.
    trimmed = context._replace(
        **{name: getattr(context, name)[6:] for name in ("features", "rewards", "source_mask", "continues", "state")}
    )
    model = random_model(True)
    padded = model.values(context.prompt(), 0.9, **context.masks())[0, 6:]
    merged = merged_values(model, merge(trimmed, 8, False), 0.9)[-1][0, torch.tensor(trimmed.state)]
    np.testing.assert_allclose(merged.detach(), padded.detach(), atol=TOLERANCE)


def changed(**changes):
    """The engine on a context with one array changed."""

    def values_of(model, context, gamma):
        return merged_values(
            model, context._replace(**{name: f(getattr(context, name)) for name, f in changes.items()}), gamma
        )

    return values_of


def attention_transposed(model, context, gamma):
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.attention_weight.copy_(model.attention_weight.transpose(1, 2))
    return merged_values(twin, context, gamma)


@pytest.mark.parametrize(
    "double",
    [
        changed(counts=lambda counts: (counts > 0).double()),
        changed(counts=lambda counts: counts.clamp(min=1.0)),
        changed(successors=lambda C: C.transpose(1, 2)),
        changed(reward_sum=lambda r: r.roll(1, dims=1)),
        lambda model, context, gamma: merged_values(model, context, 0.5 * gamma),
        lambda model, context, gamma: merged_values(model, context, gamma, N_LAYERS - 1),
        lambda model, context, gamma: [values.detach().requires_grad_() for values in merged_values(
            model, context, gamma)],
        attention_transposed,
    ],
    ids=["visits not counted", "states never left attended", "transition transposed", "rewards shifted",
         "gamma changed", "one layer short", "no gradient", "attention transposed"],
)  # fmt: skip
def test_the_engine_check_catches(random_context, double):
    context = random_context(np.random.default_rng(1), 20, 3, n_states=7)
    model = random_model(True)
    check_engine(merged_values, model, context, 0.9, False)
    # Without a gradient, ``backward`` leaves grad None.
    with pytest.raises((AssertionError, AttributeError)):
        check_engine(double, model, context, 0.9, False)


def test_a_batch_is_a_loop_of_singles(random_context):
    """Contexts of different sizes, padded with weights 0 and with states that no transition leaves."""
    table = np.random.default_rng(3).uniform(-1, 1, (7, 3))
    contexts = [
        random_context(np.random.default_rng(i), n, 3, n_states=7, table=table) for i, n in enumerate((3, 9, 0))
    ]
    gammas = torch.tensor([0.0, 0.9, 0.7], dtype=torch.float64)
    longest = 9
    arrays = {"state": [], "next_state": [], "rewards": [], "continues": [], "weights": []}
    for context in contexts:
        k = np.flatnonzero(context.source_mask)
        for name, values in (
            ("state", context.state[k]),
            ("next_state", context.state[k + 1]),
            ("rewards", context.rewards[k]),
            ("continues", context.continues[k]),
            ("weights", np.ones(len(k))),
        ):
            arrays[name].append(np.pad(values, (0, longest - len(k))))
    # What stands in the left-out places must not matter.
    arrays["rewards"][0][3:] = 99.0
    tensors = {name: torch.tensor(np.stack(rows)) for name, rows in arrays.items()}
    batch = merge_transitions(torch.tensor(np.stack([table] * 3)), **tensors)
    model = random_model(False)
    depths = merged_values(model, batch, gammas)
    shorter = merged_values(model, batch, gammas, n_layers=N_LAYERS - 1)
    assert depths.shape == (N_LAYERS + 1, 3, 7)
    np.testing.assert_allclose(depths[:-1].detach(), shorter.detach(), atol=1e-13)
    values = depths[-1]
    for i, context in enumerate(contexts):
        literal = model.values(context.prompt(), float(gammas[i]), **context.masks())[0]
        np.testing.assert_allclose(values[i, context.state].detach(), literal.detach(), atol=TOLERANCE)
    assert (values[2] == 0).all()


def test_without_transitions_gradients_are_finite():
    context = MergedContext(
        torch.ones(1, 2, 3, dtype=torch.float64),
        *(torch.zeros(shape, dtype=torch.float64) for shape in [(1, 2), (1, 2), (1, 2, 2)]),
    )
    model = random_model(True)
    values = merged_values(model, context, 0.9)[-1]
    assert values.tolist() == [[0.0, 0.0]]
    values.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_kernel_and_layer_by_loops(random_context):
    """M, T and b from sums over transitions."""
    context = random_context(np.random.default_rng(4), 12, 3, n_states=5)
    merged, model = merge(context, 6, False), random_model(True)
    A = model.attention_block(0).detach().numpy()
    w_reward, w_target, w_current = model.value_entries(0).tolist()
    x, k = merged.features[0].numpy(), np.flatnonzero(context.source_mask)
    M, P, r = np.zeros((6, 6)), np.zeros((6, 6)), np.zeros(6)
    for s in range(6):
        shares = np.exp([x[context.state[j]] @ A @ x[s] for j in k])
        for j, share in zip(k, shares / shares.sum(), strict=True):
            M[s, context.state[j]] += share
            P[s, context.state[j + 1]] += share * context.continues[j]
            r[s] += share * context.rewards[j]
    T, b = affine_layer(
        merged, model.attention_block(0), model.value_entries(0), torch.tensor([0.9], dtype=torch.float64)
    )
    np.testing.assert_allclose(merged_kernel(merged, model.attention_block(0))[0].detach(), M, atol=1e-13)
    np.testing.assert_allclose(T[0].detach(), np.eye(6) + w_current * M + w_target * 0.9 * P, atol=1e-13)
    np.testing.assert_allclose(b[0].detach(), w_reward * r, atol=1e-13)


@pytest.mark.parametrize(
    ("shared", "n_layers", "match"), [(True, 0, "at least 1, got 0"), (False, 7, "got n_layers=7")]
)
def test_a_depth_the_model_does_not_have(random_context, shared, n_layers, match):
    context = merge(random_context(np.random.default_rng(0), 5, 3), 8, False)
    with pytest.raises(ValueError, match=match):
        merged_values(random_model(shared), context, 0.9, n_layers)
