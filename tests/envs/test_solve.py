"""Exact values and stationary distributions against the equations that define them, and against simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from icrl_agent.envs import (
    NoUniqueSolution,
    TabularMDP,
    TabularMRP,
    classic_boyan_chain,
    random_boyan_chain,
    state_values,
    stationary_distribution,
)

FloatArray = NDArray[np.float64]
Solver = Callable[[TabularMRP, float], FloatArray]
Family = Callable[[int], TabularMRP]


def process(transition: object, reward: object = None, initial: object = None, terminal: object = None) -> TabularMRP:
    n = len(np.asarray(transition))
    first = np.eye(n)[0] if initial is None else initial
    return TabularMDP(transition, np.ones(n) if reward is None else reward, first, terminal).policy_mrp()


def check_bellman(solve: Solver, mrp: TabularMRP, gamma: float) -> None:
    """v(s) = r(s) + gamma sum_s' P(s, s') v(s') in plain loops, and 0 where the episode is over."""
    v = solve(mrp, gamma).tolist()
    for s in range(mrp.n_states):
        if mrp.terminal[s]:
            assert v[s] == 0.0
        else:
            backup = mrp.reward[s] + gamma * sum(p * x for p, x in zip(mrp.transition[s].tolist(), v, strict=True))
            assert abs(v[s] - backup) < 1e-10


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99])
def test_values_solve_the_bellman_equation(mrp_family: Family, gamma: float) -> None:
    for seed in range(40):
        check_bellman(state_values, mrp_family(seed), gamma)


@pytest.mark.parametrize(
    "double",
    [
        lambda mrp, gamma: state_values(mrp, gamma * 0.99),
        lambda mrp, gamma: np.roll(state_values(mrp, gamma), 1),
        lambda mrp, gamma: mrp.transition @ state_values(mrp, gamma),  # the reward of the state that is entered
        lambda mrp, gamma: state_values(mrp, gamma) + mrp.terminal,
    ],
    ids=["another gamma", "shifted by one state", "one step late", "terminal states worth 1"],
)
def test_bellman_check_catches_wrong_values(double: Solver) -> None:
    with pytest.raises(AssertionError):
        check_bellman(double, classic_boyan_chain().policy_mrp(), 0.9)


def test_undiscounted_values_of_episodic_tasks() -> None:
    check_bellman(state_values, classic_boyan_chain().policy_mrp(), 1.0)
    assert np.abs(state_values(classic_boyan_chain().policy_mrp(), 1.0) + 2 * np.arange(13)).max() < 1e-12
    # Gambler's ruin on 0..N with reward 1 per step lasts i (N - i) steps.
    n = 9
    walk = np.zeros((n + 1, n + 1))
    for i in range(1, n):
        walk[i, [i - 1, i + 1]] = 0.5
    walk[[0, n], [0, n]] = 1.0
    ends = np.isin(np.arange(n + 1), [0, n])
    values = state_values(process(walk, initial=np.eye(n + 1)[1], terminal=ends), 1.0)
    assert np.abs(values - [i * (n - i) for i in range(n + 1)]).max() < 1e-10


def test_gamma_0_gives_the_rewards(mrp_family: Family) -> None:
    mrp = mrp_family(1)
    assert state_values(mrp, 0).tolist() == mrp.reward.tolist()


@pytest.mark.parametrize("gamma", [1, 1.0, np.float32(1.0)])
def test_gamma_1_needs_certain_termination(gamma: float) -> None:
    with pytest.raises(NoUniqueSolution, match="gamma 1 needs certain termination, but state 0 never"):
        state_values(random_boyan_chain()[0].policy_mrp(), gamma)
    one_trap = process([[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], terminal=np.array([False, False, True]))
    with pytest.raises(NoUniqueSolution, match="state 1 never"):
        state_values(one_trap, gamma)
    assert issubclass(NoUniqueSolution, ValueError)


@pytest.mark.parametrize("gamma", [-0.1, 1.0001, math.nan, math.inf, "0.9", None, True, [0.9]])
def test_gamma_outside_the_unit_interval_is_refused(gamma: object) -> None:
    with pytest.raises(ValueError, match=r"gamma must be a number in \[0, 1\], got ") as error:
        state_values(process(np.eye(2)), gamma)  # type: ignore[arg-type]
    assert repr(gamma) in str(error.value)


def check_stationary(solve: Callable[[TabularMRP], FloatArray], mrp: TabularMRP) -> None:
    """mu P = mu for the process that restarts from ``initial``; rounding of S products is far below 1e-12."""
    mu, n = solve(mrp), mrp.n_states
    assert mu.min() >= 0
    assert abs(mu.sum() - 1) < 1e-12
    assert not mu[mrp.terminal].any()
    for t in np.flatnonzero(~mrp.terminal):
        arrives = sum(mu[s] * mrp.transition[s, t] for s in range(n))
        ends = sum(mu[s] * mrp.transition[s, e] for s in range(n) for e in np.flatnonzero(mrp.terminal))
        assert abs(arrives + ends * mrp.initial[t] - mu[t]) < 1e-12


def test_stationary_distribution_is_left_unchanged_by_a_step(mrp_family: Family) -> None:
    for seed in range(25):
        check_stationary(stationary_distribution, mrp_family(seed))


@pytest.mark.parametrize(
    "double",
    [
        lambda mrp: np.full(mrp.n_states, 1 / mrp.n_states),
        lambda mrp: mrp.initial,
        lambda mrp: np.roll(stationary_distribution(mrp), -1),
        lambda mrp: 0.9 * stationary_distribution(mrp) + 0.1 * mrp.terminal,  # the restart counted as a step
    ],
    ids=["uniform", "initial", "shifted by one state", "mass on the end"],
)
def test_stationary_check_catches_wrong_distributions(double: Callable[[TabularMRP], FloatArray]) -> None:
    with pytest.raises(AssertionError):
        check_stationary(double, classic_boyan_chain().policy_mrp())


TWO_CLASSES = [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 1.0], [0, 0, 1.0, 0]]
TRANSIENT_BETWEEN_TWO = [[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize("transition", [np.eye(3), TWO_CLASSES, TRANSIENT_BETWEEN_TWO])
def test_several_closed_classes_have_no_unique_distribution(transition: object) -> None:
    with pytest.raises(NoUniqueSolution, match="not unique: the process has more than one closed class"):
        stationary_distribution(process(transition))


HAND_MADE = {
    "2-cycle": (process([[0.0, 1.0], [1.0, 0.0]]), [0.5, 0.5]),
    "3-cycle": (process([[0, 1.0, 0], [0, 0, 1.0], [1.0, 0, 0]]), [1 / 3, 1 / 3, 1 / 3]),
    "one state": (process([[1.0]]), [1.0]),
    "transient and unreachable states": (
        process([[0, 1.0, 0, 0], [0, 0, 1.0, 0], [0, 1.0, 0, 0], [1.0, 0, 0, 0]]),
        [0, 0.5, 0.5, 0],
    ),
    "unequal": (process([[0.9, 0.1], [0.3, 0.7]]), [0.75, 0.25]),
    "episode of two steps": (
        process([[0, 1.0, 0], [0, 0, 1.0], [0, 0, 1.0]], terminal=np.array([False, False, True])),
        [0.5, 0.5, 0],
    ),
}


@pytest.mark.parametrize(("mrp", "mu"), HAND_MADE.values(), ids=HAND_MADE)
def test_stationary_distributions_known_by_hand(mrp: TabularMRP, mu: list[float]) -> None:
    assert np.abs(stationary_distribution(mrp) - mu).max() < 1e-12
    assert [x == 0 for x in stationary_distribution(mrp)] == [x == 0 for x in mu]


def _simulate_visits(mrp: TabularMRP, n_episodes: int, seed: int) -> NDArray[np.int64]:
    """Visits per episode (n_episodes, S) of the states that are left."""
    rng = np.random.default_rng(seed)
    states = rng.choice(mrp.n_states, size=n_episodes, p=mrp.initial)
    visits = np.zeros((n_episodes, mrp.n_states), np.int64)
    alive = np.arange(n_episodes)
    while len(alive):
        visits[alive, states[alive]] += 1
        for s in np.unique(states[alive]):
            here = alive[states[alive] == s]
            if not mrp.terminal[s]:
                states[here] = -1 - rng.choice(mrp.n_states, size=len(here), p=mrp.transition[s])
        states[alive] = -1 - states[alive]
        alive = alive[~mrp.terminal[states[alive]]]
    return visits


def check_against_simulation(mu: FloatArray, mrp: TabularMRP) -> None:
    """Share of steps in s = ratio of means over independent episodes; 5 standard errors (delta method), 13 states:
    a correct mu fails with probability below 13 * 6e-7."""
    visits = _simulate_visits(mrp, n_episodes=20_000, seed=11)
    lengths = visits.sum(axis=1)
    share = visits.sum(axis=0) / lengths.sum()
    residuals = visits - lengths[:, None] * share
    stderr = residuals.std(axis=0, ddof=1) / np.sqrt(len(visits)) / lengths.mean()
    assert (np.abs(share - mu) <= 5 * stderr + 1e-12).all()


def test_episodic_restart_agrees_with_simulation() -> None:
    mrp = classic_boyan_chain().policy_mrp()
    mu = stationary_distribution(mrp)
    check_against_simulation(mu, mrp)
    restart_takes_a_step = np.append(0.1, 0.9 * mu[1:])  # the end counted as one of about 10 states
    with pytest.raises(AssertionError):
        check_against_simulation(restart_takes_a_step, mrp)


def check_monte_carlo(values: FloatArray, mrp: TabularMRP, gamma: float, start: int) -> None:
    """Mean return of 4000 runs within 5 of its own standard errors; runs are cut where gamma^t < 1e-9."""
    rng = np.random.default_rng(17)
    cumulative = np.cumsum(mrp.transition, axis=1)
    states, returns, weight = np.full(4000, start), np.zeros(4000), 1.0
    while weight > 1e-9 and not mrp.terminal[states].all():
        returns += weight * np.where(mrp.terminal[states], 0.0, mrp.reward[states])
        draws = rng.random((4000, 1))
        states = np.minimum((cumulative[states] <= draws).sum(axis=1), mrp.n_states - 1)
        weight *= gamma
    stderr = returns.std(ddof=1) / np.sqrt(len(returns))
    assert abs(returns.mean() - values[start]) <= 5 * stderr + 1e-7


@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_values_agree_with_monte_carlo_returns(mrp_family: Family, gamma: float) -> None:
    mrp = mrp_family(2)
    values = state_values(mrp, gamma)
    for start in np.flatnonzero(mrp.initial)[:2]:
        check_monte_carlo(values, mrp, gamma, int(start))


def test_monte_carlo_check_catches_the_reward_of_the_wrong_step() -> None:
    mrp = random_boyan_chain(task_seed=2)[0].policy_mrp()
    with pytest.raises(AssertionError):
        check_monte_carlo(mrp.transition @ state_values(mrp, 0.9), mrp, 0.9, 0)
