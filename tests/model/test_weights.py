"""Weights files: what is written is read back bit for bit, and nothing half-written ever stands under the name."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from icrl_agent.model import SoftmaxICTD, load_weights, save_weights, weights


def random_weights(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model


def transposed_views(model):
    """Parameters that are not contiguous in memory."""
    for name in ("attention_weight", "value_weight"):
        weight = getattr(model, name).detach().clone()
        setattr(model, name, torch.nn.Parameter(weight.transpose(1, 2).contiguous().transpose(1, 2)))
        assert not getattr(model, name).is_contiguous()
    return model


MODELS = {
    "looped": lambda: SoftmaxICTD(3, n_layers=5),
    "per layer": lambda: SoftmaxICTD(3, n_layers=5, shared=False),
    "float64": lambda: SoftmaxICTD(2, n_layers=3, dtype=torch.float64),
    "dual head": lambda: SoftmaxICTD(4, n_layers=2, layer="dual_head", shared=False),
    "transposed views": lambda: transposed_views(random_weights(SoftmaxICTD(3, n_layers=2, shared=False))),
    "theory": lambda: SoftmaxICTD.from_theory(3, n_layers=7),
}


def check_round_trip(save, model, path):
    config = {"feature_seed": 3, "note": "π", "nested": {"a": [1, 2.5, None]}}
    save(model, path, config)
    loaded, found = load_weights(path)
    assert found == config
    for name in ("feature_dim", "n_layers", "layer", "shared"):
        assert getattr(loaded, name) == getattr(model, name)
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
        assert loaded.state_dict()[name].dtype == tensor.dtype
    assert torch.equal(loaded.attention_weight.flatten(), model.attention_weight.flatten())


def rounded(model, path, config):
    """Saves half the digits."""
    twin = SoftmaxICTD(model.feature_dim, model.n_layers, model.layer, model.shared, model.attention_weight.dtype)
    twin.load_state_dict({name: t.to(torch.bfloat16).to(t.dtype) for name, t in model.state_dict().items()})
    save_weights(twin, path, config)


@pytest.mark.parametrize("kind", MODELS)
def test_round_trip_is_bit_equal(tmp_path, kind):
    model = MODELS[kind]() if kind in ("transposed views", "theory") else random_weights(MODELS[kind]())
    check_round_trip(save_weights, model, tmp_path / "w.safetensors")
    if kind != "theory":
        with pytest.raises(AssertionError):
            check_round_trip(rounded, model, tmp_path / "w.safetensors")


def test_a_run_folder_is_read_by_its_weights(tmp_path):
    save_weights(SoftmaxICTD(3), tmp_path / "weights.safetensors")
    assert load_weights(tmp_path)[0].feature_dim == 3
    assert load_weights(str(tmp_path))[1] == {}


def test_the_file_opens_with_plain_safetensors(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(SoftmaxICTD(3, n_layers=2), path, {"feature_seed": 1})
    assert set(load_file(path)) == {"attention_weight", "value_weight"}
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["icrl_agent"])["config"] == {"feature_seed": 1}


# Files that are not what they should be ------------------------------------------------------------------------------


def retold(path, **changes):
    """The file with other words in its metadata."""
    with safe_open(path, framework="pt") as file:
        shape = {**json.loads(file.metadata()["icrl_agent"]), **changes}
    save_file(load_file(path), path, metadata={"icrl_agent": json.dumps(shape)})


@pytest.mark.parametrize(
    ("shared", "changes", "match"),
    [
        (True, {"shared": False}, r"holds \(1, 6, 6\) for attention_weight.*needs \(5, 6, 6\)"),
        (False, {"shared": True}, r"holds \(5, 6, 6\) for attention_weight.*needs \(1, 6, 6\)"),
        (True, {"feature_dim": 4}, r"holds \(1, 6, 6\) for attention_weight.*needs \(1, 7, 7\)"),
        (False, {"n_layers": 9}, r"holds \(5, 6, 6\) for attention_weight.*needs \(9, 6, 6\)"),
    ],
)
def test_the_wrong_kind_names_both_shapes(tmp_path, shared, changes, match):
    path = tmp_path / "w.safetensors"
    save_weights(SoftmaxICTD(3, n_layers=5, shared=shared), path)
    retold(path, **changes)
    with pytest.raises(ValueError, match=match):
        load_weights(path)


def test_a_missing_tensor_is_named(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(SoftmaxICTD(3), path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    save_file({"attention_weight": load_file(path)["attention_weight"]}, path, metadata=metadata)
    with pytest.raises(ValueError, match="nothing for value_weight"):
        load_weights(path)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_file(tmp_path, keep):
    path = tmp_path / "w.safetensors"
    save_weights(SoftmaxICTD(3), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"w\.safetensors cannot be read as safetensors"):
        load_weights(path)


def test_a_foreign_file(tmp_path):
    path = tmp_path / "foreign.safetensors"
    save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="holds no icrl-agent model"):
        load_weights(path)
    save_file({"weight": torch.zeros(2)}, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="holds no icrl-agent model"):
        load_weights(path)


@pytest.mark.parametrize("text", ["not json", "[]", "{}", json.dumps({"feature_dim": 3, "config": {}, "heads": 2})])
def test_foreign_words_in_the_metadata(tmp_path, text):
    path = tmp_path / "w.safetensors"
    save_file({"weight": torch.zeros(2)}, path, metadata={"icrl_agent": text})
    with pytest.raises(ValueError, match="holds no icrl-agent model"):
        load_weights(path)


def test_no_file(tmp_path):
    for path in (tmp_path / "absent.safetensors", tmp_path):
        with pytest.raises(ValueError, match=r"no weights at .*give a \.safetensors file or a run folder"):
            load_weights(path)


# Whole or not at all -------------------------------------------------------------------------------------------------


def check_atomic(save, path, monkeypatch):
    """A save that fails half-way leaves nothing behind, and the old file as it was."""
    save(SoftmaxICTD(3), path)
    before = path.read_bytes()

    def full(_file):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(weights.os, "fsync", full)
        with pytest.raises(OSError, match="disk full"):
            save(SoftmaxICTD(5), path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before


def straight(model, path):
    with open(path, "wb") as file:
        file.write(weights.save({name: p.detach().clone() for name, p in model.named_parameters()}))
        weights.os.fsync(file.fileno())


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    check_atomic(save_weights, tmp_path / "w.safetensors", monkeypatch)
    with pytest.raises(AssertionError):
        check_atomic(straight, tmp_path / "w.safetensors", monkeypatch)


def test_a_failed_rename_leaves_nothing(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        save_weights(SoftmaxICTD(3), tmp_path / "taken")
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


def test_config_that_json_does_not_know(tmp_path):
    with pytest.raises(TypeError, match="JSON"):
        save_weights(SoftmaxICTD(3), tmp_path / "w.safetensors", {"seed": np.ones(2)})
    assert not list(tmp_path.iterdir())
