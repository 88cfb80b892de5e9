"""Configurations: every wrong value is refused in one sentence that names field, rule and value."""

from __future__ import annotations

import dataclasses
import json

import pytest

from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.presets import PRESETS, preset

WRONG = {
    "n_steps": [(0, "at least 1, got 0"), (-1, "got -1"), (2.5, "got 2.5"), (True, "got True"), ("9", "got '9'")],
    "feature_dim": [(0, "at least 1, got 0")],
    "tasks_per_step": [(0, "at least 1, got 0")],
    "windows_per_task": [(0, "at least 1, got 0")],
    "log_every": [(0, "at least 1, got 0")],
    "validate_every": [(0, "at least 1, got 0")],
    "checkpoint_every": [(0, "at least 1, got 0")],
    "seed": [(-1, "non-negative integer.*got -1"), (2**63, "below 2.63, got 9223372036854775808"), (0.5, "got 0.5")],
    "n_states": [
        ((1, 4), r"2 <= low <= high, got \(1, 4\)"),
        ((6, 4), r"got \(6, 4\)"),
        (5, r"pair \(low, high\), got 5"),
        ((4, 5, 6), r"pair \(low, high\), got \(4, 5, 6\)"),
        ((4.0, 6.0), "two integers"),
    ],
    "n_actions": [((1, 4), r"2 <= low <= high, got \(1, 4\)"), ((5, 2), r"got \(5, 2\)"), (3, "got 3")],
    "context_length": [((0, 4), r"1 <= low <= high, got \(0, 4\)"), ((5, 4), r"got \(5, 4\)")],
    "n_layers": [((0, 2), r"1 <= low <= high, got \(0, 2\)")],
    "gamma": [
        ((0.5, 1.0), r"high < 1, got \(0.5, 1.0\)"),
        ((-0.1, 0.5), r"0 <= low"),
        ((0.9, 0.5), r"got \(0.9, 0.5\)"),
        ((0.5, float("nan")), "got .0.5, nan"),
        (("a", "b"), "got .'a', 'b'"),
    ],
    "reward_noise": [((-1.0, 0.0), "0 <= low"), ((0.0, float("inf")), "got .0.0, inf")],
    "learning_rate": [(-1e-3, "at least 0, got -0.001"), (float("nan"), "got nan"), ("fast", "got 'fast'")],
    "weight_decay": [(-1.0, "at least 0, got -1.0")],
    "gradient_clip": [(-1.0, "at least 0, got -1.0")],
    "ema_decay": [(1.0, "below 1, got 1.0"), (-0.1, "at least 0")],
    "objective": [("mse", "'td', 'neu', 'true_value'.*got 'mse'")],
    "features": [("fourier", "'random_unit', 'random_uniform', 'one_hot'.*got 'fourier'"), ("one_hot", "16|of at")],
    "families": [((), r"got \(\)"), (("boyan", "maze"), "'garnet', 'loop'.*'maze'"), ("boyan", "got 'boyan'")],
}


@pytest.mark.parametrize(
    ("field", "value", "match"), [(field, *case) for field, cases in WRONG.items() for case in cases], ids=str
)
def test_wrong_values(field, value, match):
    changes = {field: value} | ({"feature_dim": 4} if value == "one_hot" else {})
    with pytest.raises(ValueError, match=match) as caught:
        PretrainConfig(**changes)
    message = str(caught.value)
    assert field in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "changes",
    [
        {"gamma": (0.0, 0.0)},
        {"context_length": (1, 1), "n_layers": (1, 1), "n_states": (2, 2), "feature_dim": 1},
        {"ema_decay": 0.0, "weight_decay": 0, "learning_rate": 0},
        {"features": "one_hot", "feature_dim": 10},
        {"seed": 2**63 - 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_ends_of_the_ranges_are_allowed(changes):
    PretrainConfig(**changes)


def test_every_field_has_a_case_or_is_a_flag():
    flags = {item.name for item in dataclasses.fields(PretrainConfig) if item.type == "bool"}
    assert {item.name for item in dataclasses.fields(PretrainConfig)} - flags == set(WRONG)


@pytest.mark.parametrize("name", PRESETS)
def test_there_and_back_through_json(name):
    config = preset(name)
    assert PretrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.differing_fields(config) == []


def test_unknown_field_is_named():
    with pytest.raises(ValueError, match="unknown field batch_size, lr;"):
        PretrainConfig.from_dict({"lr": 1.0, "seed": 0, "batch_size": 3})


@pytest.mark.parametrize("field", [item.name for item in dataclasses.fields(PretrainConfig)])
def test_a_difference_in_any_field_is_named(field):
    other = {
        "objective": "neu", "families": ("loop",), "features": "random_uniform", "shared": False,
        "weigh_by_length": True, "gamma": (0.1, 0.2), "reward_noise": (0.1, 0.2), "ema_decay": 0.5,
    }  # fmt: skip
    present = getattr(PretrainConfig(), field)
    if field in other:
        changed = other[field]
    else:
        changed = tuple(n + 1 for n in present) if isinstance(present, tuple) else present + 1
    assert PretrainConfig().differing_fields(dataclasses.replace(PretrainConfig(), **{field: changed})) == [field]


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PretrainConfig().seed = 3


def test_unknown_preset_lists_the_known():
    with pytest.raises(ValueError, match=r"unknown preset 'papr'; known: paper, paper-small, universal"):
        preset("papr")
