"""Validation on held-out tasks: what its columns are, recomputed task by task."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from icrl_agent.algorithms import certainty_equivalence, lstd, tabular_td
from icrl_agent.model import SoftmaxICTD
from icrl_agent.prompt import build_prompt
from icrl_agent.train import validation
from icrl_agent.train.validation import Cell, draw_contexts, validate, validation_lengths


@pytest.fixture(autouse=True)
def _few_tasks(monkeypatch):
    monkeypatch.setattr(validation, "VALIDATION_TASKS", 6)


def literal_values(model, contexts, task):
    """Every state appended as a query to the task's prompt."""
    states, rewards = contexts.trajectories.states[task], contexts.trajectories.rewards[task]
    x = contexts.features[task]
    prompt = np.concatenate([build_prompt(x[states], rewards), np.pad(x.T, ((0, 3), (0, 0)))], axis=1)
    sources = torch.arange(prompt.shape[1])[None] < len(rewards)
    twin = SoftmaxICTD(model.feature_dim, model.n_layers, shared=model.shared, dtype=torch.float64)
    twin.load_state_dict({name: tensor.double() for name, tensor in model.state_dict().items()})
    with torch.no_grad():
        return twin.values(torch.tensor(prompt)[None], float(contexts.gamma[task]), sources)[0, len(states) :].numpy()


def check_rows(rows_of, config):
    """Errors, best classical estimator and ratio by loops over tasks and families."""
    model = SoftmaxICTD.from_theory(config.feature_dim, 4, sharpness=3.0)
    rows = rows_of(config, model, 12)
    assert [row["context_length"] for row in rows] == list(validation_lengths(config))
    for row in rows:
        errors = {name: [] for name in ("error", "ce_zero", "ce_mean", "lstd", "tabular_td", "theory", "empty_context")}
        for family in config.families:
            n_actions = config.n_actions[1] if family == "pairs" else 1
            cell = Cell(family, config.n_states[1], config.gamma[1], row["context_length"], n_actions)
            contexts = draw_contexts(cell, 6, config.feature_dim, seed=config.seed, features=config.features)
            for task in range(6):
                s, r = contexts.trajectories.states[task], contexts.trajectories.rewards[task]
                n, g = config.n_states[1] * n_actions, config.gamma[1]
                estimates = {
                    "error": literal_values(model, contexts, task),
                    "ce_zero": certainty_equivalence(s, r, g, n, never_left="zero"),
                    "ce_mean": certainty_equivalence(s, r, g, n, never_left="mean"),
                    "lstd": lstd(s, r, g, n, ridge=0.03),
                    "tabular_td": tabular_td(s, r, g, n, step_size=lambda k: 30 / (30 + k)),
                    "theory": literal_values(SoftmaxICTD.from_theory(config.feature_dim, 4), contexts, task),
                    "empty_context": np.zeros(n),
                }
                for name, values in estimates.items():
                    errors[name].append(contexts.weights[task] @ (values - contexts.true_values[task]) ** 2)
        for name, values in errors.items():
            assert row[name] == pytest.approx(np.mean(values), rel=1e-6), name
        logs = {name: np.mean(np.log(errors[name])) for name in ("ce_zero", "ce_mean", "lstd", "tabular_td")}
        assert row["best"] == min(logs, key=logs.get)
        assert row["ratio"] == pytest.approx(math.exp(np.mean(np.log(errors["error"])) - min(logs.values())), rel=1e-6)
        assert row["step"] == 12


CONFIGS = [
    {"context_length": (4, 30)},
    {"families": ("boyan", "garnet", "loop")},
    {"features": "random_uniform"},
    {"n_actions": (2, 3), "families": ("pairs", "boyan")},
]


@pytest.mark.parametrize("changes", CONFIGS, ids=lambda changes: next(iter(changes)))
def test_rows(tiny, changes):
    check_rows(validate, tiny(**changes))


@pytest.mark.parametrize("column", ["error", "ratio", "ce_mean", "theory", "empty_context"])
def test_the_row_check_catches(tiny, column):
    def double(*arguments):
        return [row | {column: 1.01 * row[column]} for row in validate(*arguments)]

    with pytest.raises(AssertionError):
        check_rows(double, tiny())


def test_another_task_s_context_says_little(tiny):
    """Far worse than the right context, and no better than answering 0 up to the noise of 6 tasks."""
    model = SoftmaxICTD.from_theory(4, 30, sharpness=8.0)
    (row,) = validate(tiny(context_length=(200, 200), n_states=(6, 6), features="random_unit"), model, 0)
    assert row["other_task"] > 3 * row["error"]


def test_lengths(tiny):
    assert validation_lengths(tiny()) == (5,)
    assert validation_lengths(tiny(context_length=(8, 64))) == (8, 16, 32, 64)
    assert validation_lengths(tiny(context_length=(1, 2))) == (1, 2)


def test_contexts_are_a_pure_function_and_not_those_of_training(tiny):
    cell = Cell("boyan", 5, 0.9, 7)
    one, two, other, test = (
        draw_contexts(cell, 3, 4, **options) for options in ({}, {}, {"seed": 1}, {"split": "test"})
    )
    for name in set(one._fields) - {"trajectories"}:
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    for first, second in zip(one.trajectories, two.trajectories, strict=True):
        np.testing.assert_array_equal(first, second)
    assert not np.array_equal(one.true_values, other.true_values)
    assert not np.array_equal(one.true_values, test.true_values)


def test_an_exact_estimator_leaves_the_ratio_undefined(tiny, monkeypatch):
    """As certainty equivalence is at gamma 0 once every state was left."""
    real = validation.classical_values
    monkeypatch.setattr(
        validation, "classical_values", lambda contexts, ridge: real(contexts, ridge) | {"lstd": contexts.true_values}
    )
    (row,) = validate(tiny(), SoftmaxICTD.from_theory(4, 2), 0)
    assert (row["lstd"], row["best"]) == (0.0, "lstd")
    assert math.isnan(row["ratio"])
    assert row["error"] > 0
