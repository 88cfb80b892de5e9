"""Parameters and masks: sharing, depth, training, moving, copying, initialising."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from icrl_agent.model import SoftmaxICTD

KINDS = [(layer, shared) for layer in ("tsm", "dual_head") for shared in (True, False)]


def model_of(layer="tsm", shared=True, n_layers=4, dtype=torch.float64, d=3):
    """A model with large random weights inside its masks, and as large ones outside."""
    model = SoftmaxICTD(d, n_layers=n_layers, layer=layer, shared=shared, dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return model


@pytest.fixture
def context(random_context):
    return random_context(np.random.default_rng(0), 12, 3, padding=1)


def run(model, context, dtype=torch.float64, **options):
    return model.values(context.prompt(dtype), 0.8, **context.masks(), **options).detach()


# Depth ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layer", "shared"), KINDS)
def test_shapes_of_the_parameters(layer, shared):
    model = SoftmaxICTD(5, n_layers=3, layer=layer, shared=shared)
    shape = (1 if shared else 3, 8, 8)
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == {
        "attention_weight": shape,
        "value_weight": shape,
    }
    assert (model.feature_dim, model.n_layers, model.layer, model.shared) == (5, 3, layer, shared)


@pytest.mark.parametrize(("layer", "shared"), KINDS)
def test_depth_is_a_composition_of_layers(context, layer, shared):
    """The output of l layers fed back as a prompt, layer by layer, is the output of all."""
    model = model_of(layer, shared)
    Z = context.prompt()
    for index in range(4):
        one = SoftmaxICTD(3, n_layers=1, layer=layer, dtype=torch.float64)
        with torch.no_grad():
            one.attention_weight[0] = model.attention_weight[0 if shared else index]
            one.value_weight[0] = model.value_weight[0 if shared else index]
        Z = one(Z, 0.8, **context.masks()).detach()
        found = model(context.prompt(), 0.8, **context.masks(), n_layers=index + 1).detach()
        np.testing.assert_allclose(found, Z, atol=1e-12)
    np.testing.assert_array_equal(run(model, context), run(model, context, n_layers=4))


def test_looped_weights_run_at_any_depth(context):
    looped, per_layer = model_of(shared=True), model_of(shared=False, n_layers=7)
    with torch.no_grad():
        for name, parameter in per_layer.named_parameters():
            parameter.copy_(getattr(looped, name).expand_as(parameter))
    np.testing.assert_allclose(run(looped, context, n_layers=7), run(per_layer, context), atol=1e-12)


# Masks ---------------------------------------------------------------------------------------------------------------


def free_entries(d):
    attention = np.zeros((d + 3, d + 3))
    attention[:d, :d] = 1
    value = np.zeros((d + 3, d + 3))
    value[d + 2, [d, d + 1, d + 2]] = 1
    return {"attention_weight": attention, "value_weight": value}


def check_masks_stay_on(model, context):
    """Through an optimiser step: no gradient outside, nothing outside ever changes a value."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    model.query_value(context.prompt(), 0.8, **context.masks()).square().sum().backward()
    for name, free in free_entries(3).items():
        gradient = getattr(model, name).grad.numpy()
        assert (gradient[:, free == 0] == 0).all()
        # In some layer at least: the first one's memories are still 0.
        assert (gradient[:, free == 1] != 0).any(axis=0).all()
    optimiser.step()
    before = run(model, context)
    with torch.no_grad():
        for name, free in free_entries(3).items():
            getattr(model, name).masked_fill_(torch.tensor(free == 0), 7.0)
    np.testing.assert_array_equal(run(model, context), before)


class Unmasked(SoftmaxICTD):
    def layer_weights(self, index):
        at = 0 if self.shared else index
        return self.attention_weight[at], self.value_weight[at]


@pytest.mark.parametrize(("layer", "shared"), KINDS)
def test_masks_stay_on_through_training(context, layer, shared):
    check_masks_stay_on(model_of(layer, shared), context)


def test_the_mask_check_catches_a_model_without_masks(context):
    model = Unmasked(3, n_layers=4, dtype=torch.float64)
    with torch.no_grad():
        model.attention_weight.normal_(generator=torch.Generator().manual_seed(0))
        model.value_weight.normal_(generator=torch.Generator().manual_seed(1))
    with pytest.raises(AssertionError):
        check_masks_stay_on(model, context)


# Moving and copying --------------------------------------------------------------------------------------------------


def tensors_of(model):
    """Every tensor a module holds, registered or not."""
    held = {id(t): t for t in [*model.parameters(), *model.buffers()]}
    held |= {id(value): value for value in vars(model).values() if isinstance(value, torch.Tensor)}
    return list(held.values())


class MaskIsAnAttribute(SoftmaxICTD):
    """The mask is a plain attribute, which .to() does not move."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        mask = self.value_mask
        del self.value_mask
        object.__setattr__(self, "value_mask", mask)


def check_moves(model):
    assert len(tensors_of(model)) == 4
    assert all(t.dtype == torch.float64 for t in tensors_of(model.double()))
    assert all(t.dtype == torch.float32 for t in tensors_of(model.float()))
    assert all(t.device.type == "cpu" for t in tensors_of(model.to("cpu")))
    assert all(t.device.type == "meta" for t in tensors_of(model.to("meta")))


def test_every_tensor_follows():
    check_moves(SoftmaxICTD(3))
    with pytest.raises(AssertionError):
        check_moves(MaskIsAnAttribute(3))


def test_shapes_can_be_worked_out_on_the_meta_device():
    model = SoftmaxICTD.from_theory(3).to("meta")
    A, V = model.layer_weights(0)
    assert A.device.type == V.device.type == "meta"


def test_cast_model_computes_in_its_new_dtype(context):
    single = SoftmaxICTD.from_theory(3, n_layers=5, sharpness=2.0)
    values = run(single, context, torch.float32)
    assert values.dtype == torch.float32
    exact = run(SoftmaxICTD.from_theory(3, n_layers=5, sharpness=2.0, dtype=torch.float64), context)
    np.testing.assert_array_equal(run(single.double(), context), exact)


@pytest.mark.parametrize(("layer", "shared"), KINDS)
@pytest.mark.parametrize(
    "copy_of", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
def test_a_copy_is_equal_and_independent(context, layer, shared, copy_of):
    model = model_of(layer, shared)
    twin, before = copy_of(model), run(model, context)
    np.testing.assert_array_equal(run(twin, context), before)
    with torch.no_grad():
        twin.attention_weight.zero_()
    np.testing.assert_array_equal(run(model, context), before)


@pytest.mark.parametrize("shared", [True, False])
def test_state_dict_holds_parameters_and_masks(context, shared):
    model = model_of(shared=shared)
    state = model.state_dict()
    assert set(state) == {"attention_weight", "value_weight", "attention_mask", "value_mask"}
    other = SoftmaxICTD(3, n_layers=4, shared=shared, dtype=torch.float64, seed=5)
    other.load_state_dict(state)
    np.testing.assert_array_equal(run(other, context), run(model, context))


def test_state_dict_of_another_kind_names_both_shapes():
    looped, per_layer = SoftmaxICTD(3, n_layers=4), SoftmaxICTD(3, n_layers=4, shared=False)
    with pytest.raises(RuntimeError, match=r"\[1, 6, 6\].*\[4, 6, 6\]"):
        per_layer.load_state_dict(looped.state_dict())
    with pytest.raises(RuntimeError, match=r"\[4, 6, 6\].*\[1, 6, 6\]"):
        looped.load_state_dict(per_layer.state_dict())


# Initialising --------------------------------------------------------------------------------------------------------


def check_global_generator(build):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    build()
    assert torch.equal(torch.rand(4), expected)


def test_init_leaves_the_global_generator_alone_and_is_a_function_of_its_seed():
    check_global_generator(lambda: SoftmaxICTD(4, n_layers=3, shared=False))
    check_global_generator(lambda: SoftmaxICTD.from_theory(4))
    with pytest.raises(AssertionError):
        check_global_generator(lambda: torch.nn.Linear(2, 2))
    torch.manual_seed(0)
    first = SoftmaxICTD(4, seed=1)
    torch.manual_seed(1)
    assert torch.equal(first.attention_weight, SoftmaxICTD(4, seed=1).attention_weight)
    assert not torch.equal(first.attention_weight, SoftmaxICTD(4, seed=2).attention_weight)


@pytest.mark.parametrize("shared", [True, False])
def test_init_is_inside_the_masks(shared):
    model = SoftmaxICTD(4, n_layers=3, shared=shared)
    for name, free in free_entries(4).items():
        weight = getattr(model, name).detach().numpy()
        assert (weight[:, free == 0] == 0).all()
        assert (weight[:, free == 1] != 0).all()
