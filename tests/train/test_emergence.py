"""The measures of emergence, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from icrl_agent.model import MergedContext, SoftmaxICTD
from icrl_agent.train.emergence import batch_diagonality, emergence, theory_distance

D = 3


@pytest.fixture
def model():
    model = SoftmaxICTD(D, n_layers=2)
    rng = np.random.default_rng(0)
    with torch.no_grad():
        model.attention_weight.copy_(torch.tensor(rng.normal(size=(1, D + 3, D + 3))))
        model.value_weight.copy_(torch.tensor(rng.normal(size=(1, D + 3, D + 3))))
    return model


@pytest.fixture
def context():
    """Two tasks with two windows each; some states are never left."""
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 3, (2, 2, 4)).astype(float)
    counts[..., 0] = 0.0
    counts[..., 1] += 1.0
    return MergedContext(
        torch.tensor(rng.normal(size=(2, 1, 4, D))), torch.tensor(counts), torch.zeros(2, 2, 4), torch.zeros(2, 2, 4, 4)
    )


def check_measures(measure, model, context):
    A = model.attention_weight[0].detach().double().numpy()[:D, :D]
    V = model.value_weight[0].detach().double().numpy()
    means, minima = [], []
    for task in range(2):
        x = context.features[task, 0].numpy()
        for window in range(2):
            counts = context.counts[task, window].numpy()
            diagonal = []
            for s in np.flatnonzero(counts):
                shares = [counts[u] * math.exp(x[u] @ A @ x[s]) for u in range(4)]
                diagonal.append(shares[s] / sum(shares))
            means.append(sum(diagonal) / len(diagonal))
            minima.append(min(diagonal))
    beside = [abs(A[i, j]) for i in range(D) for j in range(D) if i != j]
    a, c = max(np.trace(A) / D, 0.0), max((V[D + 2, D] + V[D + 2, D + 1] - V[D + 2, D + 2]) / 3, 0.0)
    entries = V[D + 2, D : D + 3]
    parts = [
        np.sum((A - a * np.eye(D)) ** 2) / np.sum(A**2),
        np.sum((entries - c * np.array([1, 1, -1])) ** 2) / np.sum(entries**2),
    ]
    expected = {
        "kdm_mean": np.mean(means),
        "kdm_min": np.mean(minima),
        "value_reward": V[D + 2, D],
        "value_target": V[D + 2, D + 1],
        "value_current": V[D + 2, D + 2],
        "attention_diagonal": np.mean(np.diag(A)),
        "attention_off_diagonal": np.mean(beside),
        "theory_distance": math.sqrt(sum(parts) / 2),
    }
    found = measure(model, context)
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name


def test_measures(model, context):
    check_measures(emergence, model, context)


def of_weights_transposed(model, context):
    with torch.no_grad():
        model.attention_weight.copy_(model.attention_weight.transpose(1, 2).clone())
        return emergence(model, context) | {"theory_distance": 0.0}


@pytest.mark.parametrize(
    "double",
    [
        of_weights_transposed,
        lambda model, context: emergence(model, context._replace(counts=context.counts.clamp(max=1.0))),
        lambda model, context: emergence(model, context._replace(counts=context.counts.clamp(min=1.0))),
        lambda model, context: {**(m := emergence(model, context)), "value_reward": m["value_target"]},
        lambda model, context: {**(m := emergence(model, context)), "kdm_min": m["kdm_mean"]},
    ],
    ids=["A transposed", "visits not counted", "never left counted", "V shifted", "mean for minimum"],
)
def test_the_measure_check_catches(model, context, double):
    with pytest.raises(AssertionError):
        check_measures(double, model, context)


def test_diagonality_leaves_out_states_never_left():
    kernel = torch.tensor([[[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.5, 0.5, 0.0]]])
    mean, minimum = batch_diagonality(kernel, torch.tensor([[3.0, 1.0, 0.0]]))
    assert (float(mean), float(minimum)) == (0.625, 0.5)


@pytest.mark.parametrize("scale", [0.1, 1.0, 7.0])
def test_distance_of_the_theorem_s_weights_is_zero(scale):
    assert theory_distance(3 * scale * torch.eye(4), scale * torch.tensor([1.0, 1.0, -1.0])) < 1e-6


@pytest.mark.parametrize(
    ("attention", "entries", "expected"),
    [
        (torch.eye(2), [1.0, 0.0, 0.0], math.sqrt((2 / 3) / 2)),
        (torch.tensor([[1.0, 1.0], [1.0, 1.0]]), [1.0, 1.0, -1.0], 0.5),
        (-torch.eye(2), [-1.0, -1.0, 1.0], 1.0),
        (torch.zeros(2, 2), [1.0, 1.0, -1.0], 0.0),
    ],
    ids=["reward only", "off-diagonal", "signs turned", "no attention yet"],
)
def test_distance_by_hand(attention, entries, expected):
    assert theory_distance(attention, torch.tensor(entries)) == pytest.approx(expected, abs=1e-6)


def test_gradients_are_left_alone(model, context):
    emergence(model, context)
    assert all(parameter.grad is None for parameter in model.parameters())
