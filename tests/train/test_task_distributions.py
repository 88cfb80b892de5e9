"""Batched tasks have the distribution of the single-task environments, and trajectories that of their tables."""

from __future__ import annotations

import numpy as np
import pytest

from icrl_agent.envs.tasks import random_boyan_chain
from icrl_agent.train.sampler import Trajectories, roll_out
from icrl_agent.train.tasks import TaskBatch, draw_tasks

N_STATES, N_TASKS, P_VALUE = 6, 600, 1e-3


@pytest.fixture(scope="module")
def single_tasks():
    """The numbers that describe chains of the environment."""
    return describe([random_boyan_chain(N_STATES, seed)[0] for seed in range(N_TASKS)])


def describe(chains):
    """Independent samples of what is random about a chain, by name."""
    P = np.array([chain.transition.reshape(N_STATES, N_STATES) for chain in chains])
    reward = np.array([np.ravel(chain.reward) for chain in chains])
    initial = np.array([chain.initial for chain in chains])
    return {
        "first step": P[:, 0, 1],
        "last inner step": P[:, N_STATES - 3, N_STATES - 2],
        "jump to the first": P[:, -1, 0],
        "jump to itself": P[:, -1, -1],
        "largest jump": P[:, -1].max(axis=1),
        "reward": reward[:, 2],
        "sum of rewards": reward.sum(axis=1),
        "initial": initial[:, 3],
        "smallest initial": initial.min(axis=1),
    }


class Chain:
    def __init__(self, tasks, k):
        self.transition, self.reward, self.initial = tasks.transition[k], tasks.reward[k], tasks.initial[k]


def check_distribution(draw, single_tasks, kolmogorov_smirnov, sizes):
    tasks = draw(np.random.default_rng(5), "boyan", sizes)
    chains = [
        Chain(TaskBatch(*(part[..., :N_STATES] for part in tasks[:3]), tasks.n_states), k)
        for k in range(len(sizes))
        if sizes[k] == N_STATES
    ]
    for chain in chains:
        chain.transition = chain.transition[:N_STATES]
    ours = describe(chains)
    p_values = {name: kolmogorov_smirnov(sample, ours[name]) for name, sample in single_tasks.items()}
    assert min(p_values.values()) > P_VALUE, p_values
    # 2400 draws of U(0.01, 0.99); those of U(0, 1) would all lie inside with probability 1e-21.
    inner = np.concatenate([chain.transition[range(N_STATES - 2), range(1, N_STATES - 1)] for chain in chains])
    assert 0.01 <= inner.min() < 0.02
    assert 0.98 < inner.max() <= 0.99


@pytest.mark.parametrize("wider", [0, 200], ids=["one size", "beside larger ones"])
def test_boyan_parameters(single_tasks, kolmogorov_smirnov, wider):
    check_distribution(draw_tasks, single_tasks, kolmogorov_smirnov, np.array([N_STATES] * N_TASKS + [9] * wider))


def with_rewards_halved(rng, family, sizes):
    tasks = draw_tasks(rng, family, sizes)
    return tasks._replace(reward=0.5 * tasks.reward)


def uniform_start(rng, family, sizes):
    tasks = draw_tasks(rng, family, sizes)
    return tasks._replace(initial=np.full_like(tasks.initial, 1 / N_STATES))


def steps_from_unit_interval(rng, family, sizes):
    tasks = draw_tasks(rng, family, sizes)
    state = np.arange(N_STATES - 2)
    p = rng.random((len(sizes), N_STATES - 2))
    transition = tasks.transition.copy()
    transition[:, state, state + 1], transition[:, state, state + 2] = p, 1 - p
    return tasks._replace(transition=transition)


def jumps_not_normalised_from_uniform(rng, family, sizes):
    tasks = draw_tasks(rng, family, sizes)
    transition = tasks.transition.copy()
    transition[:, -1] = rng.dirichlet(np.ones(N_STATES), len(sizes))
    return tasks._replace(transition=transition)


@pytest.mark.parametrize(
    "double",
    [with_rewards_halved, uniform_start, steps_from_unit_interval, jumps_not_normalised_from_uniform],
    ids=lambda double: double.__name__,
)
def test_the_distribution_check_catches(single_tasks, kolmogorov_smirnov, double):
    with pytest.raises(AssertionError):
        check_distribution(double, single_tasks, kolmogorov_smirnov, np.array([N_STATES] * N_TASKS))


def check_walk(walk, chi_square):
    """First states against the initial distribution, transitions against the table, of one task walked many times."""
    table = draw_tasks(np.random.default_rng(2), "boyan", np.array([5, 7]))
    copies = 6000
    tasks = TaskBatch(*(np.repeat(part[:1], copies, axis=0) for part in table))
    states = walk(np.random.default_rng(3), tasks, 25, np.zeros(copies)).states
    assert states.shape == (copies, 26)
    assert chi_square(np.bincount(states[:, 0], minlength=7), table.initial[0]) > P_VALUE
    moves = np.zeros((7, 7))
    np.add.at(moves, (states[:, :-1].ravel(), states[:, 1:].ravel()), 1)
    assert chi_square(moves[:5, :5], table.transition[0, :5, :5]) > P_VALUE
    assert (moves[5:] == 0).all()
    # Copies walk on their own: two of them together have the product of what each has.
    later = (table.initial[0] @ np.linalg.matrix_power(table.transition[0], 9))[:5]
    together = np.zeros((5, 5))
    np.add.at(together, (states[::2, 9], states[1::2, 9]), 1)
    assert chi_square(together.ravel(), np.outer(later, later).ravel()) > P_VALUE


def test_trajectories_follow_the_table(chi_square):
    check_walk(roll_out, chi_square)


def in_step(rng, tasks, n_steps, noise):
    """All copies use one random number."""
    states = roll_out(rng, tasks, n_steps, noise).states
    return Trajectories(np.repeat(states[:1], len(states), axis=0), noise)


def backwards(rng, tasks, n_steps, noise):
    return Trajectories(roll_out(rng, tasks, n_steps, noise).states[:, ::-1], noise)


def starting_in_state_0(rng, tasks, n_steps, noise):
    start = np.eye(tasks.initial.shape[1])[np.zeros(len(noise), int)]
    return roll_out(rng, tasks._replace(initial=start), n_steps, noise)


def nearly_the_table(rng, tasks, n_steps, noise):
    """A fiftieth of the steps goes to the state itself."""
    return roll_out(
        rng, tasks._replace(transition=0.98 * tasks.transition + 0.02 * tasks.transition[:, -3:-2]), n_steps, noise
    )


@pytest.mark.parametrize(
    "double", [in_step, backwards, starting_in_state_0, nearly_the_table], ids=lambda double: double.__name__
)
def test_the_walk_check_catches(chi_square, double):
    with pytest.raises(AssertionError):
        check_walk(double, chi_square)
