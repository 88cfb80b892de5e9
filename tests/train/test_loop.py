"""A run is a function of its configuration, and its record describes the averaged weights."""

from __future__ import annotations

import csv
import math
import random
import shutil
import signal

import numpy as np
import pytest
import torch

from icrl_agent import ICRLAgent
from icrl_agent.train.loop import pretrain
from icrl_agent.train.sampler import sample_batch
from icrl_agent.train.state import TrainingState, batch_losses

COLUMNS = ["step", "td_loss", "kdm_mean", "kdm_min", "value_reward", "value_target", "value_current",
           "attention_diagonal", "attention_off_diagonal"]  # fmt: skip


def read_csv(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def check_seeds(run, tiny, tmp_path, bit_equal, run_content):
    """One seed twice: the same bits. Another seed: other tasks and other weights."""
    config = tiny()
    runs = [run(c, tmp_path / name) for name, c in (("a", config), ("b", config), ("c", tiny(seed=1)))]
    a, b, c = (run_content(r.run_dir) for r in runs)
    assert bit_equal(a, b)
    for name in ("weights", "metrics.csv", "validation.csv"):
        assert a[name] != c[name], name


@pytest.mark.usefixtures("no_pictures")
def test_seeds(tiny, tmp_path, bit_equal, run_content):
    check_seeds(pretrain, tiny, tmp_path, bit_equal, run_content)


def with_global_noise(config, folder):
    result = pretrain(config, folder)
    path = folder / "weights.safetensors"
    path.write_bytes(path.read_bytes() + random.randbytes(8))
    return result


def seed_dropped(config, folder):
    from dataclasses import replace

    return pretrain(replace(config, seed=0), folder)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("double", [with_global_noise, seed_dropped])
def test_the_seed_check_catches(tiny, tmp_path, bit_equal, run_content, double):
    with pytest.raises(AssertionError):
        check_seeds(double, tiny, tmp_path, bit_equal, run_content)


def surroundings():
    return (
        random.getstate(),
        [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()],  # noqa: NPY002
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    )


def check_surroundings(run, tiny, folder):
    torch.set_num_threads(2)
    try:
        before = surroundings()
        run(tiny(), folder)
        assert surroundings() == before
    finally:
        torch.set_num_threads(1)


@pytest.mark.usefixtures("no_pictures")
def test_the_process_is_left_as_it_was(tiny, tmp_path):
    check_surroundings(pretrain, tiny, tmp_path / "run")

    def fail(_step, _rate):
        raise RuntimeError

    def failing(config, folder):
        with pytest.raises(RuntimeError):
            pretrain(config, folder, progress=fail)

    check_surroundings(failing, tiny, tmp_path / "failed")


@pytest.mark.parametrize(
    "double",
    [
        lambda *_: torch.rand(1),
        lambda *_: np.random.rand(),  # noqa: NPY002
        lambda *_: random.random(),
        lambda *_: torch.set_num_threads(1),
    ],
    ids=["torch", "numpy", "random", "threads"],
)
def test_the_surroundings_check_catches(tiny, tmp_path, double):
    with pytest.raises(AssertionError):
        check_surroundings(double, tiny, tmp_path)


def test_rows(finished_run):
    config, folder, result = finished_run
    rows = read_csv(folder / "metrics.csv")
    assert set(COLUMNS) <= set(rows[0])
    assert [row["step"] for row in rows] == ["0", "2", "4", "6", "8"]
    validation = read_csv(folder / "validation.csv")
    assert [(row["step"], row["context_length"]) for row in validation] == [("0", "5"), ("4", "5"), ("8", "5")]
    for kept, read in ((result.metrics, rows), (result.validation, validation)):
        assert [{name: str(value) for name, value in row.items()} for row in kept] == read
    assert result.finished
    assert (result.n_steps, result.stop_signal) == (config.n_steps, None)


def test_last_row_is_written_whatever_the_interval(tiny, tmp_path, no_pictures):
    pretrain(tiny(log_every=5, validate_every=100, n_steps=7), tmp_path / "run")
    assert [row["step"] for row in read_csv(tmp_path / "run" / "metrics.csv")] == ["0", "5", "7"]
    assert [row["step"] for row in read_csv(tmp_path / "run" / "validation.csv")] == ["0", "7"]


def test_kept_weights_are_the_averaged_ones(finished_run):
    config, folder, _ = finished_run
    checkpoint = torch.load(folder / "checkpoint.pt")
    model = ICRLAgent.load(folder).model
    assert (model.feature_dim, model.n_layers, model.shared) == (config.feature_dim, config.n_layers[1], config.shared)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, checkpoint["averaged"][name])
        assert not torch.equal(parameter, checkpoint["model"][name])


def check_updates(update, tiny):
    """Rate, average and clipped gradient of every update from what the update before left."""
    config = tiny(gradient_clip=1e-4, ema_decay=0.9, weight_decay=0.0)
    state = TrainingState.start(config)
    for k in range(5):
        batch = sample_batch(config, "train", 0, k)
        weights = [p.detach().clone() for p in state.model.parameters()]
        averages = [p.detach().clone() for p in state.averaged.parameters()]
        update(state, batch)
        rate = config.learning_rate * (1 + math.cos(math.pi * k / config.n_steps)) / 2
        assert state.optimizer.param_groups[0]["lr"] == pytest.approx(rate, rel=1e-14)
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in state.model.parameters()))
        assert norm == pytest.approx(config.gradient_clip, rel=1e-2)
        for old, average, new, mean in zip(
            weights, averages, state.model.parameters(), state.averaged.parameters(), strict=True
        ):
            assert not torch.equal(old, new)
            np.testing.assert_allclose(mean, 0.9 * average + 0.1 * new.detach(), atol=2.0**-24)
        assert state.step == k + 1


def test_updates(tiny):
    check_updates(TrainingState.update, tiny)


def constant_rate(state, batch):
    step, state.step = state.step, 0
    state.update(batch)
    state.step = step + 1


def not_averaged(state, batch):
    state.update(batch)
    state.averaged.load_state_dict(state.model.state_dict())


def not_clipped(state, batch):
    object.__setattr__(state.config, "gradient_clip", 1e9)
    state.update(batch)
    object.__setattr__(state.config, "gradient_clip", 1e-4)


@pytest.mark.parametrize("double", [constant_rate, not_averaged, not_clipped])
def test_the_update_check_catches(tiny, double):
    with pytest.raises(AssertionError):
        check_updates(double, tiny)


def test_loss_weighed_by_length(tiny):
    """The gradient is multiplied by n over the geometric mean of the range."""
    for step in range(6):
        gradients, lengths = [], []
        for weigh in (False, True):
            config = tiny(context_length=(2, 8), weigh_by_length=weigh, gradient_clip=1e9)
            state = TrainingState.start(config)
            batch = sample_batch(config, "train", 0, step)
            state.update(batch)
            gradients.append(torch.cat([p.grad.flatten() for p in state.model.parameters()]))
            lengths.append(float(batch.context.counts[0, 0].sum()))
        expected = gradients[0] * lengths[0] / 4.0
        # Sums of at most 16 products in float32, of the size of the largest gradient.
        np.testing.assert_allclose(gradients[1], expected, atol=16 * 2.0**-23 * float(expected.abs().max()), rtol=0)


def test_logged_losses_are_those_of_the_averaged_weights_on_the_next_batch(tiny, tmp_path, no_pictures):
    config = tiny(log_every=1, n_steps=4, ema_decay=0.5)
    logged = pretrain(config, tmp_path / "run").metrics
    state = TrainingState.start(config)
    for row in logged:
        losses = batch_losses(state.averaged, sample_batch(config, "train", 0, row["step"]))
        assert (row["td_loss"], row["neu"]) == (float(losses["td"]), float(losses["neu"]))
        state.update(sample_batch(config, "train", 0, row["step"]))


@pytest.mark.parametrize(
    "changes",
    [
        {"shared": False},
        {"objective": "neu"},
        {"objective": "true_value"},
        {"gamma": (0.0, 0.0)},
        {"context_length": (1, 1), "windows_per_task": 1, "tasks_per_step": 1},
        {"context_length": (2, 9), "weigh_by_length": True},
        {"families": ("boyan", "representable", "garnet", "loop")},
        {"features": "one_hot", "feature_dim": 6},
        {"features": "random_uniform", "n_states": (2, 3)},
        {"feature_dim": 1, "reward_noise": (0.1, 0.2), "ema_decay": 0.0},
        {"learning_rate": 0.0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_kind_of_run_ends_well(tiny, tmp_path, no_pictures, changes):
    result = pretrain(tiny(n_steps=3, **changes), tmp_path / "run")
    assert result.finished
    assert all(math.isfinite(row["td_loss"]) and math.isfinite(row["kdm_mean"]) for row in result.metrics)
    ICRLAgent.load(tmp_path / "run")


def test_divergence_is_said(tiny, tmp_path, no_pictures):
    config = tiny(learning_rate=1e3, gradient_clip=1e9, n_layers=(40, 40))
    with pytest.raises(ValueError, match=r"diverged.*lower learning_rate"):
        pretrain(config, tmp_path / "run")
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def test_full_disk_ends_the_run_and_resume_goes_on(tiny, tmp_path, monkeypatch, no_pictures, bit_equal, run_content):
    import errno
    import os

    from icrl_agent.train import checkpoint

    folder, calls, real = tmp_path / "run", [], torch.save

    def save(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.torch, "save", save)
        with pytest.raises(OSError, match="No space left"):
            pretrain(tiny(), folder)
    assert torch.load(folder / "checkpoint.pt")["step"] == 3
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]
    assert pretrain(tiny(), folder, resume=True).finished
    pretrain(tiny(), tmp_path / "straight")
    assert bit_equal(run_content(folder), run_content(tmp_path / "straight"))
    shutil.rmtree(folder)
