"""evaluate and value answer what the literal transformer answers on the same experience."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agent import ICRLAgent
from icrl_agent.features import OneHot, RandomFourier, RandomUnit, feature_map_for, fit_fourier
from icrl_agent.model import SoftmaxICTD
from icrl_agent.wrappers import HistoryWrapper
from icrl_agent.wrappers.vector import HistoryWrapper as VectorHistoryWrapper

# Rounding of 60 layers whose values are at most a few hundred, times the growth of a context that does not converge.
TOLERANCE = 1e-8
GAMMA = 0.9


def worth_zero(transitions, states):
    """States seen only as the end of terminated transitions."""
    found = []
    for state in states:
        entered = [np.array_equal(o, state) for o in transitions.next_observations]
        left = any(np.array_equal(o, state) for o in transitions.observations)
        ends = [bool(t) for t, hit in zip(transitions.terminated, entered, strict=True) if hit]
        found.append(bool(ends) and all(ends) and not left)
    return np.array(found)


def check_literal(evaluate, literal_values, agent, env, x=None, **options):
    result = evaluate(agent, env, n_steps=80, gamma=GAMMA, seed=3, **options)
    space = getattr(env, "single_observation_space", env.observation_space)
    if x is None and isinstance(space, gym.spaces.Box):
        x = RandomFourier("context", "context", agent.model.feature_dim, "median", agent.feature_seed)
        x = fit_fourier(x, result.transitions.observations)
    x = x or feature_map_for(space, agent.model.feature_dim, agent.feature_seed)
    expected = literal_values(
        agent.model, result.transitions, x, result.states, GAMMA, n_layers=options.get("n_layers")
    )
    expected[worth_zero(result.transitions, result.states)] = 0.0
    assert np.ptp(expected) > 0 or not result.transitions.rewards.any()
    np.testing.assert_allclose(result.values, expected, atol=TOLERANCE, rtol=TOLERANCE)


def with_transitions(change):
    """An evaluate that misreads its experience."""

    def evaluate(agent, env, **options):
        result = agent.evaluate(env, **options)
        options = {name: value for name, value in options.items() if name in ("gamma", "n_layers", "feature_map")}
        misread = replace(result.transitions, **change(result.transitions))
        return replace(result, values=agent.evaluate_transitions(misread, queries=result.states, **options).values)

    return evaluate


def test_any_environment_is_the_literal_transformer(agent, make_env, literal_values, any_env):
    check_literal(ICRLAgent.evaluate, literal_values, agent, make_env(any_env))


@pytest.mark.parametrize("n_layers", [1, np.int64(7), 100])
def test_depth(agent, make_env, literal_values, n_layers):
    check_literal(ICRLAgent.evaluate, literal_values, agent, make_env("RandomMDP-v0"), n_layers=n_layers)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {},
        lambda t: {"rewards": np.roll(t.rewards, 1)},
        lambda t: {"terminated": np.zeros_like(t.terminated)},
        lambda t: {"terminated": t.terminated | t.truncated},
        lambda t: {"next_observations": t.observations},
    ],
    ids=["nothing", "rewards shifted", "termination ignored", "time limit as termination", "target not shifted"],
)
def test_the_check_catches(agent, make_env, literal_values, change, request):
    env = make_env("BoyanChainClassic-v0", max_episode_steps=8)
    if request.node.callspec.id == "nothing":
        check_literal(with_transitions(change), literal_values, agent, env)
    else:
        with pytest.raises(AssertionError):
            check_literal(with_transitions(change), literal_values, agent, env)


MAPS = {"one hot": OneHot(10), "other seed": RandomUnit(10, 32, seed=9), "fourier": RandomFourier(4.5, 2.9, 32)}


@pytest.mark.parametrize("name", MAPS)
def test_a_given_feature_map_or_its_spec(make_env, literal_values, name):
    x = MAPS[name]
    agent = ICRLAgent.from_theory(feature_dim=x.dim, sharpness=6.0)
    for given in (x, x.spec()):
        check_literal(ICRLAgent.evaluate, literal_values, agent, make_env("RandomMDP-v0"), x, feature_map=given)


def test_a_history_wrapper_brings_its_feature_map(agent, make_env, literal_values):
    x = RandomUnit(10, 32, seed=7)
    wrapped = HistoryWrapper(make_env("BoyanChain-v0"), context_length=4, feature_map=x)
    vector = VectorHistoryWrapper(gym.make_vec("BoyanChain-v0", num_envs=3), context_length=4, feature_map=x)
    for env in (wrapped, vector):
        plain = agent.evaluate(env.env, n_steps=80, seed=3)
        result = agent.evaluate(env, n_steps=80, seed=3)
        # The same experience, whatever the wrapper's window holds, but other features.
        np.testing.assert_array_equal(result.transitions.observations, plain.transitions.observations)
        np.testing.assert_array_equal(result.states, np.arange(10))
        expected = literal_values(agent.model, result.transitions, x, result.states, GAMMA)
        np.testing.assert_allclose(result.values, expected, atol=TOLERANCE)
        assert np.abs(result.values - plain.values).max() > 1e-6
        assert result.true_values is not None


@pytest.mark.parametrize("layer", ["tsm", "dual_head"])
@pytest.mark.parametrize("shared", [True, False])
def test_learned_weights(make_env, literal_values, layer, shared):
    model = SoftmaxICTD(32, n_layers=5, layer=layer, shared=shared)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    agent = ICRLAgent(model, feature_seed=2)
    check_literal(ICRLAgent.evaluate, literal_values, agent, make_env("RandomMDP-v0"))


def test_many_states_take_the_sparse_path(agent, literal_values):
    """More states than the dense engine takes."""
    n = 700
    rng = np.random.default_rng(0)
    P = np.zeros((n, n))
    P[np.arange(n), (np.arange(n) + 1) % n] = 1.0
    env = gym.make("TabularMDP-v0", transition=P, reward=rng.normal(size=n), initial=np.eye(n)[0])
    result = agent.evaluate(env, n_steps=90, n_layers=9, seed=0)
    x = RandomUnit(n, 32, seed=0)
    expected = literal_values(agent.model, result.transitions, x, result.states, GAMMA, n_layers=9)
    np.testing.assert_allclose(result.values, expected, atol=TOLERANCE)


# Experience ----------------------------------------------------------------------------------------------------------


class Recorder(gym.Wrapper):
    """Keeps every transition as it passes."""

    def __init__(self, env):
        super().__init__(env)
        self.steps = []

    def reset(self, **options):
        self.here, info = self.env.reset(**options)
        return self.here, info

    def step(self, action):
        step = self.env.step(action)
        self.steps.append((self.here, *step[:4]))
        self.here = step[0]
        return step


def check_experience(evaluate, agent, env, n_steps):
    """Exactly n_steps transitions, each as the environment showed it."""
    recorder = Recorder(env)
    result = evaluate(agent, recorder, n_steps=n_steps, seed=5)
    assert result.n_steps == len(recorder.steps) == len(result.transitions) == n_steps
    t = result.transitions
    for i, (left, entered, reward, terminated, truncated) in enumerate(recorder.steps):
        np.testing.assert_array_equal(t.observations[i], left)
        np.testing.assert_array_equal(t.next_observations[i], entered)
        assert (t.rewards[i], t.terminated[i], t.truncated[i]) == (reward, terminated, truncated)


@pytest.mark.parametrize("n_steps", [1, 2, 57])
def test_experience_is_what_happened(agent, make_env, any_env, n_steps):
    check_experience(ICRLAgent.evaluate, agent, make_env(any_env), n_steps)


def test_the_experience_check_catches_one_step_too_many(agent, make_env):
    def too_many(agent, env, n_steps, seed):
        return agent.evaluate(env, n_steps=n_steps + 1, seed=seed)

    with pytest.raises(AssertionError):
        check_experience(too_many, agent, make_env("BoyanChain-v0"), 20)


@pytest.mark.parametrize("n_steps", [1, 5, 7, 8, 40])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_exact_number_of_steps_over_copies(agent, n_steps, mode):
    env = gym.make_vec("BoyanChainClassic-v0", num_envs=7, autoreset_mode=mode, max_episode_steps=3)
    result = agent.evaluate(env, n_steps=n_steps, seed=0)
    assert result.n_steps == len(result.transitions) == result.visits.sum() == n_steps


# agent.value ---------------------------------------------------------------------------------------------------------


def check_value(value, agent, env, n_layers=None):
    """The literal transformer on the observation itself, cast to float64."""
    model = SoftmaxICTD.from_theory(32, dtype=torch.float64)
    observation, _ = env.reset(seed=1)
    for step in range(40):
        expected = model.query_value(
            torch.tensor(observation["prompt"]).double()[None],
            GAMMA,
            source_mask=torch.tensor(observation["source_mask"])[None],
            continues=torch.tensor(observation["continues"])[None],
            n_layers=n_layers,
        ).item()
        found = value(agent, observation, gamma=GAMMA, n_layers=n_layers)
        assert type(found) is float
        assert found == pytest.approx(expected, abs=TOLERANCE)
        observation, _, terminated, truncated, _ = env.step(step % 2 if env.action_space.n > 1 else 0)
        if terminated or truncated:
            observation, _ = env.reset()


@pytest.mark.parametrize("n_layers", [None, 3])
def test_value_of_an_observation(agent, make_env, n_layers):
    for name in ("BoyanChain-v0", "BoyanChainClassic-v0", "RandomMDP-v0", "CartPole-v1"):
        env = HistoryWrapper(make_env(name, max_episode_steps=9), context_length=16)
        check_value(ICRLAgent.value, agent, env, n_layers)


def test_the_value_check_catches_ignored_ends(agent, make_env):
    def ignores_ends(agent, observation, **options):
        return agent.value({**observation, "continues": np.ones_like(observation["continues"])}, **options)

    env = HistoryWrapper(make_env("BoyanChainClassic-v0"), context_length=16)
    with pytest.raises(AssertionError):
        check_value(ignores_ends, agent, env)
