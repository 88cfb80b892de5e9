"""Sampled transitions, first states and reward noise against the tables they are drawn from.

Fixed seeds; chi-square with p > 1e-4 for each of the 32 statistics (4 ids; single environment and three autoreset
modes; transitions and first states), so that right code fails for one choice of seeds in about 300.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

SMALLEST_P = 1e-4


class Sample(NamedTuple):
    moves: NDArray[np.int64]  # (N, 3): state, action, next state
    starts: NDArray[np.int64]


def chi_square_p(observed: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """P-value of counts (K, S) given their row sums; cells that expect fewer than 5 are merged into one per row."""
    statistic, degrees = 0.0, 0
    for counts, row in zip(observed, probabilities, strict=True):
        assert not counts[row == 0].any(), "an impossible outcome"
        expected = counts.sum() * row
        large = expected >= 5
        cells = [*zip(counts[large], expected[large], strict=True)]
        rest = expected[~large].sum()
        if rest >= 5:
            cells.append((counts[~large].sum(), rest))
        elif rest > 0 and cells:
            cells[-1] = (cells[-1][0] + counts[~large].sum(), cells[-1][1] + rest)
        if len(cells) > 1:
            statistic += sum((o - e) ** 2 / e for o, e in cells)
            degrees += len(cells) - 1
    if degrees == 0:
        return 1.0
    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def test_chi_square_against_tabulated_quantiles() -> None:
    # 95 % quantiles of chi-square with 1 and 3 degrees of freedom: 3.841 and 7.815.
    half = np.array([[0.5, 0.5]])
    d = np.sqrt(3.841 * 1000) / 2
    assert chi_square_p(np.array([[500 + d, 500 - d]]), half) == pytest.approx(0.05, abs=1e-4)
    quarter = np.full((1, 4), 0.25)
    d = np.sqrt(7.815 * 250 / 4)
    assert chi_square_p(np.array([[250 + d, 250 - d, 250 + d, 250 - d]]), quarter) == pytest.approx(0.05, abs=1e-4)


def check_frequencies(sample: Sample, mdp: Any) -> None:
    S, A, _ = mdp.transition.shape
    counts = np.zeros((S, A, S), np.int64)
    np.add.at(counts, tuple(sample.moves.T), 1)
    assert not counts[mdp.terminal].any()
    assert chi_square_p(counts.reshape(S * A, S), mdp.transition.reshape(S * A, S)) > SMALLEST_P
    starts = np.bincount(sample.starts, minlength=S)[None]
    assert chi_square_p(starts, mdp.initial[None]) > SMALLEST_P


def sample_single(env: gym.Env[Any, Any], n_steps: int = 12_000) -> Sample:
    rng = np.random.default_rng(1)
    moves, starts = [], [env.reset(seed=2)[0]]
    state = starts[0]
    for _ in range(n_steps):
        action = int(rng.integers(env.action_space.n))
        next_state, _, terminated, truncated, _ = env.step(action)
        moves.append((state, action, next_state))
        state = next_state
        if terminated or truncated:
            state = env.reset()[0]
            starts.append(state)
    return Sample(np.array(moves), np.array(starts))


def sample_vector(envs: Any, n_steps: int = 150, keep_reset_rows: bool = False) -> Sample:
    mode, rng = envs.metadata["autoreset_mode"], np.random.default_rng(1)
    states, _ = envs.reset(seed=2)
    moves, starts = [], [states]
    resets = np.zeros(envs.num_envs, bool)
    for _ in range(n_steps):
        actions = rng.integers(envs.single_action_space.n, size=envs.num_envs)
        after, _, terminated, truncated, infos = envs.step(actions)
        ended = terminated | truncated
        reached = after.copy()
        if mode is AutoresetMode.SAME_STEP and ended.any():
            reached[ended] = infos["final_obs"][ended].astype(int)
            starts.append(after[ended])
        starts.append(after[resets])
        moved = ~resets | keep_reset_rows
        moves.append(np.stack([states, actions, reached], axis=1)[moved])
        if mode is AutoresetMode.DISABLED and ended.any():
            after, _ = envs.reset(options={"reset_mask": ended})
            starts.append(after[ended])
        resets = ended if mode is AutoresetMode.NEXT_STEP else np.zeros(envs.num_envs, bool)
        states = after
    return Sample(np.concatenate(moves), np.concatenate(starts))


def test_single_environments_follow_the_tables(case: Any) -> None:
    env = case.make(max_episode_steps=4)
    check_frequencies(sample_single(env), env.unwrapped.mdp)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_vector_environments_follow_the_tables(case: Any, mode: AutoresetMode) -> None:
    envs = case.make_vec(128, max_episode_steps=4, autoreset_mode=mode)
    check_frequencies(sample_vector(envs), envs.mdp)


DOUBLES: dict[str, Callable[[Sample, int], Sample]] = {
    "next state shifted": lambda x, n: Sample((x.moves + np.array([0, 0, 1])) % [n + 1, 99, n], x.starts),
    "state of the step before": lambda x, n: Sample(np.c_[np.roll(x.moves[:, 0], 1), x.moves[:, 1:]], x.starts),
    "uniform starts": lambda x, n: Sample(x.moves, np.arange(len(x.starts)) % n),
    "a 20th of the moves to state 1": lambda x, n: Sample(
        np.where((np.arange(len(x.moves)) % 20 == 0)[:, None], x.moves * [1, 1, 0] + [0, 0, 1], x.moves), x.starts
    ),
}


@pytest.mark.parametrize("double", DOUBLES.values(), ids=DOUBLES)
def test_frequency_check_catches_wrong_samples(double: Callable[[Sample, int], Sample], example_mdp: Any) -> None:
    env = gym.make(
        "TabularMDP-v0", **{n: getattr(example_mdp, n) for n in ("transition", "reward", "initial", "terminal")}
    )
    sample = sample_single(env)
    check_frequencies(sample, example_mdp)
    with pytest.raises(AssertionError):
        check_frequencies(double(sample, 4), example_mdp)


def test_frequency_check_catches_reset_rows_taken_for_transitions(seeded_case: Any) -> None:
    envs = seeded_case.make_vec(128, max_episode_steps=4)
    with pytest.raises(AssertionError):
        check_frequencies(sample_vector(envs, keep_reset_rows=True), envs.mdp)


def check_copies_are_independent(envs: Any) -> None:
    """Two copies of a fair coin agree half of the time: 5 standard errors of a binomial share."""
    states = [envs.reset(seed=0)[0]] + [envs.step(np.zeros(2, int))[0] for _ in range(4000)]
    agree = np.mean([a == b for a, b in states])
    assert abs(agree - 0.5) <= 5 * 0.5 / np.sqrt(len(states))


def test_copies_are_independent() -> None:
    class SharedDraw(gym.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            observations, *rest = super().step(actions)
            return np.full_like(observations, observations[0]), *rest

    def coin() -> Any:
        tables = {"transition": np.full((2, 2), 0.5), "reward": [0.0, 0.0], "initial": [0.5, 0.5]}
        return gym.make_vec("TabularMDP-v0", num_envs=2, **tables)

    check_copies_are_independent(coin())
    with pytest.raises(AssertionError):
        check_copies_are_independent(SharedDraw(coin()))


def check_noise(noise: NDArray[np.float64], sigma: float) -> None:
    """Mean and standard deviation of Gaussian noise within 5 of their standard errors; no two draws equal."""
    n = len(noise)
    assert abs(noise.mean()) <= 5 * sigma / np.sqrt(n)
    assert abs(noise.std(ddof=1) - sigma) <= 5 * sigma / np.sqrt(2 * n)
    assert len(np.unique(noise.round(12))) > 0.99 * n


def noise_of_single(case: Any, sigma: float) -> NDArray[np.float64]:
    env, rng = case.make(reward_noise=sigma), np.random.default_rng(0)
    state, noise = env.reset(seed=0)[0], []
    for _ in range(5000):
        action = int(rng.integers(env.action_space.n))
        next_state, reward, terminated, _, _ = env.step(action)
        noise.append(reward - env.unwrapped.mdp.reward[state, action])
        state = env.reset()[0] if terminated else next_state
    return np.array(noise)


def noise_of_vector(case: Any, sigma: float) -> NDArray[np.float64]:
    envs, rng = case.make_vec(200, reward_noise=sigma, autoreset_mode="SameStep"), np.random.default_rng(0)
    states, noise = envs.reset(seed=0)[0], []
    for _ in range(50):
        actions = rng.integers(envs.single_action_space.n, size=200)
        next_states, rewards, *_ = envs.step(actions)
        noise.append(rewards - envs.mdp.reward[states, actions])
        states = next_states
    return np.concatenate(noise)


@pytest.mark.parametrize("sigma", [0.3, 2.0])
@pytest.mark.parametrize("measure", [noise_of_single, noise_of_vector])
def test_reward_noise_has_the_stated_deviation(case: Any, measure: Any, sigma: float) -> None:
    noise = measure(case, sigma)
    check_noise(noise, sigma)
    for double in (noise * np.sqrt(sigma) / sigma, noise + 0.2 * sigma, np.full_like(noise, noise[0])):
        with pytest.raises(AssertionError):
            check_noise(double, sigma)


def test_without_noise_rewards_are_the_tables(case: Any) -> None:
    assert not noise_of_single(case, 0.0).any()
    assert not noise_of_vector(case, 0.0).any()


class LargestDraw:
    """A generator whose every uniform draw is the largest number below 1."""

    def random(self, size: int | None = None) -> Any:
        largest = float(np.nextafter(1.0, 0.0))
        return largest if size is None else np.full(size, largest)


def check_largest_draw(outcome: Callable[[NDArray[np.float64]], int]) -> None:
    """Ten probabilities of a tenth add up to less than 1 in floating point, and an impossible state follows them."""
    row = np.array([0.1] * 10 + [0.0])
    assert np.cumsum(row)[-1] < 1
    assert outcome(row) == 9


def single_outcome(row: NDArray[np.float64]) -> int:
    env = gym.make("TabularMDP-v0", transition=[row] * 11, reward=np.zeros(11), initial=row).unwrapped
    env.np_random = LargestDraw()
    assert env.reset()[0] == env.step(0)[0]
    return env.step(0)[0]


def vector_outcome(row: NDArray[np.float64]) -> int:
    envs = gym.make_vec("TabularMDP-v0", num_envs=2, transition=[row] * 11, reward=np.zeros(11), initial=row)
    envs.np_random = LargestDraw()
    assert envs.reset()[0].tolist() == envs.step([0, 0])[0].tolist()
    return int(envs.step([0, 0])[0][1])


@pytest.mark.parametrize("outcome", [single_outcome, vector_outcome])
def test_rounding_leads_to_no_impossible_state(outcome: Callable[[NDArray[np.float64]], int]) -> None:
    check_largest_draw(outcome)


def test_largest_draw_check_catches_plain_cumulative_sums() -> None:
    for double in (
        lambda row: int(np.searchsorted(np.cumsum(row), LargestDraw().random(), side="right")),
        lambda row: int(np.argmax(np.cumsum(row) > LargestDraw().random())),
    ):
        with pytest.raises(AssertionError):
            check_largest_draw(double)
