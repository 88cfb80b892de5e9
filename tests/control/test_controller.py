"""A controller keeps the contract of act and observe, of predict, of save and load, and of refused calls."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agent import ICRLAgent
from icrl_agent.control import Epsilon, Optimism
from icrl_agent.features import OneHot, PairFeatures, RandomUnit

from .conftest import ENVIRONMENTS, play

GAMMA = 0.9


def make(agent, environment="RandomMDP", **options):
    env = ENVIRONMENTS[environment]()
    return env, agent.controller(env, GAMMA, **{"seed": 1, **options})


def check_frozen(run, agent):
    before = {name: tensor.clone() for name, tensor in agent.model.state_dict().items()}
    run()
    for name, tensor in agent.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in agent.model.parameters())


def test_acting_changes_no_parameter_and_makes_no_gradient():
    agent = ICRLAgent.from_theory(n_layers=10)
    check_frozen(lambda: agent.control(ENVIRONMENTS["RandomMDP"](), 60, seed=0), agent)

    def learns():
        agent.model.requires_grad_(True)
        agent.model.attention_weight.square().sum().backward()

    with pytest.raises(AssertionError):
        check_frozen(learns, agent)


def check_determinism(run):
    first, second, other = (run(seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.q_values, second.q_values)
    assert not np.array_equal(first.q_values, other.q_values)


@pytest.mark.parametrize("exploration", [Epsilon(0.3), Optimism(1.0)])
def test_seeded_runs_repeat(agents, exploration):
    check_determinism(
        lambda seed: agents["theory"].control(ENVIRONMENTS["episodes"](), 80, exploration=exploration, seed=seed)
    )
    with pytest.raises(AssertionError):
        check_determinism(lambda seed: agents["theory"].control(ENVIRONMENTS["episodes"](), 80, exploration=0.5))


def test_an_action_stands_until_its_outcome(agents):
    env, controller = make(agents["theory"], exploration=1.0)
    obs, _ = env.reset(seed=0)
    assert len({controller.act(obs) for _ in range(20)}) == 1
    controller.observe(1.0, 2, False, False)
    with pytest.raises(RuntimeError, match="call act before"):
        controller.observe(1.0, 2, False, False)
    assert controller.n_transitions == 1


def test_another_observation_starts_an_episode(agents):
    """A reset that nobody announced is a truncation: no transition joins the two episodes."""
    _, controller = make(agents["theory"])
    controller.act(0)
    controller.observe(1.0, 1, False, False)
    controller.act(4)
    controller.observe(1.0, 2, False, False)
    sums, pairs = controller.stream.history.sums, controller.stream.observations
    left = [tuple(pairs[slot, :1]) for slot in np.flatnonzero(sums.counts)]
    assert sorted(left) == [(0,), (4,)]
    source, following = np.nonzero(sums.successors)
    assert sorted((int(pairs[s, 0]), int(pairs[f, 0])) for s, f in zip(source, following, strict=True)) == [
        (0, 1),
        (4, 2),
    ]


def test_termination_is_worth_nothing_and_truncation_goes_on(agents):
    """One pair that pays 1 and comes back to itself."""
    values = {}
    for terminated, truncated in ((True, False), (True, True), (False, True), (False, False)):
        env = gym.make("BoyanChain-v0", n_states=3)
        controller = agents["theory"].controller(env, 0.5, n_layers=60, seed=0)
        for _ in range(3):
            controller.act(0)
            controller.observe(1.0, 0, terminated, truncated)
        values[terminated, truncated] = float(controller.q_values(0)[0])
    assert values[True, False] == values[True, True] == pytest.approx(1.0)
    assert values[False, True] == values[False, False] == pytest.approx(2.0)


def test_visits_count_the_pairs(agents):
    env, controller = make(agents["theory"], exploration=0.6)
    taken = np.zeros((5, 3), int)
    obs, _ = env.reset(seed=0)
    for _ in range(50):
        action = controller.act(obs)
        taken[obs, action] += 1
        obs, reward, *_ = env.step(action)
        controller.observe(reward, obs, False, False)
    np.testing.assert_array_equal(controller.visits(np.arange(5)), taken)
    np.testing.assert_array_equal(controller.visits(3), taken[3])


def test_predict_is_what_stable_baselines_expects(agents):
    from stable_baselines3.common.evaluation import evaluate_policy

    env, controller = make(agents["theory"], "CartPole", exploration=1.0)
    play(controller, env, 60)
    before = controller.n_transitions
    observations = np.array([env.observation_space.sample() for _ in range(5)]) * 0 + np.arange(5)[:, None] / 50
    batch, state = controller.predict(observations, deterministic=True)
    single = [controller.predict(row, deterministic=True)[0] for row in observations]
    np.testing.assert_array_equal(batch, single)
    np.testing.assert_array_equal(batch, controller.q_values(observations).argmax(axis=1))
    assert batch.dtype == np.int64
    assert state is None
    assert {int(controller.predict(observations[0])[0]) for _ in range(30)} == {0, 1}  # exploring
    mean, _ = evaluate_policy(controller, gym.make("CartPole-v1"), n_eval_episodes=2, warn=False)
    assert mean > 0
    assert controller.n_transitions == before


def test_actions_that_start_elsewhere(agents):
    class Shifted(gym.ActionWrapper):
        def __init__(self, env):
            super().__init__(env)
            self.action_space = gym.spaces.Discrete(3, start=5)

        def action(self, action):
            return action - 5

    plain, shifted = ENVIRONMENTS["RandomMDP"](), Shifted(ENVIRONMENTS["RandomMDP"]())
    results = [agents["theory"].control(env, 60, seed=2, exploration=0.3) for env in (plain, shifted)]
    np.testing.assert_array_equal(results[0].q_values, results[1].q_values)
    assert set(results[1].controller.predict(np.arange(5))[0]) <= {5, 6, 7}


@pytest.mark.parametrize("context_length", [None, 30])
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_saved_context_goes_on(agents, tmp_path, environment, context_length):
    env, controller = make(agents["theory"], environment, context_length=context_length, exploration=0.4)
    play(controller, env, 45)
    asked = np.array([env.observation_space.sample() for _ in range(4)])
    if environment == "CartPole":
        asked = np.clip(asked, -1, 1)
    controller.save(tmp_path / "context.npz")
    _, other = make(agents["theory"], environment, context_length=context_length, exploration=0.4, seed=9)
    play(other, env, 3)
    other.load(tmp_path / "context.npz")
    assert (other.n_transitions, other.n_steps) == (controller.n_transitions, controller.n_steps)
    np.testing.assert_allclose(other.q_values(asked), controller.q_values(asked), atol=1e-10)
    np.testing.assert_array_equal(other.visits(asked), controller.visits(asked))
    # Both go on alike, through whatever leaves the window.
    for step in range(40):
        for one in (controller, other):
            one.act(asked[step % 3])
            one._planned = (one._planned[0], 1)
            one.stream.reset(np.append(one._planned[0], 1))
            one.observe(0.1 * step, asked[(step + 1) % 3], step % 7 == 0, True)
    np.testing.assert_allclose(other.q_values(asked), controller.q_values(asked), atol=1e-10)


BAD_CONTEXTS = {
    "actions": (lambda: gym.make("RandomMDP-v0", n_states=5, n_actions=4), {}, "n_actions 3, this controller has 4"),
    "states": (lambda: gym.make("RandomMDP-v0", n_states=6, n_actions=3), {}, "has features"),
    "window": (ENVIRONMENTS["RandomMDP"], {"context_length": 9}, "context_length None, this controller has 9"),
}


@pytest.mark.parametrize("case", BAD_CONTEXTS)
def test_a_context_of_another_kind_is_refused(agents, tmp_path, case):
    env, controller = make(agents["theory"])
    play(controller, env, 20)
    controller.save(tmp_path / "context.npz")
    make_env, options, match = BAD_CONTEXTS[case]
    other_env = make_env()
    other = agents["theory"].controller(other_env, GAMMA, seed=0, **options)
    play(other, other_env, 5)
    before = other.q_values(np.arange(5))
    with pytest.raises(ValueError, match=match):
        other.load(tmp_path / "context.npz")
    np.testing.assert_array_equal(other.q_values(np.arange(5)), before)


@pytest.mark.parametrize("content", [b"", b"not a context"])
def test_a_file_that_is_no_context_is_refused(agents, tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    _, controller = make(agents["theory"])
    for path in (tmp_path / "file", tmp_path / "missing"):
        with pytest.raises(ValueError, match="cannot be read as a saved context"):
            controller.load(path)


BAD_CALLS = {
    "state": (lambda c: c.act(5), "observation 5 is not in Discrete"),
    "float": (lambda c: c.act(1.0), "is not in Discrete"),
    "shape": (lambda c: c.act([1, 2]), "one observation"),
    "next state": (lambda c: c.observe(1.0, -1, False, False), "observation -1 is not in Discrete"),
    "reward": (lambda c: c.observe(float("nan"), 1, False, False), "reward must be a finite number"),
    "q_values": (lambda c: c.q_values([[[1]]]), "have shape"),
    "predict": (lambda c: c.predict(9), "is not in Discrete"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_refused_call_changes_nothing(agents, case):
    call, match = BAD_CALLS[case]
    env, controller = make(agents["theory"], exploration=0.5)
    _, twin = make(agents["theory"], exploration=0.5)
    for one in (controller, twin):
        obs = play(one, env, 10)
        one.act(obs)
    with pytest.raises(ValueError, match=match):
        call(controller)
    for one in (controller, twin):
        one.observe(0.3, 2, False, False)
    np.testing.assert_array_equal(controller.q_values(np.arange(5)), twin.q_values(np.arange(5)))
    assert [controller.predict(1)[0] for _ in range(5)] == [twin.predict(1)[0] for _ in range(5)]


BAD_ARGUMENTS = {
    "exploration": ({"exploration": 1.5}, ValueError, r"must be a number in \[0, 1\], got 1.5"),
    "negative": ({"exploration": -0.1}, ValueError, "must be a number in"),
    "no exploration": ({"exploration": "much"}, TypeError, "exploration must be a number"),
    "target": ({"target": "best"}, ValueError, "target must be one of"),
    "refresh": ({"refresh_every": 0}, ValueError, "refresh_every must be an integer of at least 1, got 0"),
    "gamma": ({"gamma": 1.1}, ValueError, "gamma must be a number"),
    "window": ({"context_length": 0}, ValueError, "context_length must be an integer"),
    "features": ({"feature_map": OneHot(5)}, ValueError, "5 features, the weights need feature_dim = 32"),
    "other actions": ({"feature_map": PairFeatures(RandomUnit(5, 32), 4)}, ValueError, "knows 4 actions from 0"),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments(agents, case):
    options, kind, match = BAD_ARGUMENTS[case]
    with pytest.raises(kind, match=match):
        agents["theory"].controller(ENVIRONMENTS["RandomMDP"](), **options)


BAD_ENVIRONMENTS = {
    "Box actions": (lambda: gym.make("MountainCarContinuous-v0"), "a controller chooses among Discrete actions"),
    "images": (lambda: gym.wrappers.AddRenderObservation(gym.make("CartPole-v1", render_mode="rgb_array")), "flatten"),
    "vector": (lambda: gym.make_vec("RandomMDP-v0", num_envs=2), "one controller per copy"),
    "nothing": (lambda: None, "got NoneType"),
}


@pytest.mark.parametrize("case", [name for name in BAD_ENVIRONMENTS if name != "images"])
def test_environments_that_are_not_supported(agents, case):
    make_env, match = BAD_ENVIRONMENTS[case]
    with pytest.raises(TypeError, match=match):
        agents["theory"].controller(make_env())


@pytest.mark.parametrize("options", [{"n_steps": 0}, {"record_at": [0]}, {"record_at": [61]}, {"record_at": []}])
def test_control_refuses_steps_out_of_range(agents, options):
    with pytest.raises(ValueError, match=r"n_steps must be|record_at must name steps in 1 \.\. 60"):
        agents["theory"].control(ENVIRONMENTS["RandomMDP"](), **{"n_steps": 60, **options})
