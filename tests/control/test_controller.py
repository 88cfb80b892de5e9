"""A controller keeps the contract of act and observe, of predict, and of refused calls."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

import icrl_agent.control.targets
from icrl_agent import ICRLAgent
from icrl_agent.control import Epsilon, Optimism
from icrl_agent.features import OneHot, PairFeatures, RandomFourier, RandomUnit

from .conftest import ENVIRONMENTS, make, play


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


BAD_REWARDS = [float("nan"), None, [1.0], np.array([1.0]), "a", "1.5", 10**400, 1e308, 1j]
BAD_FLAGS = ["False", None, 2, 0, np.array([True]), np.array([True, False])]

BAD_CALLS = {
    "state": (lambda c: c.act(5), "observation 5 is not in Discrete"),
    "nothing": (lambda c: c.act([]), r"one observation of shape \(\) is needed|at least one observation is needed"),
    "ragged": (lambda c: c.act([[1], [1, 2]]), "observations are finite numbers"),
    "None": (lambda c: c.act(None), "observation None is not in Discrete"),
    "text": (lambda c: c.act("a"), "observation 'a' is not in Discrete"),
    "float": (lambda c: c.act(1.0), "is not in Discrete"),
    "shape": (lambda c: c.act([1, 2]), "one observation"),
    "next state": (lambda c: c.observe(1.0, -1, False, False), "observation -1 is not in Discrete"),
    **{
        f"reward {number}": (
            lambda c, r=reward: c.observe(r, 1, False, False),
            "rewards must be finite float32 numbers",
        )
        for number, reward in enumerate(BAD_REWARDS)
    },
    **{
        f"terminated {number}": (lambda c, f=flag: c.observe(1.0, 2, f, False), "terminated must be True or False")
        for number, flag in enumerate(BAD_FLAGS)
    },
    **{
        f"truncated {number}": (lambda c, f=flag: c.observe(1.0, 2, False, f), "truncated must be True or False")
        for number, flag in enumerate(BAD_FLAGS)
    },
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
    with pytest.raises((ValueError, TypeError), match=match):
        call(controller)
    assert controller.n_transitions == twin.n_transitions
    assert controller._rng.bit_generator.state == twin._rng.bit_generator.state
    for one in (controller, twin):
        one.observe(0.3, 2, np.bool_(False), np.array(False))
    np.testing.assert_array_equal(controller.q_values(np.arange(5)), twin.q_values(np.arange(5)))
    assert [controller.predict(1)[0] for _ in range(5)] == [twin.predict(1)[0] for _ in range(5)]


class Gappy(RandomUnit):
    """Features that lack what is asked for."""

    def __init__(self, missing, n_states=5):
        super().__init__(n_states, 32)
        object.__setattr__(self, "missing", missing)

    def __call__(self, observations):
        found = np.array(super().__call__(np.asarray(observations).astype(int)))
        found[(np.asarray(observations) == self.missing).all(axis=1)] = np.nan
        return found


class Holed(RandomFourier):
    """Fourier features, none where the first number is 2."""

    def __call__(self, observations):
        rows = np.asarray(observations)
        return np.where(rows[:, :1] == 2, np.nan, super().__call__(rows))


def test_an_observation_without_features_is_refused_before_anything_is_drawn(agents):
    pair = [
        agents["theory"].controller(
            ENVIRONMENTS["CartPole"](), feature_map=Holed(0.0, 1.0, 32), exploration=0.5, refresh_every=1, seed=0
        )
        for _ in range(2)
    ]
    controller, twin = pair
    for step in range(6):
        here, there = np.full(4, step / 10), np.full(4, (step + 1) / 10)
        with pytest.raises(ValueError, match="not finite"):
            controller.act(np.full(4, 2.0))
        assert controller.act(here) == twin.act(here)
        with pytest.raises(ValueError, match="not finite"):
            controller.observe(1.0, np.full(4, 2.0), False, False)
        assert controller._rng.bit_generator.state == twin._rng.bit_generator.state
        assert controller._refreshed_at == twin._refreshed_at
        for one in pair:
            one.observe(1.0, there, False, False)
    np.testing.assert_array_equal(controller.q_values(here), twin.q_values(here))


BOX_CALLS = {
    "text": ["a", "b", "c", "d"],
    "None": None,
    "ragged": [[1.0], [1.0, 2.0]],
    "not finite": [0.0, 0.0, np.nan, 0.0],
    "nothing": np.zeros((0, 4)),
    "complex": [1j, 0, 0, 0],
}


@pytest.mark.parametrize("case", BOX_CALLS)
def test_box_observations_are_finite_numbers(agents, case):
    _, controller = make(agents["theory"], "CartPole")
    for call in (controller.act, controller.predict, controller.q_values):
        with pytest.raises(ValueError, match=r"observations are finite numbers of shape|observation is needed|one obs"):
            call(BOX_CALLS[case])
    assert controller.act([100.0, 0.0, 0.0, 0.0]) in (0, 1)  # outside the bounds, as Gymnasium's environments are


def test_an_observation_array_may_be_used_again(agents):
    """A reset shows although the environment writes every observation into one array."""
    _, controller = make(agents["theory"], "CartPole")
    shared = np.zeros(4)
    controller.act(shared)
    controller.observe(1.0, shared, False, False)
    shared[:] = 1.0
    controller.act(shared)
    assert controller.stream.slot([1.0] * 4 + [controller.act(shared)]) is not None


AUTO = {
    "sharpness": ({"sharpness": "auto"}, "RandomMDP", "number as sharpness, not 'auto'"),
    "lengthscale": ({"lengthscale": "auto"}, "CartPole", "number as lengthscale, not 'auto'"),
}


@pytest.mark.parametrize("case", AUTO)
def test_what_is_chosen_for_a_context_is_refused(case):
    options, environment, match = AUTO[case]
    agent, env = ICRLAgent.from_theory(32, **options), ENVIRONMENTS[environment]()
    for call in (lambda: agent.controller(env), lambda: agent.control(env, 20)):
        with pytest.raises(ValueError, match=match):
            call()


@pytest.mark.parametrize(("lengthscale", "expected"), [(3.0, 3.0), ("median", 2.0)])
def test_a_number_as_lengthscale_is_that_of_the_default_features(lengthscale, expected):
    agent = ICRLAgent.from_theory(feature_dim=16, lengthscale=lengthscale)
    # A policy acts before there is a context whose median could be taken: then it is sqrt(k) of k numbers.
    pairs = agent.controller(gym.make("CartPole-v1")).stream.feature_map
    assert pairs.observation_map.lengthscale == expected


def test_an_automatic_lengthscale_that_is_not_used_does_no_harm():
    agent = ICRLAgent.from_theory(32, lengthscale="auto")
    agent.controller(ENVIRONMENTS["RandomMDP"]())
    agent.controller(ENVIRONMENTS["CartPole"](), feature_map=RandomFourier(0.0, 1.0, 32))


@pytest.mark.parametrize("target", ["greedy", "recorded"])
def test_without_a_limit_gamma_1_is_named(agents, monkeypatch, target):
    monkeypatch.setattr(icrl_agent.control.targets, "MOST_LAYERS", 300)
    env = ENVIRONMENTS["RandomMDP"]()
    for gamma, ending in ((1.0, "; gamma is 1, then every episode must end$"), (0.999, "do not settle$")):
        controller = agents["theory"].controller(env, gamma, target, n_layers="fixed_point", seed=0)
        with pytest.raises(ValueError, match=rf"have no limit on this context.*{ending}"):
            play(controller, env, 20)


BAD_ARGUMENTS = {
    "too few states": ({"feature_map": RandomUnit(4, 32)}, ValueError, "lacks features for states 0 to 4: state 4"),
    "a gap": ({"feature_map": Gappy(3)}, ValueError, "state 3 has features that are not finite"),
    "not fitted": ({"feature_map": RandomFourier("context", "context", 32)}, ValueError, "lacks features for states"),
    "bonus": ({"exploration": 1e39}, ValueError, "must be a number in"),
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
    "vector": (
        lambda: gym.make_vec("RandomMDP-v0", num_envs=2),
        r"got TabularVectorEnv: make one controller per copy$",
    ),
    "nothing": (lambda: None, r"one Gymnasium environment, got None$"),
    "a number": (lambda: 3, r"one Gymnasium environment, got 3$"),
    "a name": (lambda: "RandomMDP-v0", r"one Gymnasium environment, got 'RandomMDP-v0'$"),
}


@pytest.mark.parametrize("case", [name for name in BAD_ENVIRONMENTS if name != "images"])
def test_environments_that_are_not_supported(agents, case):
    make_env, match = BAD_ENVIRONMENTS[case]
    with pytest.raises(TypeError, match=match):
        agents["theory"].controller(make_env())


@pytest.mark.parametrize(
    "options",
    [
        {"n_steps": 0},
        {"record_at": [0]},
        {"record_at": [61]},
        {"record_at": []},
        {"record_at": 10},
        {"record_at": [[1, 2]]},
        {"record_at": [1.5]},
        {"record_at": ["a"]},
        {"record_at": [[1], [1, 2]]},
    ],
)
def test_control_refuses_steps_out_of_range(agents, options):
    with pytest.raises(ValueError, match=r"n_steps must be|record_at must name steps in 1 \.\. 60"):
        agents["theory"].control(ENVIRONMENTS["RandomMDP"](), **{"n_steps": 60, **options})


def test_control_refuses_a_progress_that_is_no_function(agents):
    with pytest.raises(TypeError, match="progress must be a function of the step or None, got 3"):
        agents["theory"].control(ENVIRONMENTS["RandomMDP"](), 60, progress=3)
