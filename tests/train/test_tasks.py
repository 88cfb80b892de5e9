"""Structure and exact solutions of the task families."""

from __future__ import annotations

import numpy as np
import pytest

from icrl_agent.envs import TabularMRP, state_values, stationary_distribution
from icrl_agent.train.sampler import roll_out
from icrl_agent.train.tasks import TaskBatch, draw_features, draw_tasks, represent, solve_tasks

FAMILIES = ("boyan", "representable", "garnet", "loop")
SIZES = np.array([2, 3, 4, 7, 7, 10] * 4)


def draw(family, sizes=SIZES, seed=0):
    return draw_tasks(np.random.default_rng(seed), family, sizes)


def check_process(tasks, sizes):
    """Proper probabilities over real states; padding is out of reach and out of the way."""
    width = max(sizes)
    assert tasks.transition.shape == (len(sizes), width, width)
    np.testing.assert_array_equal(tasks.n_states, sizes)
    np.testing.assert_allclose(tasks.transition.sum(axis=2), 1.0, atol=width * np.finfo(float).eps)
    np.testing.assert_allclose(tasks.initial.sum(axis=1), 1.0, atol=width * np.finfo(float).eps)
    assert (tasks.transition >= 0).all()
    for task, n in enumerate(sizes):
        assert (tasks.initial[task, :n] > 0).all()
        assert (tasks.initial[task, n:] == 0).all()
        assert (tasks.reward[task, n:] == 0).all()
        assert (tasks.reward[task, :n] != 0).all()
        assert (tasks.transition[task, :n, n:] == 0).all(), "padding is entered"
        np.testing.assert_array_equal(tasks.transition[task, n:], np.eye(width)[n:])


def check_boyan(P):
    n = len(P)
    for i in range(n - 2):
        assert set(np.flatnonzero(P[i])) == {i + 1, i + 2}
        assert 0.01 <= P[i, i + 1] <= 0.99
    assert P[n - 2].tolist() == [0.0] * (n - 1) + [1.0]
    assert (P[n - 1] > 0).all()
    assert P[n - 1].max() / P[n - 1].min() <= 99 * (1 + 1e-12)


def check_garnet(P, branching=3):
    """Four actions with so many different successors each."""
    successors = (P > 0).sum(axis=1)
    assert ((successors >= branching) & (successors <= min(4 * branching, len(P)))).all()


def check_ring(P):
    n = len(P)
    for i in range(n):
        assert set(np.flatnonzero(P[i])) == {(i + 1) % n, (i - 1) % n}
        if n > 2:
            assert 0.01 <= P[i, (i + 1) % n] <= 0.99


CHECKS = {"boyan": check_boyan, "representable": check_boyan, "garnet": check_garnet, "loop": check_ring}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_task_has_its_family_s_structure(family):
    tasks = draw(family)
    check_process(tasks, SIZES)
    for P, n in zip(tasks.transition, SIZES, strict=True):
        if family == "garnet":  # its branching is limited by the smallest task of the batch
            check_garnet(P[:n, :n], branching=2)
        else:
            CHECKS[family](P[:n, :n])


def test_garnet_successors():
    sizes = np.full(200, 30)
    tasks = draw("garnet", sizes)
    for P in tasks.transition:
        check_garnet(P)
    # Each of 4 actions leaves a state out with probability 27/30; rows of one task are independent.
    number = (tasks.transition > 0).sum(axis=2).reshape(-1)
    expected = 30 * (1 - 0.9**4)
    assert abs(number.mean() - expected) < 4 * number.std() / np.sqrt(number.size)
    narrow = draw("garnet", np.array([10] * 199 + [30])).transition[:-1, :10]
    number = (narrow > 0).sum(axis=2).reshape(-1)
    assert abs(number.mean() - 10 * (1 - 0.7**4)) < 4 * number.std() / np.sqrt(number.size)


@pytest.mark.parametrize("family", ["boyan", "garnet", "loop"])
def test_the_structure_checks_catch(family):
    P = draw(family, np.array([8])).transition[0]
    CHECKS[family](P)
    shifted = np.roll(P, 1, axis=1) if family != "garnet" else np.full((20, 20), 1 / 20)
    with pytest.raises(AssertionError):
        CHECKS[family](shifted)


@pytest.mark.parametrize(
    "double",
    [
        lambda tasks: tasks._replace(transition=np.roll(tasks.transition, 1, axis=0)),
        lambda tasks: tasks._replace(transition=tasks.transition.swapaxes(1, 2)),
        lambda tasks: tasks._replace(initial=np.full_like(tasks.initial, 0.1)),
        lambda tasks: tasks._replace(reward=tasks.reward + 1.0),
    ],
    ids=["another task's table", "transposed", "initial over padding", "padding rewarded"],
)
def test_the_process_check_catches(double):
    with pytest.raises(AssertionError):
        check_process(double(draw("boyan")), SIZES)


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_is_never_entered(family):
    tasks = draw(family)
    walk = roll_out(np.random.default_rng(0), tasks, 300, np.zeros(len(SIZES)))
    assert (walk.states < SIZES[:, None]).all()


class Largest:
    """Random numbers as close to 1 as they come."""

    def random(self, shape):
        return np.full(shape, np.nextafter(1.0, 0.0))

    def standard_normal(self, shape):
        return np.zeros(shape)


class Smallest(Largest):
    def random(self, shape):
        return np.zeros(shape)


@pytest.mark.parametrize("numbers", [Largest(), Smallest()], ids=["largest", "smallest"])
def test_rounding_leads_nowhere_impossible(numbers):
    """Ten times 0.1 sums to less than 1; an impossible successor before or after, and padding, must not be taken."""
    row = np.array([0.0, *[0.1] * 10, 0.0, 0.0])
    assert np.cumsum(row)[-1] < 1
    transition = np.tile(row, (13, 1))
    tasks = TaskBatch(transition[None], np.ones((1, 13)), row[None], np.array([12]))
    walk = roll_out(numbers, tasks, 5, np.zeros(1))
    assert (row[walk.states] > 0).all()


class Recording(np.random.Generator):
    """Keeps what ``uniform`` gave."""

    def __init__(self, seed):
        super().__init__(np.random.PCG64(seed))
        self.given = []

    def uniform(self, *arguments):
        self.given.append(super().uniform(*arguments))
        return self.given[-1]


def test_representable_values_are_linear_in_the_features():
    sizes, gamma = np.array([8, 8, 6]), np.array([0.9, 0.5, 0.0])
    rng = np.random.default_rng(0)
    plain = draw_tasks(rng, "representable", sizes)
    features = draw_features(rng, "random_uniform", 3, 8, 4)
    tasks = represent(rng, plain, features, gamma)
    values, unlike = solve_tasks(tasks, gamma)[0], solve_tasks(plain, gamma)[0]

    def distance(X, v):
        return np.abs(X @ np.linalg.lstsq(X, v)[0] - v).max()

    for task, n in enumerate(sizes):
        # A gamma 0.9 system amplifies rounding by at most (1 + gamma) / (1 - gamma) = 19.
        assert distance(features[task, :n], values[task, :n]) < 1e-12
        assert distance(features[task, :n], unlike[task, :n]) > 1e-3
        assert (tasks.reward[task, n:] == 0).all()
    assert distance(features[0], solve_tasks(tasks, np.full(3, 0.7))[0][0]) > 1e-3


def check_solution(solve, family):
    """Bellman's equation, mu P = mu, and the single-task solver."""
    tasks = draw(family)
    gamma = np.random.default_rng(1).uniform(0.0, 0.95, len(SIZES))
    values, mu = solve(tasks, gamma)
    residual = tasks.reward + gamma[:, None] * np.einsum("tsu,tu->ts", tasks.transition, values) - values
    np.testing.assert_allclose(residual, 0.0, atol=1e-12)
    np.testing.assert_allclose(mu.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.einsum("ts,tsu->tu", mu, tasks.transition), mu, atol=1e-10)
    for task, n in enumerate(SIZES):
        P = tasks.transition[task, :n, :n]
        start = tasks.initial[task, :n]
        mrp = TabularMRP(P, tasks.reward[task, :n], start, np.zeros(n, bool))
        np.testing.assert_allclose(values[task, :n], state_values(mrp, float(gamma[task])), atol=1e-11)
        if np.linalg.matrix_rank(np.eye(n) - P, tol=1e-9) == n - 1:
            np.testing.assert_allclose(mu[task, :n], stationary_distribution(mrp), atol=1e-9)
        assert (values[task, n:] == 0).all()
        assert (mu[task, n:] == 0).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_solutions(family):
    check_solution(solve_tasks, family)


@pytest.mark.parametrize(
    "double",
    [
        lambda tasks, gamma: solve_tasks(tasks._replace(transition=tasks.transition.swapaxes(1, 2)), gamma),
        lambda tasks, gamma: (solve_tasks(tasks, gamma[::-1])[0], solve_tasks(tasks, gamma)[1]),
        lambda tasks, gamma: (solve_tasks(tasks, gamma)[0], tasks.initial),
        lambda tasks, gamma: (solve_tasks(tasks, gamma)[0], np.einsum("ts,tsu->tu", tasks.initial, tasks.transition)),
    ],
    ids=["transposed", "another task's gamma", "initial distribution", "one step"],
)
def test_the_solution_check_catches(double):
    with pytest.raises(AssertionError):
        check_solution(double, "boyan")


def test_several_closed_classes_get_the_long_run_distribution():
    """Half of the start goes to each of two absorbing parts, one of them with a period."""
    P = np.zeros((1, 4, 4))
    P[0, 0, [1, 2]] = 0.5
    P[0, 1, 1] = P[0, 2, 3] = P[0, 3, 2] = 1.0
    tasks = TaskBatch(P, np.ones((1, 4)), np.eye(4)[:1], np.array([4]))
    np.testing.assert_allclose(solve_tasks(tasks, np.array([0.5]))[1], [[0.0, 0.5, 0.25, 0.25]], atol=1e-9)


def test_feature_kinds():
    rng = np.random.default_rng(0)
    unit = draw_features(rng, "random_unit", 3, 5, 7)
    assert unit.shape == (3, 5, 7)
    np.testing.assert_allclose((unit**2).sum(axis=2), 1.0, atol=1e-14)
    uniform = draw_features(rng, "random_uniform", 3, 500, 4)
    assert -1 <= uniform.min() < -0.99
    assert 0.99 < uniform.max() <= 1
    fourier = draw_features(rng, "random_fourier", 50, 12, 64)
    np.testing.assert_allclose(np.linalg.norm(fourier, axis=2), 1.0, atol=1e-12)
    # Inner products are means of 50 x 32 cosines around the Gaussian kernel exp(-distance^2 / 2).
    gram = np.einsum("tsd,tud->tsu", fourier, fourier).mean(axis=0)
    distance = np.arange(12)[:, None] - np.arange(12)
    assert np.abs(gram - np.exp(-(distance**2) / 2)).max() < 5 / np.sqrt(50 * 32)
    assert np.abs(gram - np.exp(-(distance**2))).max() > 5 / np.sqrt(50 * 32)
    one_hot = draw_features(rng, "one_hot", 2, 3, 5)
    assert one_hot.tolist() == [[[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]]] * 2
    for features in (unit, uniform):
        assert len(np.unique(features[:, 0, 0])) == 3, "features are redrawn per task"
    with pytest.raises(ValueError, match="one_hot features of 6 states need feature_dim of at least that, got 5"):
        draw_features(rng, "one_hot", 2, 6, 5)
