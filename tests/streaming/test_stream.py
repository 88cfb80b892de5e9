"""A stream answers what the literal transformer answers on the same window, at every step, whatever happened."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

import icrl_agent.streaming.layers
from icrl_agent import HistoryWrapper, ICRLAgent
from icrl_agent.features import OneHot, RandomFourier, RandomUnit

from .conftest import AGENTS, DIM, FEATURES, LiteralWindow, random_events

TOLERANCE = 1e-8
GAMMA = 0.9


def check_stream(stream, literal, features, seed, n_events=40):
    """After every event: the values of states seen and not seen, one by one and together."""
    rng = np.random.default_rng(seed)
    unseen = np.arange(6) if features == "few states" else rng.uniform(-1, 1, (2, 2))
    for name, *arguments in random_events(rng, features, n_events):
        getattr(stream, name)(*arguments)
        getattr(literal, name)(*arguments)
        queries = np.concatenate([unseen, [arguments[0] if name == "reset" else arguments[1]]])
        expected = literal.values(queries)
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(stream.values(queries), expected, atol=TOLERANCE, rtol=TOLERANCE)
        assert stream.value(queries[-1]) == pytest.approx(expected[-1], abs=TOLERANCE, rel=TOLERANCE)


@pytest.mark.parametrize("context_length", [None, 1, 2, 7, 40])
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("weights", AGENTS)
def test_a_stream_is_the_literal_forward_pass(agents, weights, features, context_length):
    agent, feature_map = agents[weights], FEATURES[features]
    stream = agent.stream(feature_map, GAMMA, context_length)
    literal = LiteralWindow(agent, feature_map, GAMMA, context_length)
    check_stream(stream, literal, features, seed=context_length or 0)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("n_layers", [1, 3, 17])
def test_other_discounts_and_depths(agents, gamma, n_layers):
    agent, feature_map = agents["theory"], FEATURES["few states"]
    literal = LiteralWindow(agent, feature_map, gamma, 20, n_layers)
    check_stream(agent.stream(feature_map, gamma, 20, n_layers), literal, "few states", seed=n_layers)


@pytest.mark.parametrize("context_length", [None, 30])
def test_layers_one_by_one_are_the_squared_map(agents, monkeypatch, context_length):
    monkeypatch.setattr(icrl_agent.streaming.layers, "LARGEST_SQUARED", 0)
    agent, feature_map = agents["universal"], FEATURES["few states"]
    literal = LiteralWindow(agent, feature_map, GAMMA, context_length)
    check_stream(agent.stream(feature_map, GAMMA, context_length), literal, "few states", seed=5)


def test_scores_that_underflow_are_masked(agents, monkeypatch):
    """Contexts share exponentials only where no score is far below the largest; both ways are the same."""
    agent, feature_map = ICRLAgent.from_theory(sharpness=900.0, n_layers=20), FEATURES["few states"]
    check_stream(agent.stream(feature_map, GAMMA, 6), LiteralWindow(agent, feature_map, GAMMA, 6), "few states", seed=0)
    monkeypatch.setattr(icrl_agent.streaming.layers, "LARGEST_SPREAD", 0.0)
    agent = agents["universal"]
    check_stream(agent.stream(feature_map, GAMMA, 6), LiteralWindow(agent, feature_map, GAMMA, 6), "few states", seed=1)


class Broken:
    """A stream that differs from the real one in one thing."""

    def __init__(self, stream, kind):
        self.stream, self.kind = stream, kind

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def append(self, reward, next_obs, terminated, truncated):
        if self.kind == "a time limit ends":
            terminated = terminated or truncated
        if self.kind == "both flags: truncated":
            terminated = terminated and not truncated
        self.stream.append(reward, next_obs, terminated, truncated)

    def reset(self, obs):
        if self.kind == "no column for an end":
            self.stream._has_steps = False
        if self.kind == "a reset forgets":
            self.stream.clear()
        self.stream.reset(obs)


@pytest.mark.parametrize(
    "kind", ["a time limit ends", "both flags: truncated", "no column for an end", "a reset forgets"]
)
def test_the_stream_check_catches(agents, kind):
    agent, feature_map = agents["theory"], FEATURES["few states"]
    double = Broken(agent.stream(feature_map, GAMMA, 12), kind)
    with pytest.raises(AssertionError):
        check_stream(double, LiteralWindow(agent, feature_map, GAMMA, 12), "few states", seed=3)


@pytest.mark.parametrize("change", [{"gamma": 0.89}, {"context_length": 13}, {"n_layers": 59}])
def test_the_stream_check_catches_arguments(agents, change):
    agent, feature_map = agents["theory"], FEATURES["few states"]
    double = agent.stream(feature_map, **{"gamma": GAMMA, "context_length": 12, **change})
    with pytest.raises(AssertionError):
        check_stream(double, LiteralWindow(agent, feature_map, GAMMA, 12), "few states", seed=3)


def test_a_window_is_that_of_the_history_wrapper(agents):
    """The same environment under HistoryWrapper: agent.value of its observation, in its float32."""
    import gymnasium as gym

    agent, feature_map = agents["theory"], RandomUnit(13, DIM, seed=0)
    env = HistoryWrapper(gym.make("BoyanChainClassic-v0", max_episode_steps=9), 20, feature_map)
    raw = gym.make("BoyanChainClassic-v0", max_episode_steps=9)
    stream = agent.stream(feature_map, GAMMA, 20)
    obs, _ = env.reset(seed=0)
    here, _ = raw.reset(seed=0)
    stream.reset(here)
    ended = False
    # Features rounded to float32 move scores of 8 by 8 eps, and values of at most 30 over 60 layers.
    rounding = 30 * 60 * 8 * float(np.finfo(np.float32).eps)
    for _ in range(120):
        if ended:
            obs, _ = env.reset()
            here, _ = raw.reset()
            stream.reset(here)
            ended = False
        else:
            obs, *_ = env.step(0)
            here, reward, terminated, truncated, _ = raw.step(0)
            stream.append(reward, here, terminated, truncated)
            ended = terminated or truncated
        assert stream.value(here) == pytest.approx(agent.value(obs, GAMMA), abs=rounding)


def test_a_large_reward_leaves_nothing_behind(agents):
    """A reward of 1e12 that has left the window does not show in the values after it."""
    agent, feature_map = agents["theory"], FEATURES["few states"]
    stream, clean = (agent.stream(feature_map, GAMMA, 10) for _ in range(2))
    rng = np.random.default_rng(0)
    for one in (stream, clean):
        one.reset(0)
    for step in range(200):
        reward, state = rng.uniform(-1, 1), int(rng.integers(6))
        stream.append(1e12 if step % 23 == 5 else reward, state, False, False)
        clean.append(reward, state, False, False)
        if step % 23 in (4, 16, 17, 20):  # ten columns after the last large one
            np.testing.assert_allclose(stream.values(range(6)), clean.values(range(6)), atol=TOLERANCE)


@pytest.mark.parametrize("weights", ["theory", "universal"])
@pytest.mark.parametrize("solved", [500, 3], ids=["solved", "iterated"])
def test_fixed_point_is_the_limit_of_many_layers(agents, monkeypatch, weights, solved):
    monkeypatch.setattr(icrl_agent.streaming.layers, "LARGEST_SOLVED", solved)
    agent, feature_map = agents[weights], FEATURES["few states"]
    limit, deep = (agent.stream(feature_map, GAMMA, 50, n_layers) for n_layers in ("fixed_point", 4000))
    for name, *arguments in random_events(np.random.default_rng(1), "few states", 80):
        getattr(limit, name)(*arguments)
        getattr(deep, name)(*arguments)
        np.testing.assert_allclose(limit.values(range(6)), deep.values(range(6)), atol=1e-8)


@pytest.mark.parametrize("solved", [500, 1], ids=["solved", "iterated"])
def test_no_limit_names_the_radius(monkeypatch, solved):
    monkeypatch.setattr(icrl_agent.streaming.layers, "LARGEST_SOLVED", solved)
    stream = ICRLAgent.from_theory(sharpness=0.1, step_size=50.0).stream(RandomUnit(6, DIM), GAMMA, None, "fixed_point")
    stream.reset(0)
    for state in (1, 2, 0, 1):
        stream.append(1.0, state, False, False)
    with pytest.raises(ValueError, match=r"spectral radius of a layer is [\d.]+, not below 1"):
        stream.value(0)


def test_memory_is_bounded_by_the_window(agents):
    """Endless new observations: tables of the window's size, and nothing per step."""
    feature_map = FEATURES["every state new"]
    stream = agents["theory"].stream(feature_map, GAMMA, 20)
    rng = np.random.default_rng(0)
    stream.reset(rng.uniform(-1, 1, 2))

    def run(n_steps):
        for step in range(n_steps):
            stream.append(0.5, rng.uniform(-1, 1, 2), step % 9 == 0, False)
            if step % 9 == 0:
                stream.reset(rng.uniform(-1, 1, 2))

    run(500)
    assert stream._sums.size <= 23
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    run(3000)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # One float per step would be 24 kB.
    assert grown < 8_000
    assert stream._sums.size <= 23


BAD_ARGUMENTS = {
    "context_length": ({"context_length": 0}, "context_length must be an integer of at least 1 or None, got 0"),
    "gamma": ({"gamma": 1.5}, "gamma must be a number in"),
    "n_layers": ({"n_layers": 0}, "n_layers must be an integer of at least 1, got 0"),
    "tolerance": ({"tolerance": -1.0}, "tolerance must be a finite number of at least 0"),
    "both": ({"tolerance": 0.1, "n_layers": "fixed_point"}, "give tolerance or 'fixed_point', not both"),
    "features": ({"feature_map": OneHot(6)}, "6 features, the weights need feature_dim = 32"),
    "no features": ({"feature_map": None}, "a stream needs a feature map"),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments(agents, case):
    changes, match = BAD_ARGUMENTS[case]
    with pytest.raises((ValueError, TypeError), match=match):
        agents["theory"].stream(**{"feature_map": FEATURES["few states"], "gamma": GAMMA, **changes})


BAD_CALLS = {
    **{
        f"reward {reward!r:.9}": (
            lambda s, r=reward: s.append(r, [0.0, 0.1], False, False),
            "rewards must be finite float32 numbers, got",
        )
        for reward in (float("nan"), None, [1.0], np.array([1.0]), "a", "1.5", 10**400, 1e308)
    },
    **{
        f"{name} {flag!r}": (
            lambda s, n=name, f=flag: s.append(1.0, [0.0, 0.1], **{"terminated": False, "truncated": False, n: f}),
            f"{name} must be True or False, got",
        )
        for name in ("terminated", "truncated")
        for flag in ("False", None, 2, 1, np.array([True]))
    },
    "next_obs": (lambda s: s.append(1.0, [0.0], False, False), r"have shape \(2,\), got shape \(1,\)"),
    "not finite": (lambda s: s.append(1.0, [0.0, np.inf], False, False), "not finite"),
    "reset": (lambda s: s.reset([0.0, 0.1, 0.2]), r"have shape \(2,\), got shape \(3,\)"),
    "query": (lambda s: s.value([0.0, 0.1, 0.2]), r"have shape \(2,\), got shape \(3,\)"),
    "queries": (lambda s: s.values([[0.0]]), r"batch of observations of shape \(2,\), got shape \(1, 1\)"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_refused_call_changes_nothing(agents, case):
    call, match = BAD_CALLS[case]
    agent, feature_map = agents["theory"], FEATURES["every state new"]
    stream, twin = (agent.stream(feature_map, GAMMA, 5) for _ in range(2))
    rng = np.random.default_rng(0)
    for one in (stream, twin):
        one.reset([0.3, 0.3])
    for step in range(30):
        arguments = rng.normal(), rng.uniform(-1, 1, 2), step % 7 == 0, False
        with pytest.raises((ValueError, TypeError), match=match):
            call(stream)
        for one in (stream, twin):
            one.append(*arguments)
            if step % 7 == 0:
                one.reset([0.1, 0.2])
        queries = rng.uniform(-1, 1, (3, 2))
        np.testing.assert_array_equal(stream.values(queries), twin.values(queries))
    assert stream.n_transitions == twin.n_transitions


def test_append_needs_a_running_episode(agents):
    stream = agents["theory"].stream(FEATURES["few states"], GAMMA)
    with pytest.raises(RuntimeError, match="call reset with its first state before"):
        stream.append(1.0, 1, False, False)
    assert stream.value(3) == 0.0
    stream.reset(0)
    stream.append(1.0, 1, True, False)
    with pytest.raises(RuntimeError, match="call reset with its first state before"):
        stream.append(1.0, 1, False, False)
    assert stream.n_transitions == 1
    stream.clear()
    assert (stream.values(range(6)) == 0).all()
    with pytest.raises(RuntimeError, match="call reset with its first state before"):
        stream.append(1.0, 1, False, False)


@pytest.mark.parametrize("squared", [64, 0], ids=["squared", "one by one"])
def test_layers_that_diverge_are_named(monkeypatch, squared):
    monkeypatch.setattr(icrl_agent.streaming.layers, "LARGEST_SQUARED", squared)
    stream = ICRLAgent.from_theory(step_size=50.0, n_layers=2000).stream(FEATURES["few states"], GAMMA)
    stream.reset(0)
    stream.append(1.0, 1, False, False)
    stream.append(1.0, 0, False, False)
    with pytest.raises(ValueError, match="values after 2000 layers are not finite"):
        stream.value(0)


def test_an_observation_array_may_be_used_again(agents):
    """An environment that writes every observation into one array."""
    feature_map = RandomFourier((0.0,), (1.0,), DIM, seed=0)
    stream, copied = (agents["theory"].stream(feature_map, GAMMA, 8) for _ in range(2))
    shared = np.zeros(1)
    stream.reset(shared)
    copied.reset(shared.copy())
    for step in range(20):
        shared[:] = np.sin(step)
        stream.append(1.0, shared, False, False)
        copied.append(1.0, shared.copy(), False, False)
    shared[:] = 99.0
    assert stream.value(np.array([0.2])) == copied.value(np.array([0.2]))


def test_no_torch_no_gradient(agents):
    """Values come from the weights as they are; the model is left alone."""
    agent = agents["theory"]
    before = {name: tensor.clone() for name, tensor in agent.model.state_dict().items()}
    stream = agent.stream(FEATURES["few states"], GAMMA, tolerance=1e-6)
    stream.reset(0)
    stream.append(1.0, 1, False, False)
    stream.value(0)
    assert all(torch.equal(before[name], tensor) for name, tensor in agent.model.state_dict().items())


@pytest.mark.parametrize("features", FEATURES)
def test_tolerance_stops_at_the_layer_that_changes_nothing_above_it(agents, features):
    """The values are those of some depth; that depth's last layer is the first below the tolerance."""
    agent, feature_map = agents["theory"], FEATURES[features]
    stopped = agent.stream(feature_map, GAMMA, 15, 200, tolerance=1e-2)
    by_depth = [agent.stream(feature_map, GAMMA, 15, n_layers) for n_layers in range(1, 201)]
    for name, *arguments in random_events(np.random.default_rng(2), features, 25):
        for stream in (stopped, *by_depth):
            getattr(stream, name)(*arguments)
    queries = np.arange(6) if features == "few states" else np.random.default_rng(0).uniform(-1, 1, (5, 2))
    found = stopped.values(queries)
    same = [k for k, stream in enumerate(by_depth) if np.allclose(stream.values(queries), found, atol=1e-12, rtol=0)]
    assert len(same) == 1
    changes = [np.abs(a._table() - b._table())[_touched(a)].max() for a, b in zip(by_depth[1:], by_depth, strict=False)]
    assert next(k for k, change in enumerate(changes) if change <= 1e-2) + 1 == same[0]


def _touched(stream):
    sums = stream._sums.sums
    return (sums.counts > 0) | (sums.successors > 0).any(axis=0)


def test_numbers_and_flags_of_numpy_are_taken(agents):
    stream, twin = (agents["theory"].stream(FEATURES["few states"], GAMMA) for _ in range(2))
    for one in (stream, twin):
        one.reset(0)
    for reward in (np.float32(2.0), np.int64(2), np.array(2.0), True + 1):
        stream.append(reward, 1, np.bool_(False), np.array(False))
        twin.append(2.0, 1, False, False)
    assert stream.value(1) == twin.value(1)
    stream.append(3.4e38, 1, False, True)
    stream.reset(0)
