"""The paper preset learns what the paper reports."""

from __future__ import annotations

import pytest

from icrl_agent import ICRLAgent
from icrl_agent.train.loop import pretrain
from icrl_agent.train.presets import preset


def check_emergence(metrics, validation):
    """Signs (+, +, -), attention three times as diagonal, A near a multiple of the identity, errors halved at least."""
    first, last = metrics[0], metrics[-1]
    assert last["value_reward"] > 0.3
    assert last["value_target"] > 0.3
    assert last["value_current"] < -0.3
    assert last["kdm_mean"] > 3 * first["kdm_mean"]
    assert last["attention_diagonal"] > 10 * last["attention_off_diagonal"]
    assert last["theory_distance"] < 0.25 < first["theory_distance"]
    untrained = {row["context_length"]: row["ratio"] for row in validation if row["step"] == 0}
    trained = [row for row in validation if row["step"] == last["step"]]
    assert len(trained) == len(untrained)
    for row in trained:
        # An untrained transformer answers about 0, far worse than any classical estimator.
        assert row["ratio"] < 0.5 * untrained[row["context_length"]]
        assert row["error"] < 0.5 * row["empty_context"]
        assert row["error"] < 0.5 * row["other_task"]


@pytest.mark.slow
def test_paper_preset(tmp_path):
    result = pretrain(preset("paper"), tmp_path / "run")
    check_emergence(result.metrics, result.validation)
    entries = ICRLAgent.load(tmp_path / "run").model.value_entries().tolist()
    assert [entry > 0 for entry in entries] == [True, True, False]


def test_the_emergence_check_catches_a_run_that_learns_nothing(tiny, tmp_path, no_pictures):
    result = pretrain(tiny(learning_rate=0.0), tmp_path / "run")
    with pytest.raises(AssertionError):
        check_emergence(result.metrics, result.validation)
