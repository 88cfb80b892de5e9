"""The transformer's expected updates, against the literal layers and autograd, one prompt at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icrl_agent.model import SoftmaxICTD
from icrl_agent.prompt import build_prompt
from icrl_agent.train.expected_update import draw_windows, semi_gradient_updates, td_updates
from icrl_agent.train.sampler import roll_out
from icrl_agent.train.tasks import draw_features, draw_tasks

N_TASKS, N_STATES, DIM, LENGTH, N_WINDOWS, GAMMA, DEPTH = 3, 5, 4, 7, 6, 0.8, 5


@pytest.fixture(scope="module")
def setting():
    """Windows, the trajectories they slide along, and random weights."""
    rng = np.random.default_rng(0)
    tasks = draw_tasks(rng, "boyan", np.full(N_TASKS, N_STATES))
    x = draw_features(rng, "random_unit", N_TASKS, N_STATES, DIM)
    windows = draw_windows(np.random.default_rng(1), tasks, x, LENGTH, N_WINDOWS, GAMMA)
    trajectories = roll_out(np.random.default_rng(1), tasks, LENGTH + N_WINDOWS, np.zeros(N_TASKS))
    generator = torch.Generator().manual_seed(0)
    model = SoftmaxICTD(DIM, DEPTH, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return windows, trajectories, x, model


def literal_updates(setting, form, *, semi=True):
    """Every prompt through the literal transformer."""
    _, (states, rewards), x, model = setting
    found = []
    for task in range(N_TASKS):
        total = 0.0
        for w in range(N_WINDOWS):
            values = []
            for start in (w, w + 1):
                columns = x[task][states[task, start : start + LENGTH + 1]]
                prompt = torch.from_numpy(build_prompt(columns, rewards[task, start : start + LENGTH]))[None]
                values.append(model.query_value(prompt, GAMMA)[0])
            v_tm1, v_t = values
            delta = rewards[task, w + LENGTH] + GAMMA * v_t - v_tm1
            if form == "first":
                total = total + float(delta.detach()) * x[task][states[task, w + LENGTH]]
                continue
            target = v_tm1 if semi else -delta
            gradients = torch.autograd.grad(target, (model.attention_weight, model.value_weight))
            attention = gradients[0][0, :DIM, :DIM].reshape(-1)
            total = total + float(delta.detach()) * torch.cat([attention, gradients[1][0, -1, DIM:]]).numpy()
        found.append(total / N_WINDOWS)
    return np.stack(found)


def found_updates(setting, update):
    windows, _, _, model = setting
    return update(model.attention_block().detach(), model.value_entries().detach(), windows, DEPTH)


@pytest.mark.parametrize(("form", "update"), [("first", td_updates), ("second", semi_gradient_updates)])
def test_updates_are_those_of_the_literal_transformer(setting, form, update):
    np.testing.assert_allclose(found_updates(setting, update), literal_updates(setting, form), atol=1e-10)


def test_the_second_form_is_the_semi_gradient(setting):
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            found_updates(setting, semi_gradient_updates), literal_updates(setting, "second", semi=False), atol=1e-6
        )
