"""The committed tables are read, and samples that disagree with them are caught."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icrl_agent.eval.reproduce import shipped
from icrl_agent.frozen import SHIPPED_WEIGHTS
from icrl_agent.model import load_weights

SMALL = shipped.Sizes(n_tasks=4, largest_budget=30)

REPORT = """
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


def test_the_comparison_s_ratios_are_read():
    found = shipped.read_comparison(REPORT)
    assert set(found) == {("frozen agent, theorem", 30), ("Monte Carlo", 30), ("Monte Carlo", 100)}
    ratio, stderr, rounding = found["frozen agent, theorem", 30]
    assert (ratio, rounding) == (1.04, 0.005)
    assert stderr == pytest.approx(np.log(1.135 / 0.955) / 3.92)
    assert found["Monte Carlo", 30].rounding == 0.5


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
