"""The claims about what TD learning finds: emergence and the norm of the expected update."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from icrl_agent.eval.reproduce import emergence, neu
from icrl_agent.train.loop import pretrain

TINY = dataclasses.replace(
    emergence.QUICK.config, n_steps=20, tasks_per_step=4, windows_per_task=4, log_every=5, validate_every=20
)


@pytest.fixture
def no_pictures(monkeypatch):
    from icrl_agent.train.run_log import RunLog

    monkeypatch.setattr(RunLog, "pictures", lambda *_: None)


def learned_rows(sign=1.0, kdm=0.5, off_diagonal=0.04, distance=0.1, noise=0.0):
    """Metrics of a run that finds the theorem's weights."""
    rows = []
    for share in (0.0, 0.5, 1.0):
        rows.append(
            {
                "step": int(100 * share),
                "kdm_mean": 0.1 + share * kdm + noise,
                "value_reward": 0.7 * share + noise,
                "value_target": 0.7 * sign * share + noise,
                "value_current": -0.7 * share + noise,
                "attention_diagonal": 3.0 * share + noise,
                "attention_off_diagonal": off_diagonal,
                "theory_distance": 1.0 - (1.0 - distance) * share + noise,
            }
        )
    return rows


def runs(**changes):
    return emergence.Measurements([learned_rows(noise=noise, **changes) for noise in (0.0, 0.001, -0.001)], {})


def test_learned_runs_pass(failures):
    assert failures(emergence.judge(runs())) == []


@pytest.mark.parametrize(
    ("changes", "caught"),
    [
        ({"sign": -1.0}, "V's target entry"),
        ({"kdm": -0.05}, "KDM"),
        ({"off_diagonal": 0.5}, "off-diagonal"),
        ({"distance": 1.0}, "distance to the theorem's weights"),
    ],
)
def test_emergence_catches(failures, changes, caught):
    assert any(caught in what for what in failures(emergence.judge(runs(**changes))))


def test_emergence_catches_weights_that_never_move(failures, tmp_path, no_pictures):
    frozen = emergence.Sizes(dataclasses.replace(TINY, learning_rate=0.0), n_seeds=2)
    assert len(failures(emergence.judge(emergence.measure(frozen, tmp_path)))) > 4


def test_emergence_goes_on_where_it_was_stopped(tmp_path, no_pictures):
    straight = emergence.measure(emergence.Sizes(TINY, 2), tmp_path / "straight")
    pretrain(TINY, tmp_path / "stopped" / "seed-0", stop_after=3)
    resumed = emergence.measure(emergence.Sizes(TINY, 2), tmp_path / "stopped")
    assert resumed.metrics == straight.metrics
    assert list(resumed.pictures) == [0, 10, 20]
    for step, (attention, entries) in straight.pictures.items():
        np.testing.assert_array_equal(resumed.pictures[step][0], attention)
        np.testing.assert_array_equal(resumed.pictures[step][1], entries)


SMALL = neu.Sizes(
    32, 24, second_form_moves=False, n_updates=5, n_trajectories=4, lengths=(8, 256), depths=(1, 64), n_limits=16
)


@pytest.fixture
def few_moves(monkeypatch):
    monkeypatch.setattr(neu, "MOVES", {"target": (0.5,), "reward": (0.5,)})


def test_neu_passes(failures, few_moves):
    # The second form's noise asks for more tasks than a test has time for.
    assert [what for what in failures(neu.judge(neu.measure(SMALL))) if "above the theorem's, second" not in what] == []


@pytest.mark.parametrize(
    ("weights", "caught"),
    [
        (neu.theorem_weights(entries=(1.0, 0.5, -1.0)), "NEU of the theorem's weights, first form"),
        (neu.theorem_weights(entries=(0.5, 1.0, -1.0)), "NEU of the theorem's weights, first form"),
        (neu.theorem_weights(entries=(1.0, 1.0, 1.0)), "NEU of the theorem's weights, first form"),
        (neu.theorem_weights(sharpness=0.0), "NEU of the theorem's weights, first form"),
    ],
    ids=["target entry", "reward entry", "sign", "attention to everything alike"],
)
def test_neu_catches_other_weights_in_the_theorems_place(failures, few_moves, weights, caught):
    assert caught in failures(neu.judge(neu.measure(SMALL, weights)))


def test_rescaling_leaves_the_limit_and_other_ratios_do_not(failures, few_moves, monkeypatch):
    tiny = dataclasses.replace(SMALL, n_tasks=8, lengths=(8,), depths=(1,))
    assert not [what for what in failures(neu.judge(neu.measure(tiny))) if "limits" in what]
    real = neu.affine_layer
    # Layers whose target entry moves with A's scale.
    monkeypatch.setattr(
        neu, "affine_layer", lambda c, A, w, g: real(c, A, w * (1 + 1e-3 * A[0, 0]) ** torch.eye(3)[1], g)
    )
    failed = [what for what in failures(neu.judge(neu.measure(tiny))) if "limits" in what]
    assert [what[:3] for what in failed] == ["A ×", "A ×"]
