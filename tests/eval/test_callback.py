"""The frozen estimate beside a training critic, in Stable-Baselines3's own log."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import A2C, DQN, PPO
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent import ICRLAgent
from icrl_agent.envs import state_values
from icrl_agent.eval.callback import CRITIC_ESTIMATE, FROZEN_ESTIMATE, TRUE_VALUE, ICTDValueCallback, critic_values


@pytest.mark.parametrize(("algorithm", "options"), [(A2C, {}), (PPO, {"n_steps": 32, "batch_size": 32}), (DQN, {})])
def test_estimates_are_logged_beside_the_critic(tmp_path, algorithm, options):
    env = gym.make("RandomMDP-v0", task_seed=3)
    agent = ICRLAgent.from_theory()
    before = [p.clone() for p in agent.model.parameters()]
    callback = ICTDValueCallback(agent, gym.make("RandomMDP-v0", task_seed=3), every=50, n_steps=400)
    model = algorithm("MlpPolicy", env, gamma=0.8, seed=0, device="cpu", tensorboard_log=str(tmp_path), **options)
    model.learn(160, callback=callback)
    assert [entry["num_timesteps"] for entry in callback.history] == [50, 100, 150]
    assert callback.last.gamma == 0.8
    assert all((a == b).all() for a, b in zip(before, agent.model.parameters(), strict=True))
    for entry in callback.history:
        # 400 steps of a ten-state task with rewards in (-1, 1) and horizon 5.
        assert abs(entry["frozen"] - entry["truth"]) < 0.5
        assert entry["critic"] is not None
    (run,) = tmp_path.iterdir()
    events = EventAccumulator(str(run))
    events.Reload()
    for tag, name in ((FROZEN_ESTIMATE, "frozen"), (CRITIC_ESTIMATE, "critic"), (TRUE_VALUE, "truth")):
        points = {point.step: point.value for point in events.Scalars(tag)}
        assert points == pytest.approx({e["num_timesteps"]: e[name] for e in callback.history}, rel=1e-5)


def test_the_truth_is_that_of_the_acting_policy():
    """Actor-critics act by probabilities, not by the mode that ``predict`` gives."""
    env = gym.make("RandomMDP-v0", task_seed=3)
    model = A2C("MlpPolicy", env, gamma=0.8, seed=0, device="cpu")
    callback = ICTDValueCallback(ICRLAgent.from_theory(), env, every=5, n_steps=300)
    model.learn(5, callback=callback)
    tensor, _ = model.policy.obs_to_tensor(np.arange(10))
    probabilities = model.policy.get_distribution(tensor).distribution.probs.detach().double().numpy()
    mdp = env.unwrapped.mdp
    acting = state_values(mdp.policy_mrp(probabilities / probabilities.sum(axis=1, keepdims=True)), 0.8)
    # The callback saw the weights before the update that ended the rollout: close, not equal.
    assert np.abs(callback.last.true_values - acting).max() < 0.1
    mode = state_values(mdp.policy_mrp(np.eye(4)[probabilities.argmax(axis=1)]), 0.8)
    assert np.abs(callback.last.true_values - mode).max() > 0.1


def test_unknown_truth_and_continuous_observations():
    env = gym.make("CartPole-v1")
    callback = ICTDValueCallback(ICRLAgent.from_theory(n_layers=10), gym.make("CartPole-v1"), every=20, n_steps=50)
    PPO("MlpPolicy", env, n_steps=32, batch_size=32, device="cpu").learn(32, callback=callback)
    assert [entry["truth"] for entry in callback.history] == [None]
    assert critic_values(object.__new__(_NoCritic), np.zeros((1, 4))) is None


class _NoCritic:
    policy = None


@pytest.mark.parametrize("name", ["every", "n_steps"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {value}"):
        ICTDValueCallback(ICRLAgent.from_theory(), gym.make("BoyanChain-v0"), **{name: value})
