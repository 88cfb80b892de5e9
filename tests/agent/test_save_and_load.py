"""Agents on disk: what is loaded answers as what was saved, and a loaded agent cannot be lost by accident."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icrl_agent import ICRLAgent
from icrl_agent.model import SoftmaxICTD, save_weights


def check_round_trip(load, agent, path, env):
    agent.save(path)
    twin = load(path)
    assert type(twin) is ICRLAgent
    assert twin.feature_seed == agent.feature_seed
    for name, tensor in agent.model.state_dict().items():
        assert torch.equal(twin.model.state_dict()[name], tensor)
    results = [each.evaluate(env, n_steps=40, seed=0) for each in (agent, twin)]
    np.testing.assert_array_equal(results[0].values, results[1].values)


def seed_dropped(path):
    return ICRLAgent(ICRLAgent.load(path).model)


def test_a_loaded_agent_answers_the_same(make_env, tmp_path):
    env = make_env("BoyanChain-v0")
    for agent in (
        ICRLAgent.from_theory(sharpness=3.0, feature_seed=4),
        ICRLAgent.from_theory(layer="dual_head", n_layers=3),
        ICRLAgent(SoftmaxICTD(8, n_layers=2, shared=False), feature_seed=1),
    ):
        check_round_trip(ICRLAgent.load, agent, tmp_path / "agent.safetensors", env)
        check_round_trip(lambda path: ICRLAgent.load(str(path)), agent, tmp_path / "agent.safetensors", env)
    with pytest.raises(AssertionError):
        check_round_trip(seed_dropped, agent, tmp_path / "agent.safetensors", env)


def test_a_run_folder(tmp_path):
    save_weights(SoftmaxICTD(6), tmp_path / "weights.safetensors", {"feature_seed": 5, "preset": "small"})
    agent = ICRLAgent.load(tmp_path)
    assert (agent.model.feature_dim, agent.feature_seed) == (6, 5)


def test_load_on_an_instance_is_refused(tmp_path):
    agent = ICRLAgent.from_theory(feature_dim=4)
    agent.save(tmp_path / "a.safetensors")
    with pytest.raises(TypeError, match=r"load returns a new agent: write agent = ICRLAgent\.load\(\.\.\.\)"):
        agent.load(tmp_path / "a.safetensors")


def test_subclasses_load_themselves(tmp_path):
    class Named(ICRLAgent):
        pass

    Named.from_theory(feature_dim=4).save(tmp_path / "a.safetensors")
    assert type(Named.load(tmp_path / "a.safetensors")) is Named


def test_an_unknown_name_lists_what_is_shipped():
    with pytest.raises(ValueError, match="no shipped weights are named 'unversal'; shipped: "):
        ICRLAgent.from_pretrained("unversal")


@pytest.mark.parametrize("make", [lambda tmp_path: tmp_path / "absent.safetensors", lambda tmp_path: tmp_path])
def test_nothing_there(tmp_path, make):
    with pytest.raises(ValueError, match="no weights at"):
        ICRLAgent.load(make(tmp_path))


def test_moving_returns_the_agent():
    agent = ICRLAgent.from_theory(feature_dim=4)
    assert agent.to("cpu") is agent


def test_the_agent_is_frozen_from_the_start():
    model = SoftmaxICTD(4)
    agent = ICRLAgent(model)
    assert not agent.model.training
    assert not any(parameter.requires_grad for parameter in agent.model.parameters())
