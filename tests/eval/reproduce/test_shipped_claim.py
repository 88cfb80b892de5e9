"""The committed tables are read, and samples that disagree with them are caught."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icrl_agent.eval.reproduce import shipped
from icrl_agent.frozen import SHIPPED_WEIGHTS
from icrl_agent.model import load_weights

SMALL = shipped.Sizes(n_tasks=4, largest_budget=30)

LONG = """
# BoyanChain-v0, 20 tasks, gamma 0.9

| method | steps | normalised | ratio |
|---|---|---|---|
| frozen agent, theorem | 30 | 0.2 [0.1, 0.4] | 1.04 [0.96, 1.13] |
| certainty equivalence, mean fill | 30 | 0.2 [0.1, 0.4] | 1.00 [1.00, 1.00] |
"""
WIDE = """
# BoyanChain-v0, 20 tasks, gamma 0.9

## Normalised error, mean over tasks

| method | 30 steps | 100 steps |
|---|---|---|
| frozen agent, theorem | 0.2 [0.1, 0.3] | 0.1 [0.1, 0.2] |

## Error over that of certainty equivalence, mean fill, geometric mean over tasks

| method | 30 steps | 100 steps |
|---|---|---|
| frozen agent, theorem | 1.04 [0.96, 1.13] | – |
| Monte Carlo | 27 [16, 45] | 2.5 [1.5, 4.0] |
"""


def test_both_layouts_of_the_comparison_are_read():
    expected = np.log(1.135 / 0.955) / 3.92
    for text in (LONG, WIDE):
        ratio, stderr, rounding = shipped.read_comparison(text)["frozen agent, theorem", 30]
        assert (ratio, rounding) == (1.04, 0.005)
        assert stderr == pytest.approx(expected)
    wide = shipped.read_comparison(WIDE)
    assert set(wide) == {("frozen agent, theorem", 30), ("Monte Carlo", 30), ("Monte Carlo", 100)}
    assert wide["Monte Carlo", 30].rounding == 0.5


def test_the_committed_comparison_is_readable():
    committed = shipped.read_comparison(shipped.COMPARISON.read_text())
    assert {("frozen agent, theorem", 30), ("Monte Carlo", 100)} <= set(committed)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return shipped.measure(SMALL, tmp_path_factory.mktemp("shipped"))


def test_samples_agree(measured, failures):
    assert {"universal", "order"} == set(measured.weights)
    assert len(measured.comparison) >= 5
    assert failures(shipped.judge(measured)) == []


def test_other_weights_are_caught(failures, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "COMPARISON", tmp_path / "missing.md")
    model = load_weights(SHIPPED_WEIGHTS / "universal.safetensors")[0]
    with torch.no_grad():
        model.value_weight[..., -1, -2] *= 0.9
    doubled = shipped.measure(SMALL, tmp_path, {"universal": model})
    (failed,) = failures(shipped.judge(doubled))
    assert "weights universal" in failed
    assert not doubled.comparison


def test_another_comparison_is_caught(measured, failures):
    key = "frozen agent, theorem", 30
    committed, logs = measured.comparison[key]
    moved = {**measured.comparison, key: (committed, logs + 100 * (logs.std() + committed.log_stderr + 0.01))}
    (failed,) = failures(shipped.judge(measured._replace(comparison=moved)))
    assert failed.startswith("comparison")
