"""A frozen agent: one seed gives one answer, and nothing else moves."""

from __future__ import annotations

import random

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agent import ICRLAgent


def check_determinism(evaluate, agent, make):
    first, second, other = (evaluate(agent, make(), n_steps=60, seed=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.transitions.observations, second.transitions.observations)
    assert not np.array_equal(first.transitions.observations, other.transitions.observations)


@pytest.mark.parametrize("policy", [None, "table"])
def test_seeded_evaluations_repeat(agent, make_env, policy):
    table = None if policy is None else np.random.default_rng(0).dirichlet(np.ones(4), size=10)

    def evaluate(agent, env, **options):
        np.random.rand(3)  # noqa: NPY002 - somebody else's draws must not matter
        torch.rand(1)
        return agent.evaluate(env, policy=table, **options)

    check_determinism(evaluate, agent, lambda: make_env("RandomMDP-v0"))
    check_determinism(evaluate, agent, lambda: gym.make_vec("RandomMDP-v0", num_envs=3))


def test_the_determinism_check_catches_a_dropped_seed(agent, make_env):
    with pytest.raises(AssertionError):
        check_determinism(
            lambda agent, env, n_steps, seed: agent.evaluate(env, n_steps=n_steps), agent,
            lambda: make_env("RandomMDP-v0"),
        )  # fmt: skip


def test_a_seed_of_numpy_type(agent, make_env):
    result = agent.evaluate(make_env("RandomMDP-v0"), n_steps=np.int64(20), seed=np.int64(4))
    expected = agent.evaluate(make_env("RandomMDP-v0"), n_steps=20, seed=4)
    np.testing.assert_array_equal(result.values, expected.values)


def noisy_policy(_observation):
    """Draws from every global generator."""
    return int(np.random.randint(2)) * int(random.random() < 2) * int(torch.rand(1).item() < 2)  # noqa: NPY002


def check_generators(evaluate, agent, env):
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    evaluate(agent, env)
    assert random.getstate() == before[0]
    for old, new in zip(before[1], np.random.get_state(), strict=True):  # noqa: NPY002
        np.testing.assert_array_equal(old, new)
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("policy", [None, noisy_policy])
def test_global_generators_are_untouched(agent, make_env, seed, policy):
    env = make_env("RandomMDP-v0")
    check_generators(lambda agent, env: agent.evaluate(env, policy=policy, n_steps=30, seed=seed), agent, env)


def test_generators_are_restored_after_an_error(agent, make_env):
    def policy(observation):
        noisy_policy(observation)
        raise KeyError("policy")

    def evaluate(agent, env):
        with pytest.raises(KeyError, match="policy"):
            agent.evaluate(env, policy=policy, seed=0)

    check_generators(evaluate, agent, make_env("RandomMDP-v0"))


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: torch.rand(1)])
def test_the_generator_check_catches(agent, make_env, draw):
    with pytest.raises(AssertionError):
        check_generators(lambda agent, env: (agent.evaluate(env, n_steps=3), draw()), agent, make_env("BoyanChain-v0"))


def test_the_environments_own_action_generator_is_untouched(agent, make_env):
    draws = []
    for evaluated in (True, False):
        env = make_env("RandomMDP-v0")
        env.action_space.seed(0)
        if evaluated:
            agent.evaluate(env, n_steps=10, seed=1)
        draws.append([int(env.action_space.sample()) for _ in range(20)])
    assert draws[0] == draws[1]


def check_frozen(evaluate, agent, env):
    before = {name: tensor.clone() for name, tensor in agent.model.state_dict().items()}
    evaluate(agent, env)
    for name, tensor in agent.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in agent.model.parameters())
    assert torch.is_grad_enabled()


def test_no_parameter_and_no_gradient_changes(make_env):
    def learns(agent, env):
        agent.model.requires_grad_(True)
        agent.model.attention_weight.square().sum().backward()

    def drifts(agent, env):
        with torch.no_grad():
            agent.model.value_weight.add_(1e-6)

    check_frozen(lambda agent, env: agent.evaluate(env, n_steps=50), ICRLAgent.from_theory(), make_env("BoyanChain-v0"))
    for double in (learns, drifts):
        with pytest.raises(AssertionError):
            check_frozen(double, ICRLAgent.from_theory(), make_env("BoyanChain-v0"))


class Remembers:
    """An agent that keeps its context."""

    def __init__(self, agent):
        self.agent, self.extra = agent, 0

    def evaluate(self, env, n_steps, **options):
        self.extra += 5
        return self.agent.evaluate(env, n_steps=n_steps + self.extra, **options)


def check_order(agent_of, make_first, make_second):
    """Evaluating a then b gives what b then a gives, on environments used again and on new ones."""
    answers = {}
    for order in ("ab", "ba"):
        agent, envs = agent_of(), {"a": make_first(), "b": make_second()}
        for name in order + order:
            result = agent.evaluate(envs[name], n_steps=70, seed=1)
            answers.setdefault(name, []).append(result.values)
    for values in answers.values():
        for again in values[1:]:
            np.testing.assert_array_equal(again, values[0])


def test_the_order_of_evaluations_does_not_matter(make_env):
    def first():
        return gym.make_vec("BoyanChainClassic-v0", num_envs=2, max_episode_steps=3)

    def second():
        return make_env("BoyanChainClassic-v0", max_episode_steps=7)

    check_order(ICRLAgent.from_theory, first, second)
    with pytest.raises(AssertionError):
        check_order(lambda: Remembers(ICRLAgent.from_theory()), first, second)


def test_an_environment_in_mid_episode_is_reset(agent, make_env):
    used, fresh = make_env("RandomMDP-v0"), make_env("RandomMDP-v0")
    used.reset(seed=9)
    for _ in range(5):
        used.step(0)
    results = [agent.evaluate(env, n_steps=30, seed=2) for env in (used, fresh)]
    np.testing.assert_array_equal(results[0].values, results[1].values)
