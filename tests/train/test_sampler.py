"""A batch is a pure function of (config, split, seed, step), and its sums are those of its windows."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from icrl_agent.train import sampler
from icrl_agent.train.sampler import Trajectories, sample_batch, window_sums

RANGES = {
    "n_states": (4, 6),
    "context_length": (3, 9),
    "n_layers": (2, 4),
    "gamma": (0.5, 0.9),
    "reward_noise": (0.0, 0.4),
    "families": ("boyan", "representable", "garnet", "loop", "pairs"),
    "n_actions": (2, 4),
}


def tensors(batch):
    return [*batch.context, *batch[1:-1], torch.tensor(batch.n_layers)]


def equal(one, other):
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(tensors(one), tensors(other), strict=True))


def check_pure(sample, config):
    """The same batch whatever was drawn before, from us or from the global generators, which stay as they were."""
    first = sample(config, "train", 3, 5)
    for other in (("train", 3, 6), ("validation", 3, 5)):
        sample(config, *other)
    np.random.seed(1)  # noqa: NPY002 - the global generator is what is tested
    torch.manual_seed(1)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    again = sample(config, "train", 3, 5)
    assert equal(first, again)
    assert before[0] == np.random.get_state()[1].tolist()  # noqa: NPY002
    assert torch.equal(before[1], torch.get_rng_state())


def check_streams(sample, config):
    """No two of (split, seed, step) give one batch, and no task is in two batches or twice in one."""
    keys = list(itertools.product(("train", "validation", "test"), range(3), range(3)))
    batches = [sample(config, *key) for key in keys]
    for one, other in itertools.combinations(batches, 2):
        assert not equal(one, other)
    tasks = torch.cat([batch.true_values[:, 0] for batch in batches])
    assert len(set(tasks.tolist())) == len(tasks)


class Counting:
    """A generator shared by all calls."""

    def __init__(self):
        self.step = 0

    def __call__(self, config, split, seed, _step):
        self.step += 1
        return sample_batch(config, split, seed, self.step)


def from_global_generator(config, split, _seed, _step):
    return sample_batch(config, split, int(np.random.randint(1 << 30)), 0)  # noqa: NPY002


def one_task_for_all(config, split, seed, step):
    batch = sample_batch(config, split, seed, step)
    return batch._replace(true_values=batch.true_values[:1].expand_as(batch.true_values))


def test_pure(tiny):
    check_pure(sample_batch, tiny(**RANGES))


@pytest.mark.parametrize("double", [Counting(), from_global_generator], ids=["state", "global generator"])
def test_the_purity_check_catches(tiny, double):
    with pytest.raises(AssertionError):
        check_pure(double, tiny(**RANGES))


def test_streams(tiny):
    check_streams(sample_batch, tiny(**RANGES))


@pytest.mark.parametrize(
    "double",
    [
        lambda config, _split, seed, step: sample_batch(config, "train", seed, step),
        lambda config, split, _seed, step: sample_batch(config, split, 0, step),
        lambda config, split, seed, _step: sample_batch(config, split, seed, 0),
        lambda config, split, seed, step: sample_batch(config, split, seed + step, 0),
        one_task_for_all,
    ],
    ids=["split dropped", "seed dropped", "step dropped", "seed plus step", "one task"],
)
def test_the_stream_check_catches(tiny, double):
    with pytest.raises(AssertionError):
        check_streams(double, tiny(**RANGES))


def slow_sums(trajectories, context_length, n_windows, n_states):
    """Walk every window."""
    states, rewards = trajectories
    shape = (len(states), n_windows, n_states)
    counts, reward_sum, successors = np.zeros(shape), np.zeros(shape), np.zeros((*shape, n_states))
    for task in range(len(states)):
        for window in range(n_windows):
            for k in range(window, window + context_length):
                s, s_next = states[task, k], states[task, k + 1]
                counts[task, window, s] += 1
                reward_sum[task, window, s] += rewards[task, k]
                successors[task, window, s, s_next] += 1
    return counts, reward_sum, successors


SIZES = [(1, 1, 3), (1, 5, 3), (4, 1, 3), (4, 4, 3), (30, 7, 8), (3, 20, 8)]


def check_sums(sums, size):
    context_length, n_windows, n_states = size
    rng = np.random.default_rng(0)
    n_steps = context_length + n_windows - 1
    walk = Trajectories(rng.integers(n_states, size=(5, n_steps + 1)), rng.normal(size=(5, n_steps)))
    found, expected = sums(walk, *size), slow_sums(walk, *size)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[2], expected[2])
    # Rounding of at most two additions per transition that ever was in the window, of rewards below 4.
    np.testing.assert_allclose(found[1], expected[1], atol=2 * n_steps * 4 * np.finfo(float).eps, rtol=0)
    assert (found[1][found[0] == 0] == 0).all()


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sums_are_those_of_a_loop(size):
    check_sums(window_sums, size)


def late(walk, *size):
    return slow_sums(Trajectories(np.roll(walk.states, -1, axis=1), walk.rewards), *size)


def never_leaving(walk, context_length, n_windows, n_states):
    every = [slow_sums(walk, context_length + w, 1, n_states) for w in range(n_windows)]
    return tuple(np.concatenate([sums[part] for sums in every], axis=1) for part in range(3))


def reward_of_the_entered_state(walk, *size):
    counts, _, successors = slow_sums(walk, *size)
    return counts, slow_sums(Trajectories(walk.states[:, 1:], walk.rewards), *size)[1], successors


def transposed(walk, *size):
    counts, rewards, successors = slow_sums(walk, *size)
    return counts, rewards, successors.swapaxes(2, 3)


@pytest.mark.parametrize("double", [late, never_leaving, transposed], ids=lambda double: double.__name__)
def test_the_sum_check_catches(double):
    check_sums(slow_sums, (4, 4, 3))
    with pytest.raises(AssertionError):
        check_sums(double, (4, 4, 3))


def check_ranges(sample, config, monkeypatch):
    """Everything drawn lies within its bounds, and the bounds are reached."""
    seen = {
        name: []
        for name in ("n_states", "n_actions", "context_length", "gamma", "n_layers", "reward_noise", "families")
    }
    real_tasks, real_walk = sampler.draw_tasks, sampler.roll_out

    def tasks(rng, family, n_states, n_actions):
        seen["families"].append(family)
        seen["n_states"].extend(n_states.tolist())
        if family == "pairs":
            seen["n_actions"].append(n_actions)
        return real_tasks(rng, family, n_states, n_actions)

    def walk(rng, tasks, n_steps, noise, changes):
        seen["reward_noise"].extend(noise.tolist())
        return real_walk(rng, tasks, n_steps, noise, changes)

    monkeypatch.setattr(sampler, "draw_tasks", tasks)
    monkeypatch.setattr(sampler, "roll_out", walk)
    for step in range(150):
        batch = sample(config, "train", 0, step)
        seen["context_length"].append(int(batch.context.counts[0, 0].sum()))
        assert (batch.context.counts.sum(dim=2) == seen["context_length"][-1]).all()
        seen["gamma"].extend(batch.gamma.flatten().tolist())
        seen["n_layers"].append(batch.n_layers)
        assert batch.query.shape == (config.tasks_per_step, config.windows_per_task + 1)
        assert batch.reward.shape == (config.tasks_per_step, config.windows_per_task)
    for name in ("n_states", "n_actions", "context_length", "n_layers"):
        low, high = getattr(config, name)
        assert set(seen[name]) == set(range(low, high + 1)), name
    for name in ("gamma", "reward_noise"):
        low, high = getattr(config, name)
        # 600 uniform draws leave the outer twentieth of the range empty with probability 4e-14.
        assert low <= min(seen[name]) < low + 0.05 * (high - low), name
        assert high >= max(seen[name]) > high - 0.05 * (high - low), name
    assert set(seen["families"]) == set(config.families)


def test_ranges(tiny, monkeypatch):
    check_ranges(sample_batch, tiny(**RANGES), monkeypatch)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_states": (4, 5)},
        {"n_actions": (2, 3)},
        {"context_length": (3, 10)},
        {"n_layers": (2, 2)},
        {"gamma": (0.5, 0.5)},
        {"reward_noise": (0.0, 0.0)},
        {"families": ("boyan",)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_range_check_catches(tiny, monkeypatch, changes):
    def another(config, split, seed, step):
        return sample_batch(dataclasses.replace(config, **changes), split, seed, step)

    with pytest.raises(AssertionError):
        check_ranges(another, tiny(**RANGES), monkeypatch)


def check_lengths(sample, config, chi_square):
    """Context lengths are even in the logarithm: P(n) = log((n + 1) / n) / log((high + 1) / low)."""
    low, high = config.context_length
    lengths = np.arange(low, high + 1)
    drawn = [int(sample(config, "train", 0, step).context.counts[0, 0].sum()) for step in range(500)]
    observed = np.bincount(drawn, minlength=high + 1)[low:]
    assert chi_square(observed, np.log((lengths + 1) / lengths) / np.log((high + 1) / low)) > 1e-3


def test_context_lengths_are_even_in_the_logarithm(tiny, chi_square):
    config = tiny(context_length=(2, 12), tasks_per_step=1, windows_per_task=1)
    check_lengths(sample_batch, config, chi_square)

    def uniform(config, split, seed, step):
        n = 2 + step % 11
        return sample_batch(dataclasses.replace(config, context_length=(n, n)), split, seed, step)

    with pytest.raises(AssertionError):
        check_lengths(uniform, config, chi_square)
