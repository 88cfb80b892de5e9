"""Facts about the attention: what sums to 1, what it does not depend on, and what happens without sources."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icrl_agent.model import SoftmaxICTD, attention_weights

GAMMA = 0.9
LAYERS = ["tsm", "dual_head"]


def theory(layer="tsm", dtype=torch.float64, d=3, n_layers=10, sharpness=3.0):
    return SoftmaxICTD.from_theory(d, n_layers=n_layers, sharpness=sharpness, layer=layer, dtype=dtype)


def values_of(model, context, dtype=torch.float64, gamma=GAMMA, **changed):
    return model.values(context.prompt(dtype), gamma, **{**context.masks(), **changed})[0].detach()


# Which axis ----------------------------------------------------------------------------------------------------------


def check_sums(weights_of, context):
    """Down each query's column, the sources' weights sum to 1; nobody else has any."""
    A = torch.zeros(6, 6, dtype=torch.float64)
    A[:3, :3] = torch.tensor([[1.0, 2.0, 0.0], [0.0, -1.0, 1.0], [0.5, 0.0, 1.0]])
    Z, is_source = context.prompt(), torch.tensor(context.source_mask)
    weights = weights_of(Z, A, is_source[None])[0]
    np.testing.assert_allclose(weights.sum(dim=0), 1.0, rtol=1e-14)
    assert (weights[~is_source] == 0).all()
    # Entry [i, j] is the share of source i for query j: x_i' A x_j against source k.
    i, k = np.flatnonzero(context.source_mask)[:2]
    x, block, j = context.features, A[:3, :3].numpy(), len(context.features) - 1
    ratio = np.exp(x[i] @ block @ x[j] - x[k] @ block @ x[j])
    np.testing.assert_allclose(weights[i, j] / weights[k, j], ratio, rtol=1e-12)


def over_queries(Z, A, source_mask):
    return attention_weights(Z, A, source_mask).transpose(1, 2)


def score_transposed(Z, A, source_mask):
    return attention_weights(Z, A.transpose(0, 1), source_mask)


def nothing_hidden(Z, A, source_mask):
    return attention_weights(Z, A, torch.ones_like(source_mask))


def test_attention_sums_to_one_over_the_sources(random_context):
    context = random_context(np.random.default_rng(0), 12, 3, padding=2, n_queries=3)
    check_sums(attention_weights, context)
    for double in (over_queries, score_transposed, nothing_hidden):
        with pytest.raises(AssertionError):
            check_sums(double, context)


# Order ---------------------------------------------------------------------------------------------------------------


def pairs(rng, order, d=3, n=12):
    """Every transition as a pair of columns, start and end, in a given order; the query last."""
    table, start, end = rng.uniform(-1, 1, (5, d)), rng.integers(5, size=n), rng.integers(5, size=n)
    reward, lasting = rng.normal(size=n), rng.integers(2, size=n).astype(float)
    prompt = np.zeros((d + 3, 2 * n + 1))
    continues = np.ones(2 * n + 1)
    for place, k in enumerate(order):
        prompt[:d, 2 * place], prompt[:d, 2 * place + 1] = table[start[k]], table[end[k]]
        prompt[d, 2 * place], continues[2 * place] = reward[k], lasting[k]
    prompt[:d, -1] = table[0]
    return torch.tensor(prompt)[None], {
        "source_mask": torch.arange(2 * n + 1)[None] % 2 == torch.tensor([[0] * (2 * n) + [2]]),
        "continues": torch.tensor(continues)[None],
    }


def check_order(query_value):
    """The query's value does not depend on the order of whole transitions."""
    shuffled = np.random.default_rng(1).permutation(12)
    found = []
    for order in (range(12), shuffled):
        prompt, masks = pairs(np.random.default_rng(2), order)
        found.append(query_value(prompt, GAMMA, **masks).item())
    assert found[0] == pytest.approx(found[1], abs=1e-12)


@pytest.mark.parametrize("layer", LAYERS)
def test_order_of_transitions_does_not_matter(layer):
    check_order(theory(layer).query_value)


def test_the_order_check_catches_a_default_mask():
    with pytest.raises(AssertionError):
        check_order(lambda prompt, gamma, **_: theory().query_value(prompt, gamma))


# Padding -------------------------------------------------------------------------------------------------------------


def padded(context, n, fill, rng):
    """n more columns on the left, holding whatever finite numbers stand there, the memories included."""
    prompt = context.prompt(torch.float32)
    junk = torch.tensor(rng.uniform(-fill, fill, (1, prompt.shape[1], n)), dtype=torch.float32)
    masks = context.masks()
    continues = torch.cat([torch.tensor(rng.integers(2, size=(1, n)).astype(float)), masks["continues"]], 1)
    return torch.cat([junk, prompt], 2), torch.cat([torch.zeros(1, n, dtype=bool), masks["source_mask"]], 1), continues


def check_padding(values, context, fill):
    plain = values(context.prompt(torch.float32), GAMMA, **context.masks())[0].detach()
    prompt, source_mask, continues = padded(context, 5, fill, np.random.default_rng(3))
    found = values(prompt, GAMMA, source_mask=source_mask, continues=continues)[0].detach()
    np.testing.assert_allclose(found[5:], plain, atol=1e-6, rtol=0)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("fill", [0.0, 1.0, 100.0, 1e18, 3e38])
def test_padding_changes_nothing(random_context, layer, fill):
    context = random_context(np.random.default_rng(4), 7, 3, p_end=0.0)
    assert len(context.features) == 8
    check_padding(theory(layer, torch.float32).values, context, fill)


def test_the_padding_check_catches_columns_that_attend(random_context):
    def everything_is_a_source(prompt, gamma, source_mask, continues):
        n_padding = int((~source_mask[0]).sum()) - 1
        open_mask = source_mask.clone()
        open_mask[:, :n_padding] = True
        return theory(dtype=torch.float32).values(prompt, gamma, source_mask=open_mask, continues=continues)

    context = random_context(np.random.default_rng(4), 7, 3, p_end=0.0)
    for fill in (0.0, 1.0):
        with pytest.raises(AssertionError):
            check_padding(everything_is_a_source, context, fill)


@pytest.mark.parametrize("fill", [0.0, 1.0, 1e18])
def test_gradients_do_not_see_the_padding(random_context, fill):
    context = random_context(np.random.default_rng(4), 7, 3, p_end=0.0)
    model, gradients = theory(dtype=torch.float32), []
    prompt, source_mask, continues = padded(context, 5, fill, np.random.default_rng(3))
    for arguments in ((context.prompt(torch.float32), context.masks()), (prompt, {
        "source_mask": source_mask, "continues": continues})):  # fmt: skip
        model.zero_grad()
        model.query_value(arguments[0], GAMMA, **arguments[1]).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for plain, found in zip(*gradients, strict=True):
        np.testing.assert_allclose(found, plain, atol=1e-5)


# Batches -------------------------------------------------------------------------------------------------------------


def check_batch(values, contexts, gammas):
    """A batch with gamma per prompt equals a loop of singles."""
    masks = [context.masks() for context in contexts]
    together = values(
        torch.cat([context.prompt() for context in contexts]),
        torch.tensor(gammas, dtype=torch.float64),
        source_mask=torch.cat([mask["source_mask"] for mask in masks]),
        continues=torch.cat([mask["continues"] for mask in masks]),
    ).detach()
    for row, context, gamma, mask in zip(together, contexts, gammas, masks, strict=True):
        np.testing.assert_allclose(row, values(context.prompt(), gamma, **mask)[0].detach(), atol=1e-13)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_batch_is_a_loop_of_singles(random_context, layer):
    rng = np.random.default_rng(5)
    contexts = [random_context(rng, 9, 3, p_end=0.0, padding=i, n_queries=4 - i) for i in range(5)]
    gammas = [0.0, 0.3, 0.6, 0.9, 1.0]
    model = theory(layer)
    check_batch(model.values, contexts, gammas)

    def one_gamma_for_all(prompt, gamma, **masks):
        return model.values(prompt, float(torch.as_tensor(gamma).reshape(-1)[0]), **masks)

    with pytest.raises(AssertionError):
        check_batch(one_gamma_for_all, contexts, gammas)


# No source -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fill", [1.0, 1e25])
def test_without_any_source_the_value_is_zero_and_gradients_are_finite(random_context, layer, dtype, fill):
    context = random_context(np.random.default_rng(6), 5, 3)
    prompt = context.prompt(dtype)
    prompt[0, :, :3] *= fill
    prompt = torch.cat([prompt, context.prompt(dtype)])
    nothing = torch.zeros(1, prompt.shape[2], dtype=bool)
    source_mask = torch.cat([nothing, context.masks()["source_mask"]])
    model = theory(layer, dtype)
    values = model.values(prompt, GAMMA, source_mask=source_mask)
    assert (values[0] == 0).all()
    np.testing.assert_allclose(values[1].detach(), values_of(model, context, dtype, continues=None), atol=1e-6)
    values[:, -1].sum().backward()
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all()


def test_a_prompt_of_one_column():
    prompt = torch.zeros(2, 6, 1, dtype=torch.float64)
    prompt[:, :3] = 1.0
    assert theory().query_value(prompt, GAMMA).tolist() == [0.0, 0.0]


# Extra queries -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", LAYERS)
def test_extra_queries_answer_without_changing_the_rest(random_context, layer):
    table = np.random.default_rng(7).uniform(-1, 1, (6, 3))
    model = theory(layer)
    with_queries = random_context(np.random.default_rng(8), 15, 3, n_queries=6, table=table)
    n = with_queries.n_columns
    plain = type(with_queries)(*(array[:n] for array in with_queries[:5]), 0)
    values, alone = values_of(model, with_queries), values_of(model, plain)
    np.testing.assert_allclose(values[:n], alone, atol=1e-13)
    for j in range(n, n + 6):
        columns = [*range(n - 1), j]  # the same history with this query in place of the last column's features
        single = type(plain)(*(array[columns] for array in with_queries[:5]), 0)
        if not plain.source_mask[n - 2]:  # else the last column is also a successor and not free
            np.testing.assert_allclose(values[j], values_of(model, single)[-1], atol=1e-13)
        same = np.flatnonzero(with_queries.state[:n] == with_queries.state[j])
        np.testing.assert_allclose(values[j], values[same], atol=1e-13)
