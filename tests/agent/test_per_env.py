"""One context per copy of a vector environment: each is what evaluate makes of that copy's transitions alone."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

import icrl_agent.estimate
from icrl_agent import ICRLAgent
from icrl_agent.envs import state_values
from icrl_agent.features import feature_map_for
from icrl_agent.model import SoftmaxICTD

GAMMA, COPIES = 0.9, 3
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def chain(task_seed, limit=4):
    return gym.make("BoyanChain-v0", task_seed=task_seed, max_episode_steps=limit)


def cart(_):
    return gym.make("CartPole-v1", max_episode_steps=6)


def native(mode):
    return gym.make_vec("BoyanChain-v0", num_envs=COPIES, task_seed=2, autoreset_mode=mode, max_episode_steps=4)


KINDS = {
    **{f"native {mode.name}": lambda mode=mode: native(mode) for mode in MODES},
    **{
        f"sync {mode.name}": lambda mode=mode: SyncVectorEnv(
            [lambda i=i: chain(i) for i in range(COPIES)], autoreset_mode=mode
        )
        for mode in MODES
    },
    "sb3": lambda: DummyVecEnv([lambda i=i: chain(i) for i in range(COPIES)]),
    "cart": lambda: SyncVectorEnv([lambda: cart(0)] * COPIES),
}
DEPTHS = {"": {}, "tolerance": {"tolerance": 1e-2}, "limit": {"n_layers": "fixed_point"}}
# Nearly equal states of short cart episodes: the layers have no limit there (radius above 1).
CASES = [(kind, depth) for kind in KINDS for depth in DEPTHS if (kind, depth) != ("cart", "limit")]


def check_per_env(evaluate, agent, kind, n_steps=40, **depth):
    results = evaluate(KINDS[kind](), n_steps=n_steps, gamma=GAMMA, seed=0, per_env=True, **depth)
    assert len(results) == COPIES
    for number, result in enumerate(results):
        t = result.transitions
        assert len(t) == result.n_steps == n_steps
        assert (t.copy == number).all()
        ends = t.terminated | t.truncated
        np.testing.assert_array_equal(t.observations[1:][~ends[:-1]], t.next_observations[:-1][~ends[:-1]])
        alone = agent.evaluate_transitions(t, GAMMA, result.states, feature_map=feature_map(agent, kind), **depth)
        np.testing.assert_allclose(result.values, alone.values, atol=1e-10)
        np.testing.assert_array_equal(result.visits, alone.visits)
        assert result.n_layers == alone.n_layers
        assert result.diagnostics.last_layer_change == pytest.approx(alone.diagnostics.last_layer_change, abs=1e-10)
        if kind != "cart":
            task = number if kind.startswith(("sync", "sb3")) else 2
            np.testing.assert_array_equal(
                result.true_values, state_values(chain(task).unwrapped.mdp.policy_mrp(), GAMMA)
            )
            assert result.diagnostics.kernel_diagonality_mean == pytest.approx(
                alone.diagnostics.kernel_diagonality_mean
            )
    return results


def feature_map(agent, kind):
    env = cart(0) if kind == "cart" else chain(0)
    return feature_map_for(env.observation_space, agent.model.feature_dim, agent.feature_seed)


@pytest.mark.parametrize(("kind", "depth"), CASES)
def test_each_copy_is_evaluated_alone(agent, kind, depth):
    check_per_env(agent.evaluate, agent, kind, **DEPTHS[depth])


def test_layers_of_their_own(agent):
    own = ICRLAgent(SoftmaxICTD(32, n_layers=3, shared=False, seed=1))
    check_per_env(own.evaluate, own, "sync SAME_STEP")


def test_a_loop_is_the_batch(agent, monkeypatch):
    batch = agent.evaluate(KINDS["sync SAME_STEP"](), n_steps=30, seed=0, per_env=True)
    monkeypatch.setattr(icrl_agent.estimate, "LARGEST_BATCH", 0)
    loop = agent.evaluate(KINDS["sync SAME_STEP"](), n_steps=30, seed=0, per_env=True)
    for one, other in zip(batch, loop, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-12)
        assert one.to_dict().keys() == other.to_dict().keys()


def one_context_for_all(agent):
    def evaluate(env, **arguments):
        arguments.pop("per_env")
        n_steps = arguments.pop("n_steps")
        return [agent.evaluate(native(MODES[0]), n_steps=n_steps * COPIES, **arguments)] * COPIES

    return evaluate


def copies_exchanged(agent):
    return lambda env, **arguments: agent.evaluate(env, **arguments)[::-1]


@pytest.mark.parametrize("double", [one_context_for_all, copies_exchanged])
def test_the_check_catches(agent, double):
    with pytest.raises(AssertionError):
        check_per_env(double(agent), agent, "native NEXT_STEP")


def test_queries_policies_and_refusals(agent):
    env = gym.make_vec("RandomMDP-v0", num_envs=2, task_seed=1)
    always = np.eye(4)[[2] * 10]
    results = agent.evaluate(env, always, n_steps=50, seed=0, queries=[3, 4], per_env=True)
    truth = state_values(env.unwrapped.mdp.policy_mrp(always), GAMMA)
    assert [result.values.shape for result in results] == [(2,), (2,)]
    np.testing.assert_array_equal(results[1].true_values, truth[[3, 4]])
    with pytest.raises(TypeError, match="per_env needs a vector environment, got TimeLimit"):
        agent.evaluate(chain(0), per_env=True)
    with pytest.raises(ValueError, match="gamma 1 needs certain termination"):
        agent.evaluate(gym.make_vec("BoyanChainClassic-v0", num_envs=2), n_steps=1, gamma=1.0, per_env=True)
