"""Any kind of environment, any time limit: the same values, within their standard error of the truth."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

from icrl_agent.envs import state_values
from icrl_agent.transitions import Transitions

GAMMA, TASK, COPIES = 0.9, 2, 4
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def single(limit):
    return gym.make("BoyanChain-v0", task_seed=TASK, max_episode_steps=limit)


def native(mode):
    return lambda limit: gym.make_vec(
        "BoyanChain-v0", num_envs=COPIES, task_seed=TASK, autoreset_mode=mode, max_episode_steps=limit
    )


def sync(mode):
    return lambda limit: SyncVectorEnv([lambda: single(limit)] * COPIES, autoreset_mode=mode)


KINDS = {
    "plain": single,
    **{f"native {mode.name}": native(mode) for mode in MODES},
    **{f"sync {mode.name}": sync(mode) for mode in MODES},
    "sb3": lambda limit: DummyVecEnv([lambda: single(limit)] * COPIES),
}


def check_truth(evaluate, env, n_steps):
    """Every value within 5 standard errors of the truth.

    Rewards are certain, so the error of certainty equivalence is G e with G = (I - gamma P)^-1 and e(s) the error
    of the mean of gamma v(S') over the N(s) visits: variance sum_s' G(s, s')^2 gamma^2 Var v(S') / N(s').
    400 layers leave nothing of the starting point (radius 0.9); 1e-4 is for single precision rewards.
    """
    result = evaluate(env, n_steps)
    mrp = gym.make("BoyanChain-v0", task_seed=TASK).unwrapped.mdp.policy_mrp()
    P, v = mrp.transition, state_values(mrp, GAMMA)
    assert result.visits.sum() == n_steps
    assert result.visits.min() > 50
    assert result.diagnostics.spectral_radius < 0.92
    variance = P @ v**2 - (P @ v) ** 2
    G = np.linalg.inv(np.eye(10) - GAMMA * P)
    stderr = np.sqrt(G**2 @ (GAMMA**2 * variance / result.visits))
    assert (np.abs(result.values - v) <= 5 * stderr + 1e-4).all()


def evaluate_with(agent):
    return lambda env, n_steps: agent.evaluate(env, n_steps=n_steps, gamma=GAMMA, n_layers=400, seed=0)


@pytest.mark.parametrize("limit", [3, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_values_do_not_depend_on_the_time_limit(agent, kind, limit):
    check_truth(evaluate_with(agent), KINDS[kind](limit), 20_000)


def time_limit_as_termination(agent):
    def evaluate(env, n_steps):
        result = evaluate_with(agent)(env, n_steps)
        t = result.transitions
        wrong = replace(t, terminated=t.terminated | t.truncated)
        values = agent.evaluate_transitions(wrong, GAMMA, np.arange(10), n_layers=400).values
        return replace(result, values=values)

    return evaluate


def last_state_of_the_next_episode(agent):
    """Reads the reset observation where the final one belongs (what SAME_STEP shows)."""

    def evaluate(env, n_steps):
        result = evaluate_with(agent)(env, n_steps)
        t = result.transitions
        entered = t.next_observations.copy()
        entered[:-COPIES] = np.where(t.truncated[:-COPIES], t.observations[COPIES:], entered[:-COPIES])
        values = agent.evaluate_transitions(replace(t, next_observations=entered), GAMMA, np.arange(10), 400).values
        return replace(result, values=values)

    return evaluate


def reset_rows_kept(agent):
    """Takes every row of a NEXT_STEP environment for a transition."""

    def evaluate(env, n_steps):
        rows, here = [], env.reset(seed=0)[0]
        for _ in range(n_steps // COPIES):
            after, rewards, terminated, truncated, _ = env.step(np.zeros(COPIES, int))
            rows.append((here, rewards, after, terminated, truncated, np.arange(COPIES)))
            here = after
        t = Transitions(*(np.concatenate(part) for part in zip(*rows, strict=True)))
        result = evaluate_with(agent)(native(AutoresetMode.NEXT_STEP)(3), n_steps)
        return replace(result, values=agent.evaluate_transitions(t, GAMMA, np.arange(10), 400).values)

    return evaluate


@pytest.mark.parametrize(
    ("double", "kind"),
    [
        (time_limit_as_termination, "native SAME_STEP"),
        (last_state_of_the_next_episode, "native SAME_STEP"),
        (reset_rows_kept, "native NEXT_STEP"),
    ],
)
def test_the_check_catches(agent, double, kind):
    with pytest.raises(AssertionError):
        check_truth(double(agent), KINDS[kind](3), 20_000)


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_state_of_a_time_limit_bootstraps(agent, kind):
    """Truncation marks no state as worth 0, and the record says truncated, not terminated."""
    result = agent.evaluate(KINDS[kind](3), n_steps=60, gamma=GAMMA, seed=0)
    assert result.transitions.truncated.any()
    assert not result.transitions.terminated.any()
    assert (result.values != 0).all()


def both_flags(base):
    class BothFlags(base):
        """Terminates and truncates on one step."""

        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward, terminated, terminated or truncated, info

    return BothFlags


@pytest.mark.parametrize("kind", ["plain", "sync", "sb3"])
def test_with_both_flags_it_terminated(agent, kind):
    def make():
        return both_flags(gym.Wrapper)(gym.make("BoyanChainClassic-v0"))

    env = {"plain": make, "sync": lambda: SyncVectorEnv([make] * 2), "sb3": lambda: DummyVecEnv([make] * 2)}[kind]()
    result = agent.evaluate(env, n_steps=100, gamma=0.9, seed=0, queries=np.arange(13))
    assert result.transitions.terminated.any()
    assert result.values[0] == 0.0


def test_copies_do_not_touch_each_other(agent, literal_values):
    """Episodes of different lengths in one vector environment: each copy's columns are its own."""

    def copy_with(limit):
        return lambda: gym.make("BoyanChainClassic-v0", max_episode_steps=limit)

    for mode in MODES:
        result = agent.evaluate(SyncVectorEnv([copy_with(3), copy_with(7)], autoreset_mode=mode), n_steps=60, seed=0)
        t = result.transitions
        for number, limit in ((0, 3), (1, 7)):
            rows = np.flatnonzero(t.copy == number)
            starts = [0, *(np.flatnonzero(t.truncated[rows] | t.terminated[rows]) + 1)]
            for begin, end in zip(starts, [*starts[1:], len(rows)], strict=True):
                episode = rows[begin:end]
                assert len(episode) <= limit
                if len(episode):
                    assert t.observations[episode[0]] == 12
                np.testing.assert_array_equal(t.next_observations[episode[:-1]], t.observations[episode[1:]])
