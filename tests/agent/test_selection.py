"""The choice in context: held-out values are the literal layers', U is a double loop, and noise makes it blunter."""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

from icrl_agent import HistoryWrapper, ICRLAgent, selection
from icrl_agent.algorithms import weighted_softmax_td
from icrl_agent.context import build_context
from icrl_agent.features import RandomUnit
from icrl_agent.logged_data import transitions_from_arrays
from icrl_agent.selection import held_out_errors, held_out_values

GAMMA = 0.9


@pytest.fixture(scope="module")
def context():
    """A chain of 12 states with several visits each; ends, and rows in no order."""
    rng = np.random.default_rng(0)
    state = rng.integers(12, size=120)
    entered = np.minimum(state + rng.integers(0, 3, size=120), 11)
    t = transitions_from_arrays(state, rng.normal(size=120), entered, rng.random(120) < 0.1)
    return build_context(t, RandomUnit(12, 8, seed=1), t.observations[:0])


def literal(context, train, asked, sharpness, n_layers, step_size=1.0):
    """Each transition as two columns, the second no source."""
    x = np.sqrt(sharpness) * context.features
    pairs = np.stack([context.source_state[train], context.next_state[train]], axis=1).reshape(-1)
    rewards = np.stack([context.rewards[train], np.zeros(len(train))], axis=1).reshape(-1)
    return weighted_softmax_td(
        x[pairs],
        rewards[:-1],
        GAMMA,
        n_layers,
        step_size=step_size,
        continues=np.repeat(context.continues[train], 2),
        source_mask=np.arange(len(pairs)) % 2 == 0,
        queries=x[asked],
    )[-1]


def check_values(values, context):
    train, asked = np.arange(0, 120, 2), np.arange(12)
    for n_layers, step_size in ((1, 1.0), (7, 0.5), (40, 1.0)):
        got = values(context, train, asked, np.eye(8), (1.0, 6.0), GAMMA, step_size, 1.0, n_layers)
        for row, sharpness in enumerate((1.0, 6.0)):
            expected = literal(context, train, asked, sharpness, n_layers, step_size)
            # Single precision, and errors that each layer hands on: n_layers roundings of numbers below 10.
            np.testing.assert_allclose(got[row], expected, atol=n_layers * 10 * 2**-20)


def no_continues(context, *arguments):
    return held_out_values(dataclasses.replace(context, continues=np.ones_like(context.continues)), *arguments)


def twice_the_sharpness(context, train, asked, attention, *rest):
    return held_out_values(context, train, asked, 2 * attention, *rest)


def test_held_out_values_are_the_literal_layers(context):
    check_values(held_out_values, context)
    for double in (no_continues, twice_the_sharpness):
        with pytest.raises(AssertionError):
            check_values(double, context)


def slow_errors(context, sharpnesses, diagonal=False):
    errors = []
    first, second = selection._halves(context)
    for sharpness in sharpnesses:
        total = 0.0
        for train, test in ((first, second), (second, first)):
            v = literal(context, train, np.arange(12), sharpness, 30)
            for i in test:
                for j in test:
                    if i == j and not diagonal:
                        continue
                    k = (context.features[context.source_state[i]] @ context.features[context.source_state[j]]) ** 4
                    delta = [
                        context.rewards[m]
                        + GAMMA * context.continues[m] * v[context.next_state[m]]
                        - v[context.source_state[m]]
                        for m in (i, j)
                    ]
                    total += delta[0] * k * delta[1]
        errors.append(total)
    return errors


def test_u_is_the_sum_over_pairs_of_different_transitions(context):
    got = held_out_errors(context, np.eye(8), (1.0, 8.0), GAMMA, 1.0, 1.0, 30)
    np.testing.assert_allclose(got, slow_errors(context, (1.0, 8.0)), rtol=1e-3)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(got, slow_errors(context, (1.0, 8.0), diagonal=True), rtol=1e-3)


def test_halves_are_disjoint_and_know_no_order(context):
    first, second = selection._halves(context)
    assert not set(first) & set(second)
    shuffled = np.random.default_rng(1).permutation(120)
    names = ("source_state", "next_state", "rewards", "continues")
    mixed = dataclasses.replace(context, **{name: getattr(context, name)[shuffled] for name in names})
    again = selection._halves(mixed)
    for half, other in zip((first, second), again, strict=True):
        np.testing.assert_array_equal(context.rewards[half], mixed.rewards[other])


def test_divergent_candidates_are_out(context):
    errors = held_out_errors(context, np.eye(8), (8.0,), GAMMA, 50.0, 1.0, 60)
    assert errors.tolist() == [np.inf]


def test_the_choice_is_reported_and_deterministic():
    agent = ICRLAgent.from_theory(sharpness="auto", lengthscale="auto")
    env = gym.make("MountainCar-v0")
    first, second = (agent.evaluate(env, n_steps=300, seed=0) for _ in range(2))
    assert first.chosen == second.chosen
    assert first.chosen["sharpness"] in selection.SHARPNESSES
    np.testing.assert_array_equal(first.values, second.values)
    fixed = ICRLAgent.from_theory(sharpness=first.chosen["sharpness"], lengthscale=first.chosen["lengthscale"])
    np.testing.assert_array_equal(fixed.evaluate(env, n_steps=300, seed=0).values, first.values)


def test_short_contexts_take_the_default():
    agent = ICRLAgent.from_theory(sharpness="auto")
    result = agent.evaluate(gym.make("BoyanChain-v0", task_seed=0), n_steps=selection.FEWEST - 1, seed=0)
    assert result.chosen == {"sharpness": selection.DEFAULT_SHARPNESS}
    env = HistoryWrapper(gym.make("BoyanChain-v0", task_seed=0), context_length=8)
    observation, _ = env.reset(seed=0)
    assert agent.value(observation) == ICRLAgent.from_theory().value(observation)


def test_settings_survive_saving(tmp_path):
    ICRLAgent.from_theory(sharpness="auto", lengthscale="auto").save(tmp_path / "w.safetensors")
    loaded = ICRLAgent.load(tmp_path / "w.safetensors")
    assert (loaded.auto_sharpness, loaded.lengthscale) == (True, "auto")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"sharpness": "best"}, "sharpness must be a finite number or 'auto', got 'best'"),
        ({"lengthscale": "long"}, "lengthscale must be a positive number, 'median' or 'auto', got 'long'"),
        ({"lengthscale": 0.0}, "lengthscale must be a positive number"),
    ],
)
def test_bad_settings(arguments, match):
    with pytest.raises(ValueError, match=match):
        ICRLAgent.from_theory(**arguments)


def test_a_stream_needs_a_number():
    with pytest.raises(ValueError, match="build the agent with a number as sharpness"):
        ICRLAgent.from_theory(sharpness="auto").stream(RandomUnit(10, 32))


def noisy_line(n_steps=600):
    """One step from a point on a line, its reward the point's coordinate plus noise."""
    rng = np.random.default_rng(5)
    position = rng.uniform(-1, 1, size=n_steps)
    reward = position + rng.normal(size=n_steps)
    return transitions_from_arrays(position[:, None], reward, position[:, None] * 0.5, np.ones(n_steps, bool))


def test_noise_makes_it_blunt_and_its_absence_sharp():
    """Where nothing is noisy the sharpest fits best; noise of the target's size must make the choice blunter."""
    agent = ICRLAgent.from_theory(feature_dim=64, n_layers=5, sharpness="auto")
    noisy = noisy_line()
    clean = transitions_from_arrays(
        noisy.observations, noisy.observations[:, 0], noisy.next_observations, noisy.terminated
    )
    chosen = [agent.evaluate_transitions(t, 0.9).chosen["sharpness"] for t in (noisy, clean)]
    assert chosen[0] < chosen[1]


def test_lengthscales_are_compared_by_one_judge(monkeypatch):
    """Every candidate lengthscale is judged with the features of the median."""
    judges = []
    original = selection.held_out_errors

    def spy(context, *arguments):
        judges.append(arguments[-1])
        return original(context, *arguments)

    monkeypatch.setattr("icrl_agent.adaptation.held_out_errors", spy)
    ICRLAgent.from_theory(lengthscale="auto").evaluate(gym.make("MountainCar-v0"), n_steps=100, seed=0)
    assert len(judges) == len(selection.LENGTHSCALE_FACTORS)
    assert all(judge is judges[0] for judge in judges)
