"""Every prompt of a batch, written out as the literal matrix, gives what the batch's sums give."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from icrl_agent.model import MergedContext, SoftmaxICTD, merged_values
from icrl_agent.train import sampler
from icrl_agent.train.sampler import PromptBatch, Trajectories, sample_batch, window_sums
from icrl_agent.train.tasks import TaskBatch


class Recorded(NamedTuple):
    """A batch with what it was made from, in float64."""

    batch: PromptBatch
    tasks: TaskBatch
    features: np.ndarray
    walk: Trajectories


FAMILIES = ("boyan", "representable", "garnet", "loop", "pairs")
SHAPES = {
    "usual": {},
    "one window": {"windows_per_task": 1},
    "one transition": {"context_length": (1, 1)},
    "long": {"context_length": (40, 40), "tasks_per_step": 2},
    "noisy": {"reward_noise": (0.3, 0.6)},
}


def record(config, step=0):
    made = {}

    def keep(name, function):
        def call(*arguments):
            made[name] = function(*arguments)
            return made[name]

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("draw_tasks", "represent", "draw_features", "roll_out"):
            patch.setattr(sampler, name, keep(name, getattr(sampler, name)))
        batch = sample_batch(config, "train", 0, step)
    tasks = made.get("represent", made["draw_tasks"])
    return Recorded(batch, tasks, made["draw_features"], made["roll_out"])


def random_model(shared=True):
    """Weights nowhere near the theorem's."""
    model = SoftmaxICTD(4, n_layers=4, shared=shared, dtype=torch.float64, seed=1)
    with torch.no_grad():
        model.attention_weight.mul_(40.0)
        model.value_weight.mul_(5.0)
        model.value_weight[:, 6, 4:] += torch.tensor([0.8, 0.6, -0.7], dtype=torch.float64)
    return model


def literal_prompts(recorded, context_length, task):
    """Prompts of one task with every state appended as a query, (W + 1, d + 3, n + 1 + S), and their source masks."""
    states, rewards = recorded.walk.states[task], recorded.walk.rewards[task]
    x = recorded.features[task]
    n_states, n_windows = len(x), recorded.batch.query.shape[1]
    prompts = np.zeros((n_windows, 7, context_length + 1 + n_states))
    for w in range(n_windows):
        for j in range(context_length):
            prompts[w, :4, j] = x[states[w + j]]
            prompts[w, 4, j] = rewards[w + j]
        prompts[w, :4, context_length] = x[states[w + context_length]]
        for s in range(n_states):
            prompts[w, :4, context_length + 1 + s] = x[s]
    sources = np.zeros((n_windows, prompts.shape[2]))
    sources[:, :context_length] = 1
    return torch.tensor(prompts), torch.tensor(sources)


def check_prompts(context_of, recorded, model, depth):
    """Values of all states, of the queries, and gradients, against the literal layers."""
    context_length = int(recorded.batch.context.counts[0, 0].sum())
    gamma = recorded.batch.gamma.double()
    merged = merged_values(model, context_of(recorded), gamma, depth)[-1]
    queries = recorded.batch.query_values(merged)
    coefficients = torch.tensor(np.random.default_rng(0).normal(size=merged.shape))
    literal = []
    for task in range(len(gamma)):
        prompts, sources = literal_prompts(recorded, context_length, task)
        values = model.values(prompts, float(gamma[task]), sources, n_layers=depth)
        np.testing.assert_allclose(
            queries[task].detach(), values[:, context_length].detach(), atol=1e-10, rtol=0, err_msg="query"
        )
        literal.append(values[:, context_length + 1 :])
    expected = torch.stack(literal)
    np.testing.assert_allclose(merged.detach(), expected.detach(), atol=1e-10, rtol=0)
    gradients = []
    for values in (expected, merged):
        model.zero_grad()
        (coefficients * values).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for found, wanted in zip(*gradients, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-10, rtol=1e-10)
    # The softmax over a single source feels no score, so only V is sure to have a gradient.
    assert (gradients[0][1] != 0).any()


def sums_in_float64(recorded):
    counts = recorded.batch.context.counts
    sums = window_sums(recorded.walk, int(counts[0, 0].sum()), counts.shape[1], counts.shape[2])
    return MergedContext(torch.tensor(recorded.features)[:, None], *map(torch.tensor, sums))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_stand_for_the_literal_prompts(tiny, family, shape):
    recorded = record(tiny(families=(family,), **SHAPES[shape]))
    check_prompts(sums_in_float64, recorded, random_model(), recorded.batch.n_layers)


def test_layers_with_weights_of_their_own(tiny):
    recorded = record(tiny(shared=False))
    check_prompts(sums_in_float64, recorded, random_model(shared=False), recorded.batch.n_layers)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_batch_holds_those_sums_in_float32(tiny, shape):
    recorded = record(tiny(**SHAPES[shape]))
    for found, exact in zip(recorded.batch.context, sums_in_float64(recorded), strict=True):
        assert found.dtype == torch.float32
        assert torch.equal(found, exact.float())
    assert torch.equal(recorded.batch.features, torch.tensor(recorded.features).float())


def changed(**changes):
    def context_of(recorded):
        context = sums_in_float64(recorded)
        return context._replace(**{name: change(getattr(context, name)) for name, change in changes.items()})

    return context_of


def shifted_walk(recorded):
    walk = recorded.walk
    states = np.concatenate([walk.states[:, 1:], walk.states[:, :1]], axis=1)
    return sums_in_float64(recorded._replace(walk=Trajectories(states, walk.rewards)))


@pytest.mark.parametrize(
    "double",
    [
        changed(counts=lambda counts: counts.roll(1, dims=1), reward_sum=lambda rewards: rewards.roll(1, dims=1)),
        changed(reward_sum=lambda rewards: rewards.roll(1, dims=1)),
        changed(successors=lambda successors: successors.transpose(2, 3)),
        changed(features=lambda features: features.roll(1, dims=2)),
        changed(features=lambda features: features.roll(1, dims=0)),
        shifted_walk,
    ],
    ids=["window of the next query", "rewards of another window", "transitions transposed", "features shifted",
         "features of another task", "states shifted by one"],
)  # fmt: skip
def test_the_prompt_check_catches(tiny, double):
    recorded = record(tiny())
    with pytest.raises(AssertionError):
        check_prompts(double, recorded, random_model(), recorded.batch.n_layers)


def check_alignment(batch, recorded):
    """Reward w is paid on leaving query w; query w + 1 is where that step led."""
    n = int(recorded.batch.context.counts[0, 0].sum())
    reward = torch.tensor(recorded.tasks.reward).float()
    left = torch.tensor(recorded.walk.states[:, n:-1])
    assert torch.equal(batch.query[:, :-1], left)
    assert torch.equal(batch.query[:, 1:], torch.tensor(recorded.walk.states[:, n + 1 :]))
    assert torch.equal(batch.reward, reward.gather(1, left))
    for task, (queries, transition) in enumerate(zip(batch.query, recorded.tasks.transition, strict=True)):
        for w in range(len(queries) - 1):
            assert transition[queries[w], queries[w + 1]] > 0, (task, w)
            # The transition between two queries is the one that the second prompt has and the first has not.
            gained = batch.context.successors[task, w + 1] - batch.context.successors[task, w]
            assert gained[queries[w], queries[w + 1]] >= 0
            if n > 1 and (gained != 0).any():
                assert gained[queries[w], queries[w + 1]] == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_queries_and_rewards_are_aligned(tiny, family):
    recorded = record(tiny(families=(family,), windows_per_task=12))
    check_alignment(recorded.batch, recorded)


@pytest.mark.parametrize(
    "double",
    [
        lambda batch: batch._replace(reward=batch.reward.roll(1, dims=1)),
        lambda batch: batch._replace(reward=batch.reward.roll(-1, dims=1)),
        lambda batch: batch._replace(query=batch.query.roll(1, dims=1)),
        lambda batch: batch._replace(query=batch.query.flip(1), reward=batch.reward.flip(1)),
        lambda batch: batch._replace(query=batch.query.roll(1, dims=0)),
    ],
    ids=["reward late", "reward early", "query late", "time reversed", "another task's queries"],
)
def test_the_alignment_check_catches(tiny, double):
    recorded = record(tiny(windows_per_task=12))
    with pytest.raises(AssertionError):
        check_alignment(double(recorded.batch), recorded)


def test_noise_is_on_every_reward_and_not_in_the_truth(tiny, chi_square_tail):
    config = tiny(reward_noise=(0.5, 0.5), context_length=(40, 40), windows_per_task=10, tasks_per_step=20)
    recorded = record(config)
    noise = recorded.walk.rewards - np.take_along_axis(recorded.tasks.reward, recorded.walk.states[:, :-1], axis=1)
    statistic = float((noise**2).sum() / 0.5**2)
    assert 1e-3 < chi_square_tail(statistic, noise.size) < 1 - 1e-3
    gamma = recorded.batch.gamma.double().numpy()
    v = recorded.batch.true_values.double().numpy()
    residual = recorded.tasks.reward + gamma * np.einsum("tsu,tu->ts", recorded.tasks.transition, v) - v
    # Values below 10 in float32: half a unit in the last place of each, twice.
    np.testing.assert_allclose(residual, 0.0, atol=2 * 10 * 2.0**-24)
