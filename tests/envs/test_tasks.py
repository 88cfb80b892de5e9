"""Tasks drawn from a seed: structure, ranges, and that a task is a function of its arguments alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from icrl_agent.envs import TabularMDP, classic_boyan_chain, garnet_mdp, random_boyan_chain, state_values

Chain = Callable[..., tuple[TabularMDP, Any]]
TASKS: dict[str, Callable[[int], TabularMDP]] = {
    "boyan": lambda seed: random_boyan_chain(task_seed=seed)[0],
    "representable": lambda seed: random_boyan_chain(task_seed=seed, representable=3)[0],
    "garnet": lambda seed: garnet_mdp(task_seed=seed),
}
DIGEST = """
import hashlib
from icrl_agent.envs import garnet_mdp, random_boyan_chain
def digest(mdp):
    return hashlib.sha256(b"".join(getattr(mdp, n).tobytes() for n in ("transition", "reward", "initial"))).hexdigest()
for seed in (0, 7, 2**40):
    print(digest(random_boyan_chain(task_seed=seed)[0]))
    print(digest(random_boyan_chain(task_seed=seed, representable=3)[0]))
    print(digest(garnet_mdp(task_seed=seed)))
"""


def test_another_process_draws_the_same_tables() -> None:
    def digests(before: str = "") -> list[str]:
        command = [sys.executable, "-c", before + DIGEST]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    plain = digests()
    assert len(set(plain)) == 9  # seeds and kinds differ from each other
    assert digests("import numpy; numpy.random.seed(5); numpy.random.rand(3)\n") == plain
    unseeded = "import numpy; draw = numpy.random.default_rng; numpy.random.default_rng = lambda seed: draw()\n"
    assert digests(unseeded) != plain  # a generator that drops its seed is noticed


@pytest.mark.parametrize("make", TASKS.values(), ids=TASKS)
def test_tables_follow_the_seed(make: Callable[[int], TabularMDP]) -> None:
    tasks = [make(seed) for seed in range(20)]
    for i, task in enumerate(tasks):
        assert task.same_tables(make(i))
        assert task.same_tables(make(np.int64(i)))
        assert not any(task.same_tables(other) for other in tasks[:i])


def check_boyan_structure(make: Chain, n: int, seed: int) -> None:
    mdp, features = make(n_states=n, task_seed=seed)
    P = mdp.transition[:, 0]
    assert mdp.transition.shape == (n, 1, n)
    assert features is None
    assert not mdp.terminal.any()
    for i in range(n - 2):
        assert np.flatnonzero(P[i]).tolist() == [i + 1, i + 2]
        assert 0.01 <= P[i, i + 1] <= 0.99
    assert P[n - 2].tolist() == [float(t == n - 1) for t in range(n)]
    for distribution in (P[n - 1], mdp.initial):  # weights in [0.01, 0.99] before they are normalised
        assert distribution.min() > 0
        assert distribution.max() / distribution.min() <= 99 * (1 + 1e-12)
    assert (np.abs(mdp.reward) <= 1).all()


def _jumps_from_the_last_but_one(**kwargs: Any) -> tuple[TabularMDP, None]:
    mdp, _ = random_boyan_chain(**kwargs)
    P = mdp.transition[:, 0].copy()
    P[-2] = P[-1]
    return TabularMDP(P, mdp.reward, mdp.initial), None


def _stays_instead_of_two_ahead(**kwargs: Any) -> tuple[TabularMDP, None]:
    mdp, _ = random_boyan_chain(**kwargs)
    P = mdp.transition[:, 0].copy()
    P[0, 0], P[0, 2] = P[0, 2], 0.0
    return TabularMDP(P, mdp.reward, mdp.initial), None


def _wide_rewards(**kwargs: Any) -> tuple[TabularMDP, None]:
    mdp, _ = random_boyan_chain(**kwargs)
    return TabularMDP(mdp.transition, 3 * mdp.reward, mdp.initial), None


@pytest.mark.parametrize("n", [2, 3, 10, 25])
def test_boyan_chains_have_the_stated_structure(n: int) -> None:
    for seed in range(20):
        check_boyan_structure(random_boyan_chain, n, seed)


@pytest.mark.parametrize("double", [_jumps_from_the_last_but_one, _stays_instead_of_two_ahead, _wide_rewards])
def test_boyan_check_catches_another_structure(double: Chain) -> None:
    with pytest.raises(AssertionError):
        check_boyan_structure(double, 10, 0)


def check_uniform(sample: list[float], low: float, high: float) -> None:
    """Kolmogorov-Smirnov; beyond 2.3 / sqrt(n) with probability 2 exp(-2 * 2.3**2) = 5e-5."""
    x = np.sort((np.array(sample) - low) / (high - low))
    assert x[0] >= 0
    assert x[-1] <= 1
    grid = np.arange(len(x) + 1) / len(x)
    assert max((grid[1:] - x).max(), (x - grid[:-1]).max()) <= 2.3 / np.sqrt(len(x))


def test_probabilities_and_rewards_are_uniform() -> None:
    chains = [random_boyan_chain(task_seed=seed)[0] for seed in range(300)]
    steps = [float(c.transition[i, 0, i + 1]) for c in chains for i in range(8)]
    rewards = [float(r) for c in chains for r in c.reward[:, 0]]
    check_uniform(steps, 0.01, 0.99)
    check_uniform(rewards, -1, 1)
    check_uniform([float(r) for seed in range(100) for r in garnet_mdp(task_seed=seed).reward.ravel()], -1, 1)
    with pytest.raises(AssertionError):
        check_uniform([1 - (1 - p) ** 2 for p in steps], 0.01, 0.99)
    with pytest.raises(AssertionError):
        check_uniform(steps, 0.1, 0.9)


def check_representable(make: Chain, d: int, gamma: float, seed: int) -> None:
    """The least-squares residual of v on fewer features than states is rounding."""
    mdp, features = make(n_states=10, task_seed=seed, representable=d, representable_gamma=gamma)
    assert features.shape == (10, d)
    assert np.linalg.matrix_rank(features) == d
    values = state_values(mdp.policy_mrp(), gamma)
    weights = np.linalg.lstsq(features, values, rcond=None)[0]
    assert np.abs(values).max() > 0.01
    assert np.abs(features @ weights - values).max() < 1e-10


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("d", [1, 4, 7])
def test_representable_values_are_linear_in_the_features(d: int, gamma: float) -> None:
    for seed in range(10):
        check_representable(random_boyan_chain, d, gamma, seed)


def test_representable_check_catches_a_dropped_gamma_and_other_features() -> None:
    with pytest.raises(AssertionError):
        check_representable(lambda representable_gamma, **kw: random_boyan_chain(**kw), 4, 0.5, 0)
    with pytest.raises(AssertionError):
        check_representable(
            lambda **kw: (random_boyan_chain(**kw)[0], random_boyan_chain(**{**kw, "task_seed": 1})[1]), 4, 0.9, 0
        )


def test_representable_keeps_the_chain_itself() -> None:
    plain, linear = (random_boyan_chain(task_seed=4, representable=d)[0] for d in (None, 4))
    assert np.array_equal(plain.transition, linear.transition)
    assert np.array_equal(plain.initial, linear.initial)


def test_classic_chain() -> None:
    mdp = classic_boyan_chain()
    assert mdp.initial.tolist() == [0.0] * 12 + [1.0]
    assert mdp.terminal.tolist() == [True] + [False] * 12
    for i in range(2, 13):
        assert np.flatnonzero(mdp.transition[i, 0]).tolist() == [i - 2, i - 1]
        assert mdp.transition[i, 0, [i - 2, i - 1]].tolist() == [0.5, 0.5]
    assert mdp.transition[1, 0, 0] == 1.0
    assert mdp.reward[:, 0].tolist() == [0.0, -2.0] + [-3.0] * 11
    # Linear in Boyan's four hat features: peaks at states 12, 8, 4 and 0.
    hats = np.maximum(0.0, 1 - np.abs(np.arange(13)[:, None] - np.array([12, 8, 4, 0])) / 4)
    assert np.abs(hats @ [-24.0, -16.0, -8.0, 0.0] - state_values(mdp.policy_mrp(), 1.0)).max() < 1e-12


def check_garnet_structure(make: Callable[..., TabularMDP], n: int, k: int, branching: int, seed: int) -> None:
    mdp = make(n_states=n, n_actions=k, branching=branching, task_seed=seed)
    assert mdp.transition.shape == (n, k, n)
    for s in range(n):
        for a in range(k):
            assert np.count_nonzero(mdp.transition[s, a]) == branching
    assert np.abs(mdp.initial - 1 / n).max() < 1e-15
    assert (np.abs(mdp.reward) <= 1).all()
    assert len(np.unique(mdp.reward)) == n * k
    assert not mdp.terminal.any()


@pytest.mark.parametrize(("n", "k", "branching"), [(1, 1, 1), (6, 2, 1), (10, 4, 3), (7, 3, 7)])
def test_garnets_have_the_stated_structure(n: int, k: int, branching: int) -> None:
    for seed in range(5):
        check_garnet_structure(garnet_mdp, n, k, branching, seed)


@pytest.mark.parametrize("change", [{"branching": 4}, {"n_actions": 3}, {"n_states": 9}])
def test_garnet_check_catches_a_dropped_argument(change: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        check_garnet_structure(lambda **kwargs: garnet_mdp(**{**kwargs, **change}), 10, 4, 3, 0)


BAD_SIZES = [
    (random_boyan_chain, {"n_states": 1}, "n_states must be an integer of at least 2, got 1"),
    (random_boyan_chain, {"n_states": 10.0}, "n_states must be an integer of at least 2, got 10.0"),
    (random_boyan_chain, {"representable": 0}, "representable must be an integer of at least 1, got 0"),
    (
        random_boyan_chain,
        {"representable": 2, "representable_gamma": 1.5},
        r"gamma must be a number in \[0, 1\], got 1.5",
    ),
    (random_boyan_chain, {"representable_gamma": 1.5}, r"gamma must be a number in \[0, 1\], got 1.5"),
    (garnet_mdp, {"n_states": 0}, "n_states must be an integer of at least 1, got 0"),
    (garnet_mdp, {"n_actions": True}, "n_actions must be an integer of at least 1, got True"),
    (garnet_mdp, {"branching": 0}, "branching must be an integer of at least 1, got 0"),
    (garnet_mdp, {"branching": 11}, "branching must be at most n_states = 10, got 11"),
    *(
        (f, {"task_seed": s}, "task_seed must be a non-negative integer below ")
        for f in (random_boyan_chain, garnet_mdp)
        for s in (-1, 1.5, True, None, "3")
    ),
]


@pytest.mark.parametrize(("make", "kwargs", "message"), BAD_SIZES)
def test_arguments_outside_their_range_are_refused(
    make: Callable[..., Any], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(**kwargs)


def check_own_stream(numbers: set[float], seed: int) -> None:
    """No number of the task appears among the first draws of a generator seeded with the same number."""
    draw = np.random.default_rng
    taken = {float(x) for x in draw(seed).random(2000)}
    taken |= {float(x) for x in draw(seed).uniform(-1, 1, 2000)} | {
        float(x) for x in draw(seed).uniform(0.01, 0.99, 2000)
    }
    taken |= {float(x) for x in draw(seed).standard_normal(2000)}
    assert not numbers & taken


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_tasks_share_nothing_with_a_generator_of_the_same_seed(seed: int) -> None:
    chain, features = random_boyan_chain(task_seed=seed, representable=4)
    plain, garnet = random_boyan_chain(task_seed=seed)[0], garnet_mdp(task_seed=seed)
    for array in (chain.transition, plain.reward, features, garnet.transition, garnet.reward):
        check_own_stream({float(x) for x in array.ravel()} - {0.0, 1.0}, seed)
    assert not set(plain.reward.ravel().tolist()) & set(garnet.reward.ravel().tolist())
    with pytest.raises(AssertionError):
        check_own_stream({float(x) for x in np.random.default_rng(seed).uniform(-1, 1, (10, 4)).ravel()}, seed)
