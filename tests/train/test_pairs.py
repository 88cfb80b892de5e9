"""The family of state-action pairs: its tables, policies that change, features, and the batches made of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from icrl_agent.envs import TabularMDP, state_values
from icrl_agent.features import PairFeatures, Table
from icrl_agent.train import tasks as tasks_module
from icrl_agent.train.pairs import LEAST_SHARPNESS, MOST_EPSILON, MOST_SHARPNESS, random_policies
from icrl_agent.train.sampler import draw_changes, roll_out, sample_batch
from icrl_agent.train.tasks import N_POLICIES, TaskBatch, draw_features, draw_tasks, solve_tasks

SIZES, N_ACTIONS = np.array([3, 5, 4, 5, 2]), 3


class Drawn(NamedTuple):
    """Tasks with what they were made from."""

    tasks: TaskBatch
    by_action: np.ndarray
    policies: np.ndarray


def draw(seed=0, sizes=SIZES):
    made = {}

    def keep(name, function):
        def call(*arguments):
            made[name] = function(*arguments)
            return made[name]

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("garnet_tables", "random_policies"):
            patch.setattr(tasks_module, name, keep(name, getattr(tasks_module, name)))
        tasks = draw_tasks(np.random.default_rng(seed), "pairs", sizes, N_ACTIONS)
    return Drawn(tasks, made["garnet_tables"], made["random_policies"])


def slow_table(by_action, policy):
    """P((s, a), (s', a')) = p(s' | s, a) pi(a' | s'), pair by pair."""
    n_states, n_actions, _ = by_action.shape
    table = np.zeros((n_states * n_actions, n_states * n_actions))
    for s in range(n_states):
        for a in range(n_actions):
            for s_next in range(n_states):
                for a_next in range(n_actions):
                    table[s * n_actions + a, s_next * n_actions + a_next] = (
                        by_action[s, a, s_next] * policy[s_next, a_next]
                    )
    return table


def check_tables(drawn):
    """Every table of every task against the loop; padding is out of reach; values against the decision process's."""
    tasks, by_action, policies = drawn
    tables = [*tasks.earlier, tasks.transition]
    assert len(tables) == len(policies) == N_POLICIES
    np.testing.assert_array_equal(tasks.n_states, SIZES * N_ACTIONS)
    gamma = np.linspace(0.5, 0.9, len(SIZES))
    values, _ = solve_tasks(tasks, gamma)
    for task, n in enumerate(SIZES):
        m = n * N_ACTIONS
        for table, policy in zip(tables, policies, strict=True):
            np.testing.assert_array_equal(table[task, :m, :m], slow_table(by_action[task, :n, :, :n], policy[task, :n]))
            np.testing.assert_array_equal(table[task, m:], np.eye(table.shape[1])[m:])
            assert (table[task, :m, m:] == 0).all()
            np.testing.assert_allclose(table[task].sum(axis=1), 1.0, atol=m * np.finfo(float).eps)
        reward = tasks.reward[task, :m].reshape(n, N_ACTIONS)
        assert len(set(reward.ravel())) == m
        assert np.abs(reward).max() <= 1
        assert (tasks.reward[task, m:] == 0).all()
        mdp = TabularMDP(by_action[task, :n, :, :n], reward, np.full(n, 1 / n))
        v = state_values(mdp.policy_mrp(policies[-1][task, :n]), float(gamma[task]))
        # Backward error of a solve of m equations, times the condition number (1 + gamma) / (1 - gamma) < 20.
        np.testing.assert_allclose(
            values[task, :m].reshape(n, N_ACTIONS),
            reward + gamma[task] * by_action[task, :n, :, :n] @ v,
            atol=20 * m * np.finfo(float).eps * 10,
        )


def test_tables_are_those_of_a_loop():
    check_tables(draw())


def swapped(table):
    """Pairs counted as a * S + s."""
    n_tasks, size, _ = table.shape
    shape = (n_tasks, size // N_ACTIONS, N_ACTIONS, size // N_ACTIONS, N_ACTIONS)
    return table.reshape(shape).transpose(0, 2, 1, 4, 3).reshape(table.shape)


DOUBLES = {
    "actions before states": lambda d: d._replace(tasks=d.tasks._replace(transition=swapped(d.tasks.transition))),
    "transposed": lambda d: d._replace(tasks=d.tasks._replace(transition=d.tasks.transition.swapaxes(1, 2))),
    "first policy at the end": lambda d: d._replace(
        tasks=d.tasks._replace(transition=d.tasks.earlier[0], earlier=(*d.tasks.earlier[1:], d.tasks.transition))
    ),
    "a policy forgotten": lambda d: d._replace(tasks=d.tasks._replace(earlier=d.tasks.earlier[1:])),
    "reward by state": lambda d: d._replace(
        tasks=d.tasks._replace(reward=np.repeat(d.tasks.reward[:, ::N_ACTIONS], N_ACTIONS, axis=1))
    ),
    "another task's policy": lambda d: d._replace(policies=np.roll(d.policies, 1, axis=1)),
}


@pytest.mark.parametrize("double", DOUBLES)
def test_the_table_check_catches(double):
    with pytest.raises(AssertionError):
        check_tables(DOUBLES[double](draw()))


def check_policies(policies):
    """Probabilities with at least epsilon / A each, nearly uniform ones and nearly greedy ones among them."""
    n_actions = policies.shape[3]
    np.testing.assert_allclose(policies.sum(axis=3), 1.0, atol=n_actions * np.finfo(float).eps)
    assert policies.min() > 0
    greediest = policies.max(axis=3).mean(axis=2).ravel()
    assert greediest.min() < 1 / n_actions + 0.15
    # A greedy policy mixed with epsilon: 1 - epsilon (A - 1) / A, at most.
    assert 1 - 0.1 * MOST_EPSILON < greediest.max() < 1
    assert 0.5 < np.median(greediest) < 0.95


def test_policies():
    check_policies(random_policies(np.random.default_rng(0), 4, 200, 6, 3))


@pytest.mark.parametrize(
    "double",
    [
        lambda policies: 0.5 * policies,
        lambda policies: np.full_like(policies, 1 / 3),
        lambda policies: policies == policies.max(axis=3, keepdims=True),
    ],
    ids=["not normalised", "all uniform", "all greedy"],
)
def test_the_policy_check_catches(double):
    with pytest.raises(AssertionError):
        check_policies(double(random_policies(np.random.default_rng(0), 4, 200, 6, 3)))


def test_policies_follow_their_formula():
    """With scores all 1 or 0 the two probabilities of a state give sharpness and epsilon back."""

    class OneScore(np.random.Generator):
        def standard_normal(self, shape):
            return np.broadcast_to(np.array([1.0, 0.0]), shape)

    policies = random_policies(OneScore(np.random.PCG64(0)), 2, 300, 1, 2)
    rng = np.random.default_rng(0)
    sharpness = np.exp(rng.uniform(np.log(LEAST_SHARPNESS), np.log(MOST_SHARPNESS), (2, 300)))
    epsilon = rng.uniform(0.0, MOST_EPSILON, (2, 300))
    expected = epsilon / 2 + (1 - epsilon) / (1 + np.exp(-sharpness))
    np.testing.assert_allclose(policies[:, :, 0, 0], expected, atol=4 * np.finfo(float).eps)


COPIES, N_STEPS, CHANGES = 3000, 16, np.array([3, 3, 9])


def check_walk(walk):
    """Transitions of one task walked many times, phase by phase, against that phase's table.

    Sums of random functions f(u, u') minus their expectations given u are martingales: standard normal over their
    standard deviation, beyond 5 once in 30,000 runs of this check.
    """
    tasks = draw(sizes=np.array([4])).tasks
    many = TaskBatch(
        *(np.repeat(part, COPIES, axis=0) for part in tasks[:4]),
        tuple(np.repeat(table, COPIES, axis=0) for table in tasks.earlier),
    )
    states, rewards = walk(np.random.default_rng(1), many, N_STEPS, np.zeros(COPIES), CHANGES)
    np.testing.assert_array_equal(rewards, tasks.reward[0][states[:, :-1]])
    bounds = [0, *CHANGES, N_STEPS]
    f = np.random.default_rng(2).standard_normal((20, *tasks.transition[0].shape))
    for (table,), first, last in zip([*tasks.earlier, tasks.transition], bounds[:-1], bounds[1:], strict=True):
        left, entered = states[:, first:last], states[:, first + 1 : last + 1]
        assert (table[left, entered] > 0).all()
        mean = (table * f).sum(axis=2)
        variance = (table * f**2).sum(axis=2) - mean**2
        if last > first:
            surplus = (f[:, left, entered] - mean[:, left]).sum(axis=(1, 2))
            assert np.abs(surplus / np.sqrt(variance[:, left].sum(axis=(1, 2)))).max() < 5


def test_trajectories_follow_one_policy_after_the_other():
    check_walk(roll_out)


@pytest.mark.parametrize(
    "double",
    [
        lambda rng, tasks, n, noise, changes: roll_out(rng, tasks, n, noise, changes + 1),
        lambda rng, tasks, n, noise, changes: roll_out(rng, tasks._replace(earlier=()), n, noise),
        lambda rng, tasks, n, noise, changes: roll_out(
            rng, tasks._replace(earlier=tasks.earlier[::-1]), n, noise, changes
        ),
    ],
    ids=["a step late", "last policy from the start", "policies in reverse"],
)
def test_the_walk_check_catches(double):
    with pytest.raises(AssertionError):
        check_walk(double)


def test_the_last_policy_acts_from_the_first_query_on():
    tasks = draw().tasks
    changes = np.array([draw_changes(np.random.default_rng(seed), tasks, 7) for seed in range(300)])
    assert changes.shape == (300, N_POLICIES - 1)
    assert (np.diff(changes, axis=1) >= 0).all()
    assert (changes.min(), changes.max()) == (0, 6)


def check_features(features_of):
    """Inner products of ``PairFeatures`` over the same states: equal for equal actions, small for different ones."""
    n_states, dim, n_tasks = 6, 64, 40
    x = features_of(n_tasks, n_states, dim).reshape(n_tasks, n_states, N_ACTIONS, dim)
    gram = np.einsum("tsad,tubd->tabsu", x, x)
    of_states = gram[:, 0, 0]
    ours, theirs = [], []
    for task in range(n_tasks):
        pairs = PairFeatures(Table(x[task, :, 0]), N_ACTIONS, seed=task)
        other = np.einsum("sad,ubd->absu", *[pairs.of_all_actions(np.arange(n_states)[:, None])] * 2)
        for a in range(N_ACTIONS):
            np.testing.assert_allclose(gram[task, a, a], other[a, a], atol=dim * np.finfo(float).eps)
            np.testing.assert_allclose(gram[task, a, a], of_states[task], atol=dim * np.finfo(float).eps)
        different = ~np.eye(N_ACTIONS, dtype=bool)
        ours.append(gram[task][different])
        theirs.append(other[different])
    for products in (np.array(ours), np.array(theirs)):
        # About N(0, 1/d); all tasks share the turns, but two states' directions are new in each.
        assert abs(products.std() * np.sqrt(dim) - 1) < 0.1
        assert abs(products.mean()) * np.sqrt(dim) < 0.1
    assert np.abs(of_states[:, 0, 1]).min() < np.abs(of_states[:, 0, 1]).max() < 0.6
    assert len(np.unique(of_states[:, 0, 1])) == n_tasks, "features are redrawn per task"


def drawn_features(n_tasks, n_states, dim):
    return draw_features(np.random.default_rng(0), "random_unit", n_tasks, n_states, dim, N_ACTIONS)


def with_order_swapped(n_tasks, n_states, dim):
    x = drawn_features(n_tasks, n_states, dim).reshape(n_tasks, n_states, N_ACTIONS, dim)
    return x.swapaxes(1, 2).reshape(n_tasks, -1, dim)


def unturned(n_tasks, n_states, dim):
    return np.repeat(drawn_features(n_tasks, n_states, dim)[:, ::N_ACTIONS], N_ACTIONS, axis=1)


def without_structure(n_tasks, n_states, dim):
    return draw_features(np.random.default_rng(0), "random_unit", n_tasks, n_states * N_ACTIONS, dim)


def test_features_have_the_inner_products_of_pair_features():
    check_features(drawn_features)


@pytest.mark.parametrize("double", [with_order_swapped, unturned, without_structure], ids=lambda f: f.__name__)
def test_the_feature_check_catches(double):
    with pytest.raises(AssertionError):
        check_features(double)


def test_batches_are_pure_and_the_turns_are_new_in_each(tiny):
    config = tiny(families=("pairs",), n_actions=(2, 4), feature_dim=8)
    one, again, other = (sample_batch(config, "train", 3, step) for step in (5, 5, 6))
    assert all(
        torch.equal(a, b) for a, b in zip([*one.context, *one[1:-1]], [*again.context, *again[1:-1]], strict=True)
    )
    assert one.features.shape != other.features.shape or not torch.equal(one.features, other.features)
    gram = [torch.einsum("tsd,tud->tsu", batch.features, batch.features)[0, 0, 1] for batch in (one, other)]
    assert gram[0] != gram[1]


def test_the_number_of_actions_is_nothing_to_other_families(tiny):
    for family in ("boyan", "representable", "garnet", "loop"):
        plain, changed = (
            sample_batch(tiny(families=(family,), n_actions=n_actions), "train", 0, 1) for n_actions in ((2, 2), (3, 9))
        )
        assert torch.equal(plain.true_values, changed.true_values)
        assert torch.equal(plain.reward, changed.reward)
        assert torch.equal(plain.features, changed.features)
