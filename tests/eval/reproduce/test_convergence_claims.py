"""The claims about many layers pass for the theorem's layer, and fail for one with a mistake."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icrl_agent.algorithms import empirical_kernel, fixed_point, spectral_radius
from icrl_agent.eval.reproduce import context_length, depth, linear_attention, phase
from icrl_agent.eval.reproduce.chains import (
    as_context,
    count_kernels,
    deep_limit,
    draw_chains,
    generator,
    theorem_layer,
    walk,
    walk_complete,
)

FLAWS = ["swapped sign in V", "gamma missing in the shift", "target not shifted"]
# Normalising sharp attention over the other axis gives another contraction with the same limit, which errors do not
# show: the claims about single layers catch it, and the phase diagram.
AXIS = "softmax over the wrong axis"


# Contexts as counts -----------------------------------------------------------------------------------------------


def test_walks_follow_the_chain():
    """Successor counts are within five standard errors of n mu P; snapshots grow along one walk."""
    chains = draw_chains(generator(0), 6, 5, gamma=0.5)
    snapshots = walk(generator(1), chains, (100, 20_000))
    assert snapshots.sum(axis=(2, 3)).tolist() == [[100.0] * 6, [20_000.0] * 6]
    assert (snapshots[1] >= snapshots[0]).all()
    counts = snapshots[1].sum(axis=2)
    # Given the counts, the successors of a state are multinomial.
    expected = counts[:, :, None] * chains.transition
    stderr = np.sqrt(expected * (1 - chains.transition))
    assert (np.abs(snapshots[1] - expected) <= 5 * stderr + 1e-9).all()


def literal_context(chains, successors, features, which=0):
    """The same transitions as columns of a prompt, a state and its successor side by side."""
    pairs = [
        (s, u)
        for s in range(successors.shape[1])
        for u in range(successors.shape[2])
        for _ in range(int(successors[which, s, u]))
    ]
    states = np.array(pairs).reshape(-1)
    rewards = np.zeros(len(states))
    rewards[::2] = chains.reward[which][states[::2]]
    return features[which][states], rewards[:-1], np.arange(len(states)) % 2 == 0


def test_layer_limit_and_kernel_are_those_of_the_reference():
    chains, successors = walk_complete(generator(2), 2, 5, 60, gamma=0.8)
    features = generator(3).standard_normal((2, 5, 8))
    x, rewards, sources = literal_context(chains, successors, features)
    layer_map = empirical_kernel(x, rewards, source_mask=sources)
    order = [int(np.flatnonzero((layer_map.states == row).all(axis=1))[0]) for row in features[0]]
    T, b = theorem_layer(as_context(features, successors, chains.reward), torch.full((2,), 0.8, dtype=torch.float64))
    square = np.ix_(order, order)
    np.testing.assert_allclose(T[0], (np.eye(5) + 0.8 * layer_map.P - layer_map.M)[square], atol=1e-12)
    np.testing.assert_allclose(b[0], layer_map.r[order], atol=1e-12)
    np.testing.assert_allclose(count_kernels(features, successors.sum(axis=2))[0], layer_map.M[square], atol=1e-12)
    assert spectral_radius(layer_map, 0.8) < 1
    np.testing.assert_allclose(deep_limit(T, b)[0], fixed_point(layer_map, 0.8)[order], atol=1e-8)


# Theorem 2 ---------------------------------------------------------------------------------------------------------

SMALL_DEPTH = depth.Sizes(n_chains=6, n_short=40, long_length=100_000)


def test_depth_passes(failures):
    assert failures(depth.judge(depth.measure(SMALL_DEPTH))) == []


@pytest.mark.parametrize("flaw", FLAWS)
def test_depth_catches(failures, flawed_layers, flaw):
    assert failures(depth.judge(depth.measure(SMALL_DEPTH, flawed_layers[flaw])))


SMALL_LENGTHS = context_length.Sizes(n_chains=200, lengths=(1_000, 3_162, 10_000))


def test_context_length_passes(failures):
    assert failures(context_length.judge(context_length.measure(SMALL_LENGTHS))) == []


@pytest.mark.parametrize("flaw", FLAWS)
def test_context_length_catches(failures, flawed_layers, flaw):
    failed = failures(context_length.judge(context_length.measure(SMALL_LENGTHS, flawed_layers[flaw])))
    assert "slope of log error against log n at infinite depth" in failed


def test_context_length_catches_a_ratio_of_v_that_is_off_and_a_control_that_is_not(failures):
    measured = context_length.measure(SMALL_LENGTHS)
    swapped = measured._replace(floors=measured.off_floors, off_floors=measured.floors)
    assert len(failures(context_length.judge(swapped))) == 2


# Beyond the assumption ---------------------------------------------------------------------------------------------

SMALL_PHASE = phase.Sizes(n_chains=4, n_sharpness=6, n_step_sizes=5)


def test_phase_passes_and_predicts_with_the_spectral_radius(failures):
    measured = phase.measure(SMALL_PHASE)
    assert failures(phase.judge(measured)) == []
    rng = generator(5, 0)
    chains, successors = walk_complete(rng, 4, 10, SMALL_PHASE.n_transitions)
    features = rng.standard_normal((4, 10, SMALL_PHASE.feature_dim))
    features *= np.sqrt(measured.sharpness[3]) / np.linalg.norm(features, axis=2, keepdims=True)
    x, rewards, sources = literal_context(chains, successors, features, which=2)
    layer_map = empirical_kernel(x, rewards, source_mask=sources)
    expected = spectral_radius(layer_map, phase.GAMMAS[1], float(measured.step_sizes[2]))
    assert measured.radius[1, 3, 2, 2] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("flaw", [*FLAWS, AXIS])
def test_phase_catches(failures, flawed_layers, flaw):
    assert failures(phase.judge(phase.measure(SMALL_PHASE, flawed_layers[flaw])))


# Softmax against linear attention ----------------------------------------------------------------------------------

SMALL_RACE = linear_attention.Sizes(n_tasks=100, lengths=(64, 1024), depths=(3, 30))


def test_softmax_beats_linear_attention(failures):
    assert failures(linear_attention.judge(linear_attention.measure(SMALL_RACE))) == []


@pytest.mark.parametrize("flaw", FLAWS)
def test_the_race_catches_a_flawed_softmax(failures, flawed_layers, flaw):
    families = linear_attention.FAMILIES[:1]
    measured = linear_attention.measure(SMALL_RACE, families, flawed_layers[flaw])
    assert failures(linear_attention.judge(measured, families))


def test_linear_attention_is_linear_batch_td():
    from icrl_agent.algorithms import weighted_softmax_td

    chains, successors = walk_complete(generator(8), 1, 5, 60)
    features = generator(9).standard_normal((1, 5, 3))
    x, rewards, sources = literal_context(chains, successors, features)
    values = weighted_softmax_td(
        x, rewards, 0.9, 7, weighting="linear", step_size=0.1, source_mask=sources, queries=features[0]
    )
    T, b = linear_attention.linear_layer(
        as_context(features, successors, chains.reward), torch.full((1,), 0.9, dtype=torch.float64)
    )
    v = np.zeros(5)
    for _ in range(7):
        v = v + 0.1 * (T[0].numpy() @ v - v + b[0].numpy())
    np.testing.assert_allclose(v, values[-1], atol=1e-12)
