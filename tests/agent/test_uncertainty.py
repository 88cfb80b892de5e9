"""Standard errors: both engines agree with a loop over the literal layers, units are right, and intervals cover."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agent import ICRLAgent, uncertainty
from icrl_agent.context import build_context
from icrl_agent.features import RandomUnit
from icrl_agent.logged_data import transitions_from_arrays
from icrl_agent.model import SoftmaxICTD
from icrl_agent.uncertainty import bootstrap_stderr, resampled_units

GAMMA, N_LAYERS, REPLICATES = 0.9, 25, 7


@pytest.fixture(scope="module")
def transitions():
    rng = np.random.default_rng(0)
    state = rng.integers(6, size=60)
    return transitions_from_arrays(state, rng.normal(size=60), rng.integers(6, size=60), rng.random(60) < 0.1)


@pytest.fixture(scope="module")
def context(transitions):
    return build_context(transitions, RandomUnit(6, 8, seed=1), np.arange(6))


def by_hand(model, context, units, n_layers=N_LAYERS):
    """Replicate by replicate, layer by layer, state by state, transition by transition."""
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=(REPLICATES, units.max() + 1))[:, units]
    values = []
    for w in weights:
        v = np.zeros(len(context.features))
        for index in range(n_layers):
            A = model.attention_block(index).double().numpy()
            w_reward, w_target, w_current = model.value_entries(index).double().tolist()
            delta = w_reward * context.rewards + w_target * GAMMA * context.continues * v[context.next_state]
            delta = delta + w_current * v[context.source_state]
            step = np.empty_like(v)
            for s in range(len(v)):
                attention = [
                    w[k] * np.exp(context.features[context.source_state[k]] @ A @ context.features[s])
                    for k in range(len(w))
                ]
                step[s] = np.dot(attention, delta) / np.sum(attention)
            v = v + step
        values.append(v)
    # The normal distribution is within one standard deviation of its mean with probability 0.683.
    low, high = np.quantile(values, [(1 - math.erf(math.sqrt(0.5))) / 2, (1 + math.erf(math.sqrt(0.5))) / 2], axis=0)
    return (high - low) / 2


def looped():
    return SoftmaxICTD.from_theory(8, N_LAYERS, 6.0, dtype=torch.float64)


def per_layer():
    torch.manual_seed(0)
    model = SoftmaxICTD(8, n_layers=4, shared=False, dtype=torch.float64)
    with torch.no_grad():
        model.value_weight[:, -1, -3:] = torch.tensor([0.7, 0.7, -0.7], dtype=torch.float64)
    return model


def check_stderr(stderr, model, context, n_layers, atol):
    units = np.arange(60)
    got = stderr(model, context, units, GAMMA, n_layers, REPLICATES)
    np.testing.assert_allclose(got, by_hand(model, context, units, n_layers), atol=atol)


@pytest.mark.parametrize("make", [looped, per_layer])
@pytest.mark.parametrize("engine", ["merged", "shared"])
def test_both_engines_are_the_literal_layers(make, engine, context, monkeypatch):
    model = make().requires_grad_(False)
    n_layers = 4 if make is per_layer else N_LAYERS
    if engine == "shared":
        monkeypatch.setattr(uncertainty, "LARGEST_MERGED", 0)
    # Double precision; or single, with a rounding of numbers below 10 per layer.
    check_stderr(bootstrap_stderr, model, context, n_layers, 1e-10 if engine == "merged" else n_layers * 10 * 2**-20)


def unweighted_normaliser(model, context, units, *arguments):
    """Weights the errors, but not how much attention there is to share."""
    return bootstrap_stderr(model, context, units, *arguments) * 1.1


def one_unit_for_all(model, context, units, *arguments):
    return bootstrap_stderr(model, context, 0 * units, *arguments)


@pytest.mark.parametrize("double", [unweighted_normaliser, one_unit_for_all])
def test_the_check_catches(double, context):
    with pytest.raises(AssertionError):
        check_stderr(double, looped().requires_grad_(False), context, N_LAYERS, 1e-10)


def test_batches_do_not_matter(context, monkeypatch):
    model, units = looped().requires_grad_(False), np.arange(60)
    whole = bootstrap_stderr(model, context, units, GAMMA, N_LAYERS, REPLICATES)
    monkeypatch.setattr(uncertainty, "LARGEST_BATCH", 2 * 6 * 6)
    parts = bootstrap_stderr(model, context, units, GAMMA, N_LAYERS, REPLICATES)
    np.testing.assert_allclose(parts, whole, atol=1e-12)


def test_units_are_transitions_or_many_episodes():
    few = ICRLAgent.from_theory(n_layers=2).evaluate(gym.make("BoyanChainClassic-v0"), n_steps=100, seed=0)
    assert resampled_units(few.transitions).tolist() == list(range(100))
    many = ICRLAgent.from_theory(n_layers=2).evaluate(gym.make("BoyanChainClassic-v0"), n_steps=900, seed=0)
    units = resampled_units(many.transitions)
    np.testing.assert_array_equal(np.diff(units), many.transitions.terminated[:-1])
    assert units[-1] >= uncertainty.FEWEST_EPISODES - 1


def test_stderr_of_an_evaluation():
    agent = ICRLAgent.from_theory()
    env = gym.make("BoyanChainClassic-v0")
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    result = agent.evaluate(env, n_steps=300, seed=0)
    assert result.stderr.shape == result.values.shape
    assert result.stderr[0] == 0  # the terminal state is worth 0, surely
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    np.testing.assert_array_equal(agent.evaluate(env, n_steps=300, seed=0).stderr, result.stderr)
    assert "make_stderr" not in result.to_dict()
    limit = agent.evaluate(env, n_steps=300, seed=0, n_layers="fixed_point")
    # 60 layers at gamma 0.9 are within 0.9^60 = 0.2 % of the limit where attention is nearly diagonal.
    np.testing.assert_allclose(limit.stderr, result.stderr, rtol=0.05, atol=1e-12)


def test_more_data_make_it_surer():
    agent, env = ICRLAgent.from_theory(), gym.make("BoyanChain-v0", task_seed=3)
    short, long = (agent.evaluate(env, n_steps=n, seed=0) for n in (500, 8000))
    often = short.visits >= 5
    # 16 times the data: a quarter of the standard error, within a factor of 1.6 for the luck of both.
    ratio = np.median(short.stderr[often] / long.stderr[often])
    assert 4 / 1.6 < ratio < 4 * 1.6


@pytest.mark.slow
@pytest.mark.parametrize("n_steps", [300, 1000])
def test_intervals_cover_unseen_chains(n_steps):
    agent, inside, counted = ICRLAgent.from_theory(), 0, 0
    for task in range(600_000, 600_200):
        result = agent.evaluate(gym.make("BoyanChain-v0", task_seed=task), n_steps=n_steps, gamma=GAMMA, seed=task)
        often = result.visits >= 5
        inside += int((np.abs(result.values - result.true_values) <= 1.645 * result.stderr)[often].sum())
        counted += int(often.sum())
    assert 0.84 <= inside / counted <= 0.95
