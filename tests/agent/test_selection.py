"""The choice in context: held-out values are the literal layers', errors their definition, noise makes it blunter."""

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
from icrl_agent.selection import held_out_errors, held_out_halves, held_out_values, ranked

GAMMA = 0.9


@pytest.fixture(scope="module")
def context():
    """A chain of 12 states with several visits each; ends, and rows in no order."""
    rng = np.random.default_rng(0)
    state = rng.integers(12, size=120)
    entered = np.minimum(state + rng.integers(0, 3, size=120), 11)
    t = transitions_from_arrays(state, rng.normal(size=120), entered, rng.random(120) < 0.1)
    return build_context(t, RandomUnit(12, 8, seed=1), t.observations[:0])


def literal(context, train, asked, sharpness, n_layers, step_size=1.0, gamma=GAMMA):
    """Each transition as two columns, the second no source."""
    x = np.sqrt(sharpness) * context.features
    pairs = np.stack([context.source_state[train], context.next_state[train]], axis=1).reshape(-1)
    rewards = np.stack([context.rewards[train], np.zeros(len(train))], axis=1).reshape(-1)
    return weighted_softmax_td(
        x[pairs],
        rewards[:-1],
        gamma,
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


def unit_rewards(context):
    return dataclasses.replace(context, rewards=context.rewards / np.abs(context.rewards).max())


def slow_errors(context, sharpnesses, extrapolated=True, rest=None):
    """By the definition: values from each half, returns along the other's blocks, a loop over transitions."""
    context = unit_rewards(context)
    everything, errors = np.arange(12), []
    halves = held_out_halves(context, GAMMA)
    for sharpness in sharpnesses:
        values = [literal(context, np.concatenate(half), everything, sharpness, 30) for half in halves]
        total, differences, n = 0.0, [], 0
        for v, blocks in zip(values, reversed(halves), strict=True):
            for block in blocks:
                for first, k in enumerate(block):
                    G, discount = 0.0, 1.0
                    for t in block[first : None if rest is None else first + rest]:
                        G += discount * context.rewards[t]
                        discount *= GAMMA * context.continues[t]
                    G += discount * v[context.next_state[t]]
                    s = context.source_state[k]
                    total += (G - v[s]) ** 2
                    differences.append((values[0][s] - values[1][s]) ** 2)
                    n += 1
        left_out = 1 - n / 2 / len(context.rewards)
        errors.append(total / n - (left_out * np.mean(differences) / 2 if extrapolated else 0.0))
    return errors


def test_errors_follow_their_definition(context):
    got = held_out_errors(context, np.eye(8), (1.0, 8.0), GAMMA, 1.0, 1.0, 30).sum(axis=1)
    # Single precision: squares of numbers below 10, which 30 layers round.
    tolerance = {"rtol": 0, "atol": 100 * 30 * 2**-23}
    np.testing.assert_allclose(got, slow_errors(context, (1.0, 8.0)), **tolerance)
    for double in ({"extrapolated": False}, {"rest": 1}):
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(got, slow_errors(context, (1.0, 8.0), **double), **tolerance)


@pytest.mark.parametrize("gamma", [0.0, 0.5, GAMMA, 1.0])
def test_halves_are_disjoint_and_know_no_order(context, gamma):
    shuffled = np.random.default_rng(1).permutation(120)
    names = ("source_state", "next_state", "rewards", "continues")
    mixed = dataclasses.replace(context, **{name: getattr(context, name)[shuffled] for name in names})
    halves = held_out_halves(context, gamma)
    together = np.concatenate([block for half in halves for block in half])
    assert sorted(together) == list(range(120))
    sizes = [sum(map(len, half)) for half in halves]
    assert abs(sizes[0] - sizes[1]) <= max(len(block) for half in halves for block in half)
    for half, other in zip(halves, held_out_halves(mixed, gamma), strict=True):
        for block, same in zip(half, other, strict=True):
            np.testing.assert_array_equal(context.rewards[block], mixed.rewards[same])


def test_halves_are_no_larger_than_what_the_choice_may_cost(context, monkeypatch):
    monkeypatch.setattr(selection, "LARGEST_MATRIX", 40 * len(context.features))
    longest = max(len(block) for half in held_out_halves(context, 0.5) for block in half)
    for half in held_out_halves(context, 0.5):
        assert 40 <= sum(map(len, half)) < 40 + longest


def test_divergent_candidates_are_out(context):
    errors = held_out_errors(context, np.eye(8), (8.0,), GAMMA, 50.0, 1.0, 60)
    assert np.isinf(errors).all()


def test_the_sharpest_within_one_standard_error_comes_first():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 50))
    # Standard error of a sum of 50: about 7; the second candidate is 5 worse than the first, the third 50.
    errors = np.stack([noise[0], noise[0] + 0.1 + noise[1] - noise[1].mean(), noise[0] + 1.0, np.full(50, np.inf)])
    assert ranked(errors, (1.0, 2.0, 4.0, 8.0)).tolist() == [1, 0, 2, 3]
    assert ranked(errors, (2.0, 1.0, 4.0, 8.0)).tolist() == [0, 1, 2, 3]
    # The same differences without noise are certain.
    certain = np.stack([noise[0], noise[0] + 0.1])
    assert ranked(certain, (1.0, 2.0)).tolist() == [0, 1]
    assert ranked(np.ones((2, 1)), (1.0, 2.0))[0] == 1


def test_errors_are_those_of_their_blocks(context):
    """Each half's blocks in turn: only the first block's error knows that its first reward changed, and the values."""
    context = unit_rewards(context)
    by_block = held_out_errors(context, np.eye(8), (8.0,), 0.0, 1.0, 1.0, 1)
    first, second = held_out_halves(context, 0.0)
    assert by_block.shape == (1, 120)
    v = literal(context, np.concatenate(first), np.arange(12), 8.0, 1, gamma=0.0)
    held_out = np.concatenate(second)
    expected = (context.rewards[held_out] - v[context.source_state[held_out]]) ** 2
    other = literal(context, held_out, np.arange(12), 8.0, 1, gamma=0.0)
    expected -= ((v - other)[context.source_state[held_out]] ** 2) / 4
    np.testing.assert_allclose(by_block[0, : len(second)], expected / 120, atol=100 * 2**-23)


def test_the_choice_is_reported_and_deterministic():
    agent = ICRLAgent.from_theory(sharpness="auto", lengthscale="auto")
    env = gym.make("MountainCar-v0")
    first, second = (agent.evaluate(env, n_steps=300, seed=0) for _ in range(2))
    assert first.chosen == second.chosen
    assert first.chosen["sharpness"] in selection.SHARPNESSES
    np.testing.assert_array_equal(first.values, second.values)
    fixed = ICRLAgent.from_theory(sharpness=first.chosen["sharpness"], lengthscale=first.chosen["lengthscale"])
    np.testing.assert_array_equal(fixed.evaluate(env, n_steps=300, seed=0).values, first.values)


@pytest.mark.parametrize("scale", [1e-46, 1e150])
def test_the_unit_of_the_rewards_does_not_matter(scale):
    agent = ICRLAgent.from_theory(sharpness="auto", lengthscale="auto")
    t = agent.evaluate(gym.make("Pendulum-v1"), n_steps=100, seed=0).transitions
    plain, scaled = (
        agent.evaluate_transitions(one, 0.9) for one in (t, dataclasses.replace(t, rewards=scale * t.rewards))
    )
    assert scaled.chosen == plain.chosen
    np.testing.assert_allclose(scaled.stderr, scale * plain.stderr, rtol=1e-6)


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


def noisy_cube(n_steps=600):
    """One step from a point of a cube in six dimensions, its reward the first coordinate plus noise."""
    rng = np.random.default_rng(5)
    position = rng.uniform(-1, 1, size=(n_steps, 6))
    reward = position[:, 0] + rng.normal(size=n_steps)
    return transitions_from_arrays(position, reward, position * 0.5, np.ones(n_steps, bool))


def test_noise_makes_it_blunt_and_its_absence_sharp():
    """Where nothing is noisy the sharpest fits best; noise of the target's size must make the choice blunter."""
    agent = ICRLAgent.from_theory(feature_dim=256, n_layers=5, sharpness="auto")
    noisy = noisy_cube()
    clean = transitions_from_arrays(
        noisy.observations, noisy.observations[:, 0], noisy.next_observations, noisy.terminated
    )
    chosen = [agent.evaluate_transitions(t, 0.9).chosen["sharpness"] for t in (noisy, clean)]
    assert chosen[0] < chosen[1]
