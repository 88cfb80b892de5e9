"""Every wrong argument of the model ends in one sentence that says what is needed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from icrl_agent.model import SoftmaxICTD

PROMPT = torch.zeros(2, 6, 5)


@pytest.fixture(scope="module")
def model():
    return SoftmaxICTD.from_theory(3, n_layers=2)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"feature_dim": 0}, "feature_dim must be an integer of at least 1, got 0"),
        ({"feature_dim": 2.0}, "feature_dim must be an integer of at least 1, got 2.0"),
        ({"feature_dim": True}, "feature_dim must be an integer of at least 1, got True"),
        ({"feature_dim": 3, "n_layers": 0}, "n_layers must be an integer of at least 1, got 0"),
        ({"feature_dim": 3, "n_layers": "4"}, "n_layers must be an integer of at least 1, got '4'"),
        ({"feature_dim": 3, "layer": "tms"}, r"layer must be one of \('tsm', 'dual_head'\), got 'tms'"),
        ({"feature_dim": 3, "dtype": torch.float16}, "torch.float32 or torch.float64, got torch.float16"),
    ],
)
def test_wrong_model(arguments, match):
    with pytest.raises(ValueError, match=match):
        SoftmaxICTD(**arguments)


@pytest.mark.parametrize("name", ["sharpness", "step_size"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_theory_numbers_must_be_finite(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a finite number, got {value}"):
        SoftmaxICTD.from_theory(3, **{name: value})


@pytest.mark.parametrize(
    ("prompt", "match"),
    [
        (torch.zeros(6, 5), r"\(B, feature_dim \+ 3, n \+ 1\) = \(B, 6, n \+ 1\), got \(6, 5\)"),
        (torch.zeros(2, 7, 5), r"got \(2, 7, 5\)"),
        (torch.zeros(2, 6, 0), r"got \(2, 6, 0\)"),
    ],
)
def test_wrong_prompt_shape(model, prompt, match):
    with pytest.raises(ValueError, match=match):
        model(prompt, 0.9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64])
def test_a_prompt_of_another_dtype_says_what_to_cast(model, dtype):
    with pytest.raises(TypeError, match=rf"got {dtype}: cast it with prompt.to\(torch.float32\)"):
        model(PROMPT.to(dtype), 0.9)


@pytest.mark.parametrize("gamma", [-0.1, 1.01, math.nan, torch.tensor([0.5, 1.5]), torch.full((3,), 0.5)])
def test_wrong_gamma(model, gamma):
    with pytest.raises(ValueError, match=r"gamma must be a number in \[0, 1\] or \(2,\) of them"):
        model(PROMPT, gamma)


@pytest.mark.parametrize("name", ["source_mask", "continues"])
@pytest.mark.parametrize("shape", [(2, 4), (5,), (1, 5), (2, 5, 1)])
def test_wrong_mask_shape(model, name, shape):
    with pytest.raises(ValueError, match=rf"{name} must have shape \(2, 5\), got"):
        model(PROMPT, 0.9, **{name: torch.zeros(shape)})


def test_the_last_column_is_no_source(model):
    with pytest.raises(ValueError, match="last column is a query"):
        model(PROMPT, 0.9, source_mask=torch.ones(2, 5))


@pytest.mark.parametrize("n_layers", [0, -1, 2.5, True, "3"])
def test_wrong_depth(model, n_layers):
    with pytest.raises(ValueError, match=f"n_layers must be an integer of at least 1, got {n_layers!r}"):
        model(PROMPT, 0.9, n_layers=n_layers)


def test_per_layer_weights_have_an_end():
    with pytest.raises(ValueError, match="has 2 layers with weights of their own, got n_layers=3"):
        SoftmaxICTD(3, n_layers=2, shared=False)(PROMPT, 0.9, n_layers=3)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.float32, torch.float64])
def test_masks_of_any_dtype(model, dtype):
    rng = np.random.default_rng(0)
    prompt = torch.tensor(rng.normal(size=(2, 6, 5)), dtype=torch.float32)
    source_mask = torch.tensor([[1, 1, 0, 1, 0], [0, 1, 1, 1, 0]])
    continues = torch.tensor([[1, 0, 1, 1, 1], [1, 1, 0, 1, 1]])
    expected = model.values(prompt, 0.9, source_mask=source_mask.bool(), continues=continues.float())
    found = model.values(prompt, 0.9, source_mask=source_mask.to(dtype), continues=continues.to(dtype))
    assert torch.equal(found, expected)
