"""Environments and numbers that are a little off: accepted where the meaning is clear, one sentence where it is not."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from icrl_agent import HistoryWrapper, ICRLAgent
from icrl_agent.envs.boyan import BoyanChainEnv


class Ring(gym.Env):
    """States 0 to n-1 in turn, reward 1; what step and reset return can be dressed up."""

    def __init__(self, n=4, dress=lambda *step: step, dress_observation=lambda o: o):
        self.observation_space, self.action_space = spaces.Discrete(n), spaces.Discrete(1)
        self.dress, self.dress_observation = dress, dress_observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return self.dress_observation(0), {}

    def step(self, action):
        self.state = (self.state + 1) % min(int(self.observation_space.n), 4)
        reward, terminated, truncated = self.dress(1.0, False, False)
        return self.dress_observation(self.state), reward, terminated, truncated, {}


@pytest.mark.parametrize(
    "dress",
    [
        lambda r, t, u: (np.array([r]), t, u),
        lambda r, t, u: (np.float32(r), np.bool_(t), np.bool_(u)),
        lambda r, t, u: (torch.tensor([r]), np.array([t]), u),
    ],
)
def test_numbers_in_arrays_of_size_one_are_numbers(agent, dress):
    plain = agent.evaluate(Ring(), n_steps=30, seed=0).values
    dressed = agent.evaluate(Ring(dress=dress, dress_observation=lambda o: np.array([o])), n_steps=30, seed=0).values
    np.testing.assert_array_equal(dressed, plain)


@pytest.mark.parametrize(
    ("dress", "match"),
    [
        (lambda r, t, u: (np.array([r, r]), t, u), "reward .* must be one number"),
        (lambda r, t, u: (None, t, u), "reward None, it must be one number"),
        (lambda r, t, u: ("much", t, u), "reward"),
        (lambda r, t, u: (r, "False", u), "terminated"),
        (lambda r, t, u: (r, 0.0, u), "terminated as float64, it must be True or False"),
    ],
)
def test_what_is_no_number_or_flag_is_refused(agent, dress, match):
    with pytest.raises((TypeError, ValueError), match=match):
        agent.evaluate(Ring(dress=dress), n_steps=5, seed=0)


def test_a_huge_space_is_answered_where_it_was_visited(agent):
    result = agent.evaluate(Ring(10**9), n_steps=30, seed=0)
    assert result.states.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(result.values, 10.0, rtol=0.02)  # reward 1 for ever, gamma 0.9, 60 layers: 0.2 % short


def test_rewards_too_large_for_a_value_are_refused(agent):
    with pytest.raises(ValueError, match="not finite"):
        agent.evaluate(Ring(dress=lambda r, t, u: (1.7e308, t, u)), n_steps=30, seed=0)


def test_results_and_environments_can_be_pickled_and_copied(agent):
    env = gym.make("BoyanChain-v0", task_seed=3, representable=3)
    result = pickle.loads(pickle.dumps(agent.evaluate(env, n_steps=50, seed=0)))
    assert result.diagnostics.kernel_diagonality_mean > 0
    for single in (env, gym.make("RandomMDP-v0")):
        pickle.loads(pickle.dumps(single.unwrapped)).reset(seed=0)
    pickle.loads(pickle.dumps(gym.make_vec("BoyanChain-v0", num_envs=2))).reset(seed=0)
    before = env.unwrapped.representable_features.copy()
    twin = copy.deepcopy(env)
    twin.reset(options={"task_seed": 9})
    np.testing.assert_array_equal(env.unwrapped.representable_features, before)
    assert not np.array_equal(twin.unwrapped.representable_features, before)


def test_truth_is_not_claimed_for_what_plays_differently_from_its_tables(agent):
    class Generous(BoyanChainEnv):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, reward + 10.0, *rest

    fickle = gym.make("Taxi-v4", fickle_passenger=True)
    for env in (Generous(), fickle):
        result = agent.evaluate(env, n_steps=20, seed=0)
        assert result.true_values is None
        assert result.reason
    assert agent.evaluate(BoyanChainEnv(), n_steps=20, seed=0).true_values is not None
    assert agent.evaluate(gym.make("Taxi-v4"), n_steps=20, seed=0).true_values is not None


def test_numbers_that_are_not_finite_go_nowhere(agent, tmp_path):
    env = HistoryWrapper(gym.make("BoyanChain-v0"), context_length=4)
    obs, _ = env.reset(seed=0)
    for part, row in (("prompt", (0, -1)), ("prompt", (32, 0)), ("continues", (0,))):
        broken = copy.deepcopy(obs)
        broken[part][row] = np.nan
        with pytest.raises(ValueError, match=r"finite numbers only|0 and 1 only"):
            agent.value(broken)
    spoilt = ICRLAgent.from_theory()
    with torch.no_grad():
        spoilt.model.value_weight[0, -1, -1] = float("nan")
    spoilt.save(tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="value_weight that are not finite"):
        ICRLAgent.load(tmp_path / "w.safetensors")


@pytest.mark.slow
def test_long_contexts_of_states_that_never_repeat(agent):
    result = agent.evaluate(gym.make("CartPole-v1"), n_steps=30_000, n_layers=1, seed=0)
    assert result.visits.sum() == len(result.values) == 30_000
    # The first layer's value is a weighted mean of rewards, which are all 1.
    np.testing.assert_allclose(result.values, 1.0, atol=1e-9)


def test_limits_are_told(agent):
    with pytest.raises(ValueError, match="seed must be a non-negative integer below"):
        agent.evaluate(Ring(), seed=2**70)
    with pytest.raises(TypeError, match=r"write agent = ICRLAgent\.from_theory"):
        agent.from_theory()
