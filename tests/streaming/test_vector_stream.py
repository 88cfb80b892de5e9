"""Many histories in one batch are as many streams, each by itself."""

from __future__ import annotations

import numpy as np
import pytest

import icrl_agent.streaming.layers
import icrl_agent.streaming.vector
from icrl_agent.features import RandomFourier, RandomUnit

from .conftest import AGENTS, DIM

GAMMA = 0.9
FEATURES = {"integers": RandomUnit(6, DIM, seed=1), "vectors": RandomFourier((0.0, 0.0), (1.0, 1.0), DIM, seed=1)}


def check_vector(vector, singles, kind, seed=0, n_events=50):
    """Steps and resets of random subsets: values, one query each or all queries, equal those of the single streams."""
    rng, E = np.random.default_rng(seed), len(singles)
    states = np.arange(6) if kind == "integers" else rng.uniform(-1, 1, (6, 2))
    vector.reset(states[np.zeros(E, int)])
    for one in singles:
        one.reset(states[0])
    ended = np.zeros(E, bool)
    for _ in range(n_events):
        resets = ended | (rng.random(E) < 0.1)
        obs = states[rng.integers(5, size=E)]
        steps = ~resets & (rng.random(E) < 0.9)
        rewards = np.where(steps, rng.uniform(-1, 1, E), np.nan)  # rows that are not meant may hold anything
        terminated, truncated = rng.random((2, E)) < 0.15
        vector.reset(obs, where=resets)
        vector.append(rewards, obs, terminated, truncated, where=steps)
        for e, one in enumerate(singles):
            if resets[e]:
                one.reset(obs[e])
            elif steps[e]:
                one.append(rewards[e], obs[e], bool(terminated[e]), bool(truncated[e]))
        ended = np.where(steps, terminated | truncated, ended & ~resets)
        asked = states[rng.integers(6, size=E)]
        np.testing.assert_allclose(
            vector.value(asked), [s.value(q) for s, q in zip(singles, asked, strict=True)], atol=1e-10
        )
        np.testing.assert_allclose(vector.values(states), [s.values(states) for s in singles], atol=1e-10)
    assert vector.n_transitions.tolist() == [s.n_transitions for s in singles]


def streams(agent, kind, num_envs=4, **arguments):
    feature_map = FEATURES[kind]
    vector = agent.vector_stream(num_envs, feature_map, GAMMA, **arguments)
    return vector, [agent.stream(feature_map, GAMMA, **arguments) for _ in range(num_envs)]


@pytest.mark.parametrize("context_length", [None, 1, 9])
@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("weights", AGENTS)
def test_a_batch_is_a_loop_of_streams(agents, weights, kind, context_length):
    check_vector(*streams(agents[weights], kind, context_length=context_length), kind)


@pytest.mark.parametrize("arguments", [{"tolerance": 1e-2}, {"n_layers": "fixed_point"}, {"n_layers": 7}], ids=str)
def test_other_depths(agents, arguments):
    check_vector(*streams(agents["theory"], "integers", context_length=9, **arguments), "integers")


def test_scores_that_underflow(agents, monkeypatch):
    monkeypatch.setattr(icrl_agent.streaming.layers, "LARGEST_SPREAD", 0.0)
    for arguments in ({}, {"n_layers": "fixed_point"}, {"tolerance": 1e-3}):
        check_vector(*streams(agents["theory"], "vectors", context_length=7, **arguments), "vectors", n_events=25)


@pytest.mark.parametrize("change", [{"gamma": 0.89}, {"context_length": 10}, {"n_layers": 59}], ids=str)
def test_the_vector_check_catches(agents, change):
    agent = agents["theory"]
    _, singles = streams(agent, "integers", context_length=9)
    arguments = {"gamma": GAMMA, "context_length": 9, **change}
    with pytest.raises(AssertionError):
        check_vector(agent.vector_stream(4, FEATURES["integers"], **arguments), singles, "integers")


class Broken:
    """A vector stream that differs from the real one in one thing."""

    def __init__(self, vector, kind):
        self.vector, self.kind = vector, kind

    def __getattr__(self, name):
        return getattr(self.vector, name)

    def append(self, rewards, next_obs, terminated, truncated, where):
        if self.kind == "a time limit ends":
            terminated = terminated | truncated
        self.vector.append(np.nan_to_num(rewards), next_obs, terminated, truncated, where)

    def reset(self, obs, where=None):
        self.vector.reset(obs, None if self.kind == "where ignored" else where)

    def value(self, obs):
        return (
            np.roll(self.vector.value(obs), 1) if self.kind == "another environment's value" else self.vector.value(obs)
        )


@pytest.mark.parametrize("kind", ["a time limit ends", "where ignored", "another environment's value"])
def test_the_vector_check_catches_a_wrong_environment(agents, kind):
    vector, singles = streams(agents["theory"], "integers", context_length=9)
    with pytest.raises(AssertionError):
        check_vector(Broken(vector, kind), singles, "integers")


def test_a_large_reward_leaves_nothing_behind(agents):
    feature_map = FEATURES["integers"]
    vector = agents["theory"].vector_stream(2, feature_map, GAMMA, 10)
    rng = np.random.default_rng(0)
    vector.reset([0, 0])
    for step in range(100):
        reward, state = rng.uniform(-1, 1), int(rng.integers(6))
        vector.append([1e12 if step % 23 == 5 else reward, reward], [state, state], False, False)
        if step % 23 in (4, 16, 17, 20):
            first, second = vector.values(range(6))
            np.testing.assert_allclose(first, second, atol=1e-8)


def test_clear_one_environment(agents):
    vector, singles = streams(agents["theory"], "integers", 3, context_length=9)
    check_vector(vector, singles, "integers")
    vector.clear(where=np.array([False, True, False]))
    values = vector.values(range(6))
    assert (values[1] == 0).all()
    np.testing.assert_allclose(values[[0, 2]], [singles[0].values(range(6)), singles[2].values(range(6))], atol=1e-10)
    with pytest.raises(RuntimeError, match="call reset"):
        vector.append(np.zeros(3), [0, 0, 0], False, False)
    vector.clear()
    assert (vector.values(range(6)) == 0).all()


BAD_CALLS = {
    "reward": (lambda s: s.append([0.0, np.nan], [0, 1], False, False), "rewards must be finite float32 numbers"),
    "rewards": (lambda s: s.append([0.0], [0, 1], False, False), r"of shape \(2,\), got \[0.0\] of shape \(1,\)"),
    **{
        f"reward {reward!r:.9}": (
            lambda s, r=reward: s.append([0.0, r], [0, 1], False, False),
            "rewards must be finite float32 numbers",
        )
        for reward in (None, [1.0], "a", "1.5", 10**400, 1e308)
    },
    **{
        f"{name} {flag!r}": (
            lambda s, n=name, f=flag: s.append(
                [0.0, 0.0], [0, 1], **{"terminated": False, "truncated": [False, False], n: f}
            ),
            f"{name} must be True or False for each environment, got",
        )
        for name in ("terminated", "truncated")
        for flag in ("False", None, 2, [0, 1], [False, None], [[True], [True, False]])
    },
    "flags": (lambda s: s.append([0.0, 0.0], [0, 1], [True], False), r"terminated must have shape \(2,\), got \(1,\)"),
    "next_obs": (lambda s: s.append([0.0, 0.0], [0, 1, 2], False, False), r"must have shape \(2,\), got \(3,\)"),
    "unknown": (lambda s: s.append([0.0, 0.0], [4, 9], False, False), "state 9 has no features"),
    "reset": (lambda s: s.reset([[0], [1]]), r"must have shape \(2,\), got \(2, 1\)"),
    "query": (lambda s: s.value([0]), r"must have shape \(2,\), got \(1,\)"),
    "queries": (lambda s: s.values([[0]]), r"batch of observations of shape \(\), got shape \(1, 1\)"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_refused_call_changes_nothing(agents, case):
    call, match = BAD_CALLS[case]
    vector, twin = (agents["theory"].vector_stream(2, FEATURES["integers"], GAMMA, 5) for _ in range(2))
    for one in (vector, twin):
        one.reset([0, 1])
    rng = np.random.default_rng(0)
    for _ in range(12):
        arguments = rng.normal(size=2), rng.integers(6, size=2), False, False
        with pytest.raises((ValueError, TypeError), match=match):
            call(vector)
        for one in (vector, twin):
            one.append(*arguments)
        np.testing.assert_array_equal(vector.values(range(6)), twin.values(range(6)))


def test_too_many_states_and_bad_sizes(agents, monkeypatch):
    monkeypatch.setattr(icrl_agent.streaming.vector, "LARGEST_TABLE", 2 * 3**2)
    vector = agents["theory"].vector_stream(2, FEATURES["integers"], GAMMA)
    vector.reset([0, 1])
    vector.append([1.0, 1.0], [1, 2], False, False)
    with pytest.raises(ValueError, match="2 environments have shown 4 distinct observations"):
        vector.append([1.0, 1.0], [1, 3], False, False)
    assert vector.n_transitions.tolist() == [1, 1]
    with pytest.raises(ValueError, match="num_envs must be an integer of at least 1, got 0"):
        agents["theory"].vector_stream(0, FEATURES["integers"], GAMMA)
    with pytest.raises(ValueError, match="context_length must be"):
        agents["theory"].vector_stream(2, FEATURES["integers"], GAMMA, 0)
