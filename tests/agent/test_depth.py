"""Infinite depth: the limit of many layers, refused where there is none."""

import numpy as np
import pytest
import torch

import icrl_agent.depth
from icrl_agent import ICRLAgent
from icrl_agent.features import RandomFourier, feature_map_for, fit_fourier
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
    with pytest.raises(ValueError, match=r"spectral radius of a layer is [\d.]+, not below 1"):
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


def check_tolerance(evaluate, tolerance):
    """The first layer that changes nothing above the tolerance is the last: its depth, its values."""
    result = evaluate(tolerance=tolerance)
    assert result.n_layers < 500
    assert result.diagnostics.last_layer_change <= tolerance
    np.testing.assert_allclose(result.values, evaluate(n_layers=result.n_layers).values, atol=1e-12)
    before = evaluate(n_layers=result.n_layers - 1)
    assert before.diagnostics.last_layer_change > tolerance


@pytest.mark.parametrize("largest", [4096, 3], ids=["merged", "chunked"])
@pytest.mark.parametrize("weights", ["theory", "learned"])
def test_tolerance_stops_early(make_env, monkeypatch, largest, weights):
    monkeypatch.setattr(icrl_agent.depth, "LARGEST_MERGED", largest)
    agent = ICRLAgent.from_theory(n_layers=500) if weights == "theory" else ICRLAgent(learned_like())
    env = make_env("BoyanChain-v0")

    def evaluate(n_layers=500, tolerance=None):
        return agent.evaluate(env, n_steps=200, seed=3, n_layers=n_layers, tolerance=tolerance)

    check_tolerance(evaluate, 1e-3)
    with pytest.raises(AssertionError):  # the last layer is one too few
        check_tolerance(lambda n_layers=500, tolerance=None: evaluate(n_layers - (tolerance is None), tolerance), 1e-3)
    # At most n_layers, whatever the tolerance asks for.
    assert evaluate(n_layers=2, tolerance=1e-12).n_layers == 2


def test_tolerance_for_layers_of_their_own_and_recorded_transitions(make_env):
    agent = ICRLAgent(learned_like(shared=False))
    result = agent.evaluate(make_env("BoyanChain-v0"), n_steps=50, seed=0, tolerance=1e9)
    assert result.n_layers == 1
    again = agent.evaluate_transitions(result.transitions, queries=result.states, tolerance=1e9)
    np.testing.assert_array_equal(again.values, result.values)


@pytest.mark.parametrize("tolerance", [-1e-3, float("nan"), float("inf"), True, "small"])
def test_bad_tolerance(make_env, tolerance):
    with pytest.raises(ValueError, match="tolerance must be a finite number of at least 0 or None"):
        ICRLAgent.from_theory().evaluate(make_env("BoyanChain-v0"), tolerance=tolerance)
    with pytest.raises(ValueError, match="not both"):
        ICRLAgent.from_theory().evaluate(make_env("BoyanChain-v0"), tolerance=0.1, n_layers="fixed_point")


@pytest.mark.parametrize("name", ["BoyanChain-v0", "CartPole-v1", "BoyanChainClassic-v0"])
def test_many_states_in_chunks_are_the_literal_layers(make_env, monkeypatch, literal_values, name):
    monkeypatch.setattr(icrl_agent.depth, "LARGEST_MERGED", 3)
    agent = ICRLAgent.from_theory(n_layers=20)
    result = agent.evaluate(make_env(name), n_steps=150, seed=1)
    feature_map = feature_map_for(make_env(name).observation_space, 32)
    if name == "CartPole-v1":
        feature_map = fit_fourier(RandomFourier("context", "context", 32, "median"), result.transitions.observations)
    expected = literal_values(agent.model, result.transitions, feature_map, result.states, 0.9)
    ends_only = (result.visits == 0) & (result.values == 0)  # terminal states have value 0, whatever the layers say
    np.testing.assert_allclose(result.values[~ends_only], expected[~ends_only], atol=1e-10)
    assert not ends_only.all()
