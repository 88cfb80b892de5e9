"""What the critics regress on, recomputed by hand from recorded batches and the weights of that moment."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import A2C

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent.collect import collect
from icrl_agent.eval.baselines import SB3Baseline

GAMMA = 0.9
N_STATES = 13
# A time limit of 7 cuts many episodes of the classic chain; only entering state 0 is an end.
LIMIT = 7
# float32 rounding of numbers below 100.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-4}


def linear_values(head, row=0):
    """Values of all states from a linear critic's head."""
    weight, bias = (p.detach().double().numpy().copy() for p in head.parameters())
    return weight[row] + bias[row]


def check_dqn(gamma, *, cut_is_an_end=False):
    baseline = SB3Baseline("dqn")
    baseline.fit(gym.make("BoyanChainClassic-v0", max_episode_steps=LIMIT), 60, GAMMA, 2)
    model = baseline.model
    v, v_target = linear_values(model.q_net.q_net[-1]), linear_values(model.q_net_target.q_net[-1])
    batches = []
    sample = model.replay_buffer.sample
    model.replay_buffer.sample = lambda *args, **kwargs: batches.append(sample(*args, **kwargs)) or batches[-1]
    model.train(gradient_steps=1, batch_size=40)
    (batch,) = batches
    s, s_next = (getattr(batch, name).numpy().astype(int).reshape(-1) for name in ("observations", "next_observations"))
    ended = s_next == 0
    if cut_is_an_end:
        ended = np.ones(len(s), bool)
    target = batch.rewards.numpy().reshape(-1) + gamma * np.where(ended, 0.0, v_target[s_next])
    loss = model.logger.name_to_value["train/loss"]
    np.testing.assert_allclose(loss, np.mean((v[s] - target) ** 2), **TOLERANCE)


def test_dqn_regresses_on_the_one_step_target():
    check_dqn(GAMMA)
    for broken in ({"gamma": 0.5}, {"gamma": GAMMA, "cut_is_an_end": True}):
        with pytest.raises(AssertionError):
            check_dqn(**broken)


def lambda_returns(record, start, stop, v, gamma, lambda_):
    """G = r + gamma ((1 - lambda) v(s') + lambda G'), ending in v(s') at a cut and in 0 at an end."""
    returns = np.zeros(stop - start)
    following = None
    for k in range(stop - 1, start - 1, -1):
        v_next = v[record.next_observations[k]]
        if record.terminated[k]:
            target = 0.0
        elif record.truncated[k] or following is None:
            target = v_next
        else:
            target = (1 - lambda_) * v_next + lambda_ * following
        following = returns[k - start] = record.rewards[k] + gamma * target
    return returns


def check_a2c(monkeypatch, kind, n_steps, lambda_, gamma=GAMMA):
    seen = []
    train = A2C.train

    def recorded_train(self):
        seen.append((self.rollout_buffer.returns[:, 0].copy(), linear_values(self.policy.value_net)))
        train(self)

    with monkeypatch.context() as patch:
        patch.setattr(A2C, "train", recorded_train)
        env = gym.make("BoyanChainClassic-v0", max_episode_steps=LIMIT)
        record = collect(env, None, 60, 4)
        SB3Baseline(kind).fit_transitions(record, env.observation_space, GAMMA, 4)
    assert len(seen) == 60 // n_steps
    assert (record.truncated & ~record.terminated).any()
    assert record.terminated.any()
    for rollout, (returns, v) in enumerate(seen):
        start = rollout * n_steps
        expected = lambda_returns(record, start, start + n_steps, v, gamma, lambda_)
        np.testing.assert_allclose(returns, expected, **TOLERANCE)


@pytest.mark.parametrize(("kind", "n_steps", "lambda_"), [("td0", 1, 0.0), ("a2c", 5, 0.95)])
def test_a2c_regresses_on_lambda_returns(monkeypatch, kind, n_steps, lambda_):
    check_a2c(monkeypatch, kind, n_steps, lambda_)
    with pytest.raises(AssertionError):
        check_a2c(monkeypatch, kind, n_steps, lambda_, gamma=0.5)
