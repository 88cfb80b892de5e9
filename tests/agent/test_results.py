"""The evaluation's own numbers: truth, errors, diagnostics; and its forms: dict, CSV, figure."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from matplotlib import colors
from matplotlib.collections import PathCollection

from icrl_agent import ICRLAgent
from icrl_agent.features import RandomUnit
from icrl_agent.wrappers import PolicyWrapper

GAMMA = 0.8


def truth_by_iteration(mdp, policy, gamma):
    """Values and the visit distribution of the restarted process, by repeated application of the tables."""
    S, A = mdp.reward.shape
    pi = np.full((S, A), 1 / A) if policy is None else np.asarray(policy)
    v, mu = np.zeros(S), np.array(mdp.initial)
    average = np.zeros(S)
    for _ in range(400):  # 0.8^400 < 1e-38
        v = np.array(
            [
                0.0 if mdp.terminal[s] else sum(
                    pi[s, a] * (mdp.reward[s, a] + gamma * mdp.transition[s, a] @ v) for a in range(A)
                )
                for s in range(S)
            ]
        )  # fmt: skip
    for _ in range(20_000):
        step = np.einsum("s,sa,sat->t", mu, pi, mdp.transition)
        ended = step[mdp.terminal].sum()
        step[mdp.terminal] = 0.0
        # The lazy chain has the same stationary distribution and no period.
        mu = 0.5 * mu + 0.5 * (step + ended * mdp.initial)
    average = mu / mu.sum()
    return v, average


def check_errors(evaluate, env, policy=None):
    result = evaluate(env, policy)
    mdp = env.unwrapped.mdp
    v, mu = truth_by_iteration(mdp, policy, GAMMA)
    np.testing.assert_allclose(result.true_values, v, atol=1e-9)
    squared = sum(m * (a - b) ** 2 for m, a, b in zip(mu, result.values, v, strict=True))
    mean = sum(mu * v)
    assert result.msve == pytest.approx(squared, rel=1e-6)
    assert result.normalized_msve == pytest.approx(squared / sum(mu * v**2), rel=1e-6)
    assert result.centred_msve == pytest.approx(squared / sum(mu * (v - mean) ** 2), rel=1e-6)
    assert result.reason is None


def evaluate_with(agent):
    return lambda env, policy: agent.evaluate(env, policy=policy, n_steps=120, gamma=GAMMA, seed=0)


@pytest.mark.parametrize("name", ["BoyanChain-v0", "BoyanChainClassic-v0", "RandomMDP-v0", "TabularMDP-v0"])
def test_truth_and_errors_by_hand(agent, make_env, name):
    check_errors(evaluate_with(agent), make_env(name))


def test_truth_of_a_policy_table(agent, make_env):
    policy = np.random.default_rng(0).dirichlet(np.ones(4), size=10)
    env = make_env("RandomMDP-v0")
    check_errors(evaluate_with(agent), env, policy)

    def policy_dropped(env, policy):
        return agent.evaluate(env, n_steps=120, gamma=GAMMA, seed=0)

    def wrapped(env, policy):
        return agent.evaluate(PolicyWrapper(env, policy), n_steps=120, gamma=GAMMA, seed=0)

    check_errors(wrapped, env, policy)
    with pytest.raises(AssertionError):
        check_errors(policy_dropped, env, policy)


def test_the_error_check_catches_equal_weights(agent, make_env):
    def equal_weights(env, policy):
        result = evaluate_with(agent)(env, policy)
        return replace(result, msve=float(np.mean((result.values - result.true_values) ** 2)))

    with pytest.raises(AssertionError):
        check_errors(equal_weights, make_env("BoyanChain-v0"))


class Doubled(gym.RewardWrapper):
    """A wrapper nobody knows."""

    def reward(self, reward):
        return 2.0 * float(reward)


@pytest.mark.parametrize(
    ("build", "policy", "reason"),
    [
        (lambda: Doubled(gym.make("BoyanChain-v0")), None, "wrapper Doubled may change"),
        (lambda: gym.make("RandomMDP-v0"), lambda observation: 0, "policy is no table"),
        (lambda: gym.make("CartPole-v1"), None, "CartPoleEnv has no tables"),
    ],
)
def test_no_truth_where_it_is_not_certain(agent, build, policy, reason):
    result = agent.evaluate(build(), policy=policy, n_steps=20, seed=0)
    assert (result.true_values, result.msve, result.normalized_msve, result.centred_msve) == (None,) * 4
    assert reason in result.reason


# Diagnostics ---------------------------------------------------------------------------------------------------------


def check_diagnostics(agent, diagnostics, transitions, visits):
    """From the attention of every visited state, transition by transition."""
    x = RandomUnit(10, 32)(np.arange(10))
    left = [s for s in range(10) if visits[s] > 0]
    M = np.zeros((10, 10))
    for s in range(10):
        shares = [math.exp(8.0 * float(x[s] @ x[k])) for k in transitions.observations]
        for k, share in zip(transitions.observations, shares, strict=True):
            M[s, k] += share / sum(shares)
    assert diagnostics.kernel_diagonality_mean == pytest.approx(np.mean([M[s, s] for s in left]), abs=1e-6)
    assert diagnostics.kernel_diagonality_min == pytest.approx(min(M[s, s] for s in left), abs=1e-6)
    margin = min(M[s, s] for s in left) - (1 + GAMMA) / 2
    assert diagnostics.assumption_margin == pytest.approx(margin, abs=1e-6)
    assert diagnostics.n_visited == len(left)
    # The map of the TD errors, I - (E - gamma P) K.
    P = np.zeros((10, 10))
    for s, successor in zip(transitions.observations, transitions.next_observations, strict=True):
        P[s, successor] += 1 / visits[s]
    K = M[:, left]
    errors = np.eye(len(left)) - (np.eye(10)[left] - GAMMA * P[left]) @ K
    assert diagnostics.spectral_radius == pytest.approx(np.abs(np.linalg.eigvals(errors)).max(), abs=1e-6)


@pytest.mark.parametrize("n_steps", [4, 100])
def test_diagnostics_by_hand(agent, make_env, n_steps):
    result = agent.evaluate(make_env("BoyanChain-v0"), n_steps=n_steps, gamma=GAMMA, seed=0)
    check_diagnostics(agent, result.diagnostics, result.transitions, result.visits)
    other = ICRLAgent.from_theory(sharpness=4.0).evaluate(
        make_env("BoyanChain-v0"), n_steps=n_steps, gamma=GAMMA, seed=0
    )
    with pytest.raises(AssertionError):
        check_diagnostics(agent, other.diagnostics, result.transitions, result.visits)


@pytest.mark.parametrize("n_layers", [1, 9])
def test_last_layer_change(agent, make_env, n_layers):
    deep = agent.evaluate(make_env("BoyanChain-v0"), n_steps=60, n_layers=n_layers + 1, seed=0)
    shallow = agent.evaluate(make_env("BoyanChain-v0"), n_steps=60, n_layers=n_layers, seed=0)
    change = np.abs(deep.values - shallow.values).max()
    assert deep.diagnostics.last_layer_change == pytest.approx(change, rel=1e-9)


def test_diagnostics_of_a_box_space_are_none(agent, make_env):
    diagnostics = agent.evaluate(make_env("CartPole-v1"), n_steps=30, seed=0).diagnostics
    for name in ("kernel_diagonality_mean", "kernel_diagonality_min", "assumption_margin", "spectral_radius"):
        assert getattr(diagnostics, name) is None
    assert diagnostics.n_visited == 30
    assert diagnostics.last_layer_change > 0


def test_no_eigenvalues_above_500_states(agent):
    n = 600
    P = np.roll(np.eye(n), 1, axis=1)
    env = gym.make("TabularMDP-v0", transition=P, reward=np.ones(n), initial=np.eye(n)[0])
    diagnostics = agent.evaluate(env, n_steps=n, n_layers=1, seed=0).diagnostics
    assert diagnostics.spectral_radius is None
    assert diagnostics.kernel_diagonality_mean is not None


# Forms ---------------------------------------------------------------------------------------------------------------


def test_to_dict_is_json(agent, make_env, any_env):
    result = agent.evaluate(make_env(any_env), n_steps=25, seed=0)
    # No NaN and no infinity, which JSON does not know.
    told = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert told["values"] == result.values.tolist()
    assert told["visits"] == result.visits.tolist()
    assert told["states"] == result.states.tolist()
    assert told["true_values"] == (None if result.true_values is None else result.true_values.tolist())
    assert told["n_steps"] == 25
    assert told["diagnostics"]["n_visited"] == result.diagnostics.n_visited
    assert {"msve", "normalized_msve", "centred_msve", "n_layers", "gamma", "seconds", "reason"} <= set(told)


def test_layers_that_diverge_are_refused(make_env):
    diverging = ICRLAgent.from_theory(sharpness=0.1, step_size=50.0, n_layers=2000)
    with pytest.raises(ValueError, match="values after 2000 layers are not finite"):
        diverging.evaluate(make_env("BoyanChain-v0"), n_steps=60, seed=0)
    few = ICRLAgent.from_theory(sharpness=0.1, step_size=50.0, n_layers=20)
    result = few.evaluate(make_env("BoyanChain-v0"), n_steps=60, seed=0)
    assert result.diagnostics.spectral_radius > 2


def check_csv(write, result, path):
    write(result, path)
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["state", "value", "true_value", "visits"]
    assert len(rows) == len(result.values)
    for i, row in enumerate(rows):
        assert [float(part) for part in row["state"].split()] == np.ravel(result.states[i]).tolist()
        assert float(row["value"]) == result.values[i]
        assert (
            row["true_value"] == "" if result.true_values is None else float(row["true_value"]) == result.true_values[i]
        )
        assert int(row["visits"]) == result.visits[i]


def rounded(result, path):
    replace(result, values=result.values.round(6)).to_csv(path)


def test_csv_is_read_back_exactly(agent, make_env, any_env, tmp_path):
    result = agent.evaluate(make_env(any_env), n_steps=25, seed=0)
    check_csv(type(result).to_csv, result, tmp_path / "values.csv")
    if np.abs(result.values).max() > 0:
        with pytest.raises(AssertionError):
            check_csv(rounded, result, tmp_path / "values.csv")


def check_hollow(figure, result):
    """States never left are drawn white inside, the others filled; every value is there."""
    points = [c for c in figure.axes[0].collections if isinstance(c, PathCollection)]
    drawn = {}
    for collection in points:
        hollow = colors.to_hex(collection.get_facecolor()[0]) == "#ffffff"
        for x, y in np.asarray(collection.get_offsets()):
            drawn[int(x)] = (hollow, y)
    assert len(drawn) == len(result.values)
    for i, value in enumerate(result.values):
        assert drawn[i] == (result.visits[i] == 0, pytest.approx(value))


def test_plot_draws_fill_ins_hollow(agent, make_env, tmp_path):
    result = agent.evaluate(make_env("BoyanChain-v0"), n_steps=4, seed=0)
    assert (result.visits == 0).any()
    figure = result.plot(tmp_path / "values.png")
    assert (tmp_path / "values.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    check_hollow(figure, result)
    with pytest.raises(AssertionError):
        check_hollow(replace(result, visits=np.ones(10, int)).plot(), result)


def test_every_environment_can_be_plotted(agent, make_env, any_env, tmp_path):
    path = tmp_path / "values.svg"
    agent.evaluate(make_env(any_env), n_steps=70, seed=0).plot(path)
    assert path.stat().st_size > 1000
