"""Infinite depth: the limit of many layers, refused where there is none."""

import numpy as np
import pytest
import torch

import icrl_agent.depth
from icrl_agent import ICRLAgent
from icrl_agent.model import SoftmaxICTD


def learned_like(shared=True):
    """Weights off the theorem's ratios, as training leaves them."""
    model = SoftmaxICTD.from_theory(32, n_layers=40, sharpness=4.0, step_size=0.7)
    with torch.no_grad():
        model.value_weight[0, 34, 32:] = torch.tensor([0.72, 0.70, -0.71])
    if shared:
        return model
    return SoftmaxICTD(32, n_layers=3, shared=False)


@pytest.mark.parametrize("limit", [500, 3], ids=["solved", "iterated"])
@pytest.mark.parametrize("weights", ["theory", "learned"])
@pytest.mark.parametrize("n_steps", [12, 300])
def test_fixed_point_is_the_limit_of_many_layers(make_env, monkeypatch, limit, weights, n_steps):
    monkeypatch.setattr(icrl_agent.depth, "LARGEST_SOLVED", limit)
    agent = ICRLAgent.from_theory() if weights == "theory" else ICRLAgent(learned_like())
    env = make_env("BoyanChain-v0")
    deep = agent.evaluate(env, n_steps=n_steps, seed=3, n_layers=3000)
    limit_ = agent.evaluate(env, n_steps=n_steps, seed=3, n_layers="fixed_point")
    # 3000 layers leave at most radius^3000 of the error.
    assert deep.diagnostics.spectral_radius**3000 < 1e-12
    np.testing.assert_allclose(limit_.values, deep.values, atol=1e-9)
    assert limit_.n_layers == "fixed_point"
    assert limit_.diagnostics.last_layer_change == 0.0


@pytest.mark.parametrize("limit", [500, 3], ids=["solved", "iterated"])
def test_no_limit_names_the_radius(make_env, monkeypatch, limit):
    monkeypatch.setattr(icrl_agent.depth, "LARGEST_SOLVED", limit)
    agent = ICRLAgent.from_theory(sharpness=0.1, step_size=50.0)
    with pytest.raises(ValueError, match=r"spectral radius of a layer is [\d.]+, it must be below 1"):
        agent.evaluate(make_env("BoyanChain-v0"), n_steps=60, seed=0, n_layers="fixed_point")


def test_other_words_and_layers_of_their_own_are_refused(make_env):
    env = make_env("BoyanChain-v0")
    with pytest.raises(ValueError, match="'fixed_point', got 'deep'"):
        ICRLAgent.from_theory().evaluate(env, n_layers="deep")
    with pytest.raises(ValueError, match="needs looped weights"):
        ICRLAgent(learned_like(shared=False)).evaluate(env, n_layers="fixed_point")


def test_gamma_one_needs_recorded_ends(make_env):
    """Experience that never ends has no undiscounted value, with tables or without."""
    agent = ICRLAgent.from_theory(n_layers=400)
    with pytest.raises(ValueError, match="gamma 1 needs certain termination"):
        agent.evaluate(make_env("CartPole-v1"), n_steps=5, gamma=1.0, seed=0)
    classic = make_env("BoyanChainClassic-v0")
    with pytest.raises(ValueError, match="gamma 1 needs certain termination"):
        agent.evaluate(classic, n_steps=1, gamma=1.0, seed=0)
    result = agent.evaluate(classic, n_steps=2000, gamma=1.0, seed=0)
    assert result.normalized_msve < 0.01
