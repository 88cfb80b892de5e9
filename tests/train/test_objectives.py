"""The objectives are aligned in time, and their gradients run where they should."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icrl_agent.train import state as training
from icrl_agent.train.objectives import neu_loss, td_error, td_loss, true_value_loss
from icrl_agent.train.sampler import sample_batch
from icrl_agent.train.state import TrainingState, batch_losses

T, W, D = 3, 5, 2


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    return {
        **{name: torch.tensor(rng.normal(size=(T, W))) for name in ("v_tm1", "r_t", "v_t")},
        "gamma": torch.tensor(rng.uniform(0.2, 0.9, (T, 1))),
        "x_tm1": torch.tensor(rng.normal(size=(T, W, D))),
    }


def slow_errors(numbers):
    r_t, v_t, v_tm1 = (numbers[name].tolist() for name in ("r_t", "v_t", "v_tm1"))
    gamma = numbers["gamma"].flatten().tolist()
    return [[r_t[i][k] + gamma[i] * v_t[i][k] - v_tm1[i][k] for k in range(W)] for i in range(T)]


def check_td(loss, numbers):
    """The mean of squares by a loop; the gradient is that of the semi-gradient, -2 delta / N, and 0 in v_t."""
    v_tm1, v_t = (numbers[name].clone().requires_grad_() for name in ("v_tm1", "v_t"))
    value = loss(v_tm1, numbers["r_t"], numbers["gamma"], v_t)
    delta = slow_errors(numbers)
    assert float(value.detach()) == pytest.approx(sum(d * d for row in delta for d in row) / (T * W), rel=1e-12)
    value.backward()
    np.testing.assert_allclose(v_tm1.grad, -2 * np.array(delta) / (T * W), rtol=1e-12)
    assert v_t.grad is None or (v_t.grad == 0).all()


def test_td_loss(numbers):
    check_td(td_loss, numbers)


@pytest.mark.parametrize(
    "double",
    [
        lambda v_tm1, r_t, gamma, v_t: td_error(v_tm1, r_t, gamma, v_t).square().mean(),
        lambda v_tm1, r_t, gamma, v_t: td_loss(v_t, r_t, gamma, v_tm1),
        lambda v_tm1, r_t, gamma, v_t: td_loss(v_tm1, r_t, torch.ones_like(gamma), v_t),
        lambda v_tm1, r_t, gamma, v_t: td_loss(v_tm1, r_t.roll(1, dims=1), gamma, v_t),
        lambda v_tm1, r_t, gamma, v_t: 0.5 * td_loss(v_tm1, r_t, gamma, v_t),
    ],
    ids=["full gradient", "values exchanged", "gamma dropped", "reward shifted", "half"],
)
def test_the_td_check_catches(numbers, double):
    with pytest.raises(AssertionError):
        check_td(double, numbers)


def check_neu(loss, numbers):
    """|| mean over windows of delta x ||^2 per task by loops; the gradient runs through both values."""
    v_tm1, v_t = (numbers[name].clone().requires_grad_() for name in ("v_tm1", "v_t"))
    value = loss(v_tm1, numbers["r_t"], numbers["gamma"], v_t, numbers["x_tm1"])
    deltas = slow_errors(numbers)
    total, gradient_tm1, gradient_t = 0.0, np.zeros((T, W)), np.zeros((T, W))
    for i in range(T):
        update = np.zeros(D)
        for k in range(W):
            delta = deltas[i][k]
            update += delta * numbers["x_tm1"][i, k].numpy() / W
        total += update @ update / T
        for k in range(W):
            along = 2 * update @ numbers["x_tm1"][i, k].numpy() / (W * T)
            gradient_tm1[i, k], gradient_t[i, k] = -along, along * float(numbers["gamma"][i, 0])
    assert float(value.detach()) == pytest.approx(total, rel=1e-12)
    value.backward()
    np.testing.assert_allclose(v_tm1.grad, gradient_tm1, atol=1e-14)
    assert v_t.grad is not None
    np.testing.assert_allclose(v_t.grad, gradient_t, atol=1e-14)


def test_neu_loss(numbers):
    check_neu(neu_loss, numbers)


@pytest.mark.parametrize(
    "double",
    [
        lambda v_tm1, r_t, gamma, v_t, x: neu_loss(v_tm1, r_t, gamma, v_t.detach(), x),
        lambda v_tm1, r_t, gamma, v_t, x: neu_loss(v_tm1, r_t, gamma, v_t, x.roll(-1, dims=1)),
        lambda v_tm1, r_t, gamma, v_t, x: (td_error(v_tm1, r_t, gamma, v_t)[..., None] * x).square().sum(2).mean(),
        lambda *arguments: neu_loss(*(a.reshape(1, T * W, *a.shape[2:]) for a in torch.broadcast_tensors(
            *arguments[:4])), arguments[4].reshape(1, T * W, D)),
    ],
    ids=["semi-gradient", "features of the entered state", "mean of norms", "tasks pooled"],
)  # fmt: skip
def test_the_neu_check_catches(numbers, double):
    with pytest.raises(AssertionError):
        check_neu(double, numbers)


def test_true_value_loss(numbers):
    v_tm1 = numbers["v_tm1"].clone().requires_grad_()
    loss = true_value_loss(v_tm1, numbers["v_t"])
    difference = (numbers["v_tm1"] - numbers["v_t"]).numpy()
    assert float(loss.detach()) == pytest.approx((difference**2).sum() / (T * W), rel=1e-12)
    loss.backward()
    np.testing.assert_allclose(v_tm1.grad, 2 * difference / (T * W), rtol=1e-12)


def losses_of_the_truth(batch, monkeypatch):
    """Losses of a transformer that gives every state its exact value."""
    values = batch.true_values[:, None].expand(-1, batch.query.shape[1], -1)
    monkeypatch.setattr(training, "merged_values", lambda *_: values[None])
    return {name: float(loss) for name, loss in batch_losses(None, batch).items()}


def check_alignment(batch, monkeypatch):
    """On a deterministic process the truth has no TD error at all: values below 10 in float32."""
    losses = losses_of_the_truth(batch, monkeypatch)
    assert set(losses) == {"td", "neu", "true_value"}
    assert max(losses.values()) < (4 * 10 * 2.0**-24) ** 2, losses


@pytest.fixture
def deterministic(tiny):
    """A ring of two states is a deterministic process: both neighbours are the other state.

    Ten prompts, so that the walk is another one backwards.
    """
    return sample_batch(tiny(families=("loop",), n_states=(2, 2), windows_per_task=9), "train", 0, 0)


def test_true_values_have_no_loss_on_a_deterministic_process(deterministic, monkeypatch):
    check_alignment(deterministic, monkeypatch)


@pytest.mark.parametrize(
    "double",
    [
        lambda batch: batch._replace(query=batch.query.flip(1)),
        lambda batch: batch._replace(query=batch.query.roll(1, dims=1)),
        lambda batch: batch._replace(reward=batch.reward.roll(1, dims=1)),
        lambda batch: batch._replace(gamma=torch.ones_like(batch.gamma)),
        lambda batch: batch._replace(gamma=torch.zeros_like(batch.gamma)),
        lambda batch: batch._replace(gamma=batch.gamma.roll(1, dims=0)),
        lambda batch: batch._replace(true_values=batch.true_values.roll(1, dims=1)),
    ],
    ids=["time reversed", "query late", "reward late", "gamma dropped", "gamma 0", "another task's gamma",
         "another state's value"],
)  # fmt: skip
def test_the_alignment_check_catches(deterministic, monkeypatch, double):
    with pytest.raises(AssertionError):
        check_alignment(double(deterministic), monkeypatch)


def check_mean_zero(batch, chi_square_tail):
    """TD errors of the truth have mean 0 in every state that is left: squared z-scores sum to a chi-square."""
    v = batch.true_values.double()
    left, entered = batch.query[:, :-1], batch.query[:, 1:]
    delta = batch.reward.double() + batch.gamma.double() * v.gather(1, entered) - v.gather(1, left)
    statistic, degrees = 0.0, 0
    for task in range(len(v)):
        for state in range(v.shape[1]):
            errors = delta[task][left[task] == state]
            if len(errors) < 50:
                continue
            if errors.abs().max() < 1e-5:  # a state with one successor: rounding only
                continue
            statistic += float(errors.mean() ** 2 / (errors.var() / len(errors)))
            degrees += 1
    assert degrees >= 10
    assert chi_square_tail(statistic, degrees) > 1e-3


@pytest.fixture(scope="module")
def stochastic(tiny):
    config = tiny(n_states=(6, 6), windows_per_task=2000, tasks_per_step=4, gamma=(0.9, 0.9))
    return sample_batch(config, "train", 0, 0)


def test_td_errors_of_the_truth_have_mean_zero(stochastic, chi_square_tail):
    check_mean_zero(stochastic, chi_square_tail)


@pytest.mark.parametrize(
    "double",
    [
        lambda batch: batch._replace(query=batch.query.flip(1), reward=batch.reward.flip(1)),
        lambda batch: batch._replace(reward=batch.reward.roll(1, dims=1)),
        lambda batch: batch._replace(gamma=0.95 * batch.gamma),
    ],
    ids=["values exchanged", "reward shifted", "another gamma"],
)
def test_the_mean_check_catches(stochastic, chi_square_tail, double):
    with pytest.raises(AssertionError):
        check_mean_zero(double(stochastic), chi_square_tail)


@pytest.mark.parametrize("objective", ["td", "neu", "true_value"])
def test_the_configured_objective_is_the_one_descended(tiny, objective):
    """The first step of Adam moves every free weight against the gradient's sign, by the learning rate."""
    config = tiny(objective=objective, weight_decay=0.0, gradient_clip=1e9)
    batch = sample_batch(config, "train", 0, 0)
    state = TrainingState.start(config)
    before = [parameter.detach().clone() for parameter in state.model.parameters()]
    loss = batch_losses(state.model, batch)[objective]
    gradients = torch.autograd.grad(loss, list(state.model.parameters()))
    losses = state.update(batch)
    assert losses[objective] == float(loss.detach())
    for old, new, gradient in zip(before, state.model.parameters(), gradients, strict=True):
        # Adam's first step is g / (|g| + 1e-8).
        expected = old - config.learning_rate * gradient / (gradient.abs() + 1e-8)
        np.testing.assert_allclose(new.detach(), expected, atol=4 * 2.0**-24)
        assert (gradient != 0).any()
