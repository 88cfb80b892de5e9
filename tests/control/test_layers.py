"""One map in three forms: the float64 reference, the literal layer on the prompt, the layers on sums by pair."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icrl_agent.algorithms import weighted_softmax_q, weighted_softmax_td
from icrl_agent.control import Optimism
from icrl_agent.control.exploration import epsilon_greedy
from icrl_agent.control.reading import read
from icrl_agent.model import SoftmaxICTD, pooled_values, tsm_layer
from icrl_agent.model.transformer import attention_weights

from .conftest import AGENTS, DIM, ENVIRONMENTS, History, play

TOLERANCE = 1e-9
GAMMA = 0.9


def random_context(rng, n=14, n_actions=3, d=4):
    """Features of pairs left, rewards, features of the successors' pairs, continues, action taken next, queries."""
    x = rng.standard_normal((n, d))
    return {
        "features": x,
        "rewards": rng.uniform(-1, 1, n),
        "successors": rng.standard_normal((n, n_actions, d)),
        "continues": (rng.random(n) < 0.8).astype(float),
        "queries": rng.standard_normal((3, d)),
    }


def weights_of(kind, rng, n, n_actions):
    if kind == "greedy":
        return None
    if kind == "recorded":
        return np.eye(n_actions)[rng.integers(n_actions, size=n)]
    return rng.dirichlet(np.ones(n_actions), size=n)


def loops(context, gamma, n_iterations, probabilities, bonus, sharpness=1.0):
    """The definition, one number at a time."""
    x, r, x_next, c, queries = context.values()
    n, n_actions, _ = x_next.shape
    attention = {}

    def value_of(key, features, errors):
        if key not in attention:
            weights = [np.exp(sharpness * float(features @ source)) for source in x]
            attention[key] = [weight / sum(weights) for weight in weights]
        return sum(share * error for share, error in zip(attention[key], errors, strict=True))

    summed = [0.0] * n
    for _ in range(n_iterations):
        deltas = []
        for k in range(n):
            following = [value_of((k, a), x_next[k, a], summed) + bonus[k, a] for a in range(n_actions)]
            if probabilities is None:
                target = max(following)
            else:
                target = sum(p * value for p, value in zip(probabilities[k], following, strict=True))
            deltas.append(r[k] + gamma * c[k] * target - value_of(("u", k), x[k], summed))
        summed = [before + delta for before, delta in zip(summed, deltas, strict=True)]
    return [value_of(("q", i), query, summed) for i, query in enumerate(queries)]


def check_reference(reference, kind, change=None):
    rng = np.random.default_rng(3)
    context = random_context(rng)
    probabilities = weights_of(kind, rng, 14, 3)
    bonus = rng.uniform(0, 1, (14, 3))
    arguments = {"gamma": GAMMA, "probabilities": probabilities, "bonus": bonus, **(change or {})}
    for n_iterations in (0, 1, 2, 9):
        expected = loops(context, GAMMA, n_iterations, probabilities, bonus)
        result = reference(**context, n_iterations=n_iterations, **arguments)[n_iterations]
        np.testing.assert_allclose(result, expected, atol=1e-12)


@pytest.mark.parametrize("kind", ["recorded", "expected", "greedy"])
def test_the_reference_is_its_definition(kind):
    check_reference(weighted_softmax_q, kind)


@pytest.mark.parametrize("change", [{"gamma": 0.8}, {"bonus": None}, {"step_size": 0.9}, {"probabilities": None}])
def test_the_reference_check_catches(change):
    with pytest.raises(AssertionError):
        check_reference(weighted_softmax_q, "expected", change)


def test_the_recorded_action_is_weighted_softmax_td():
    """On one chain of pairs the recorded target is the paper's algorithm."""
    rng = np.random.default_rng(0)
    chain, rewards = rng.standard_normal((11, 4)), rng.uniform(-1, 1, 10)
    successors = np.stack([chain[1:], rng.standard_normal((10, 4))], axis=1)
    recorded = np.tile([1.0, 0.0], (10, 1))
    result = weighted_softmax_q(chain[:-1], rewards, successors, GAMMA, 12, probabilities=recorded, queries=chain)
    np.testing.assert_allclose(result, weighted_softmax_td(chain, rewards, GAMMA, 12), atol=1e-12)


def prompt_of(context, probabilities):
    """Columns: the pairs left, one for every successor pair, the queries."""
    x, r, x_next, c, queries = context.values()
    n, n_actions, d = x_next.shape
    columns = np.concatenate([x, x_next.reshape(-1, d), queries])
    size = len(columns)
    prompt = np.zeros((d + 3, size))
    prompt[:d], prompt[d, :n] = columns.T, r
    sources, continues = np.arange(size) < n, np.ones(size)
    continues[:n] = c
    successors = np.zeros((size, n_actions), int)
    successors[:n] = n + np.arange(n * n_actions).reshape(n, n_actions)
    weights = None
    if probabilities is not None:
        weights = np.zeros((size, n_actions))
        weights[:n] = probabilities
    return [None if a is None else torch.tensor(a)[None] for a in (prompt, sources, continues, successors, weights)]


def check_literal_layer(kind, gamma=GAMMA, n_layers=6):
    rng = np.random.default_rng(5)
    context = random_context(rng)
    probabilities = weights_of(kind, rng, 14, 3)
    prompt, sources, continues, successors, weights = prompt_of(context, probabilities)
    model = SoftmaxICTD.from_theory(4, n_layers=6, sharpness=1.5, step_size=0.8, dtype=torch.float64)
    with torch.no_grad():
        found = pooled_values(model, prompt, gamma, sources, continues, successors, weights, n_layers)[0, -3:]
    expected = weighted_softmax_q(
        **context, gamma=GAMMA, n_iterations=6, probabilities=probabilities, step_size=0.8,
        score=lambda query, source: 1.5 * query @ source.T,
    )  # fmt: skip
    np.testing.assert_allclose(found, expected[-1], atol=1e-12)


@pytest.mark.parametrize("kind", ["recorded", "expected", "greedy"])
def test_the_literal_layer_is_the_reference(kind):
    check_literal_layer(kind)
    for change in ({"gamma": 0.5}, {"n_layers": 5}):
        with pytest.raises(AssertionError):
            check_literal_layer(kind, **change)


def test_one_successor_column_is_the_tsm():
    """Where every column's target reads the next column, the pooled shift is the paper's shift."""
    rng = np.random.default_rng(1)
    model = SoftmaxICTD.from_theory(4, n_layers=3, sharpness=1.5, dtype=torch.float64)
    prompt = torch.zeros(1, 7, 9, dtype=torch.float64)
    prompt[0, :5, :8] = torch.tensor(rng.standard_normal((5, 8)))
    sources, continues = torch.arange(9)[None] < 8, torch.ones(1, 9, dtype=torch.float64)
    following = (torch.arange(9) + 1).clamp(max=8)[None, :, None]
    found = pooled_values(model, prompt, GAMMA, sources, continues, following)
    Z = prompt
    for layer in range(3):
        A, V = model.layer_weights(layer)
        gamma = torch.full((1, 1), GAMMA, dtype=torch.float64)
        Z = tsm_layer(Z, V, attention_weights(Z, A, sources), gamma, sources, continues)
    np.testing.assert_allclose(found.detach(), Z[:, 6].detach(), atol=1e-12)


def literal_q(controller, history, target, observations, policy=None, optimism=None, window=None):
    """q of all actions by the reference on the transitions one by one."""
    pair_map, weights = controller.pair_map, controller.stream.weights
    kept = history.transitions if window is None else history.transitions[-window:]
    n_actions = pair_map.n_actions
    left = np.array([np.append(obs, action) for obs, action, *_ in kept])
    x, x_next = pair_map(left), pair_map.of_all_actions(np.array([np.reshape(t[3], -1) for t in kept]))
    rewards, continues = np.array([t[2] for t in kept]), np.array([t[4] for t in kept])
    queries = pair_map.of_all_actions(observations).reshape(-1, pair_map.dim)
    K = {}
    everything = np.concatenate([x, x_next.reshape(-1, pair_map.dim), queries])
    for at, attention in enumerate(weights.attention):
        scores = everything @ attention.T @ x.T
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        K[at] = exponentials / exponentials.sum(axis=1, keepdims=True)
    n = len(kept)
    bonus = np.zeros((n, n_actions))
    if optimism is not None:
        flat = x_next.reshape(-1, pair_map.dim)
        own = np.einsum("id,de,ie->i", flat, weights.attention[0], flat)
        mass = np.exp(np.minimum(flat @ weights.attention[0].T @ x.T - own[:, None], 0)).sum(axis=1)
        bonus = optimism.bonus(mass).reshape(n, n_actions)
    q = np.zeros(len(everything))
    for layer in range(controller.stream.n_layers):
        at = layer % len(K)
        w_reward, w_target, w_current = weights.entries[at]
        q_t = q[n : n + n * n_actions].reshape(n, n_actions) + bonus
        if target == "recorded":
            # Every step's action is recorded with its successor; the newest one is what the controller will do next.
            pooled = q_t[np.arange(n), history.actions_next(n)]
        else:
            pooled = q_t.max(axis=1) if target == "greedy" else (policy(x_next) * q_t).sum(axis=1)
        delta = w_reward * rewards + w_target * GAMMA * continues * pooled + w_current * q[:n]
        q = q + K[at] @ delta
    return q[n + n * n_actions :].reshape(-1, n_actions)


class Recorded(History):
    """Keeps the action that followed every transition; after an end without a next state's action, any."""

    def actions_next(self, n):
        first = self.controller.pair_map.start
        planned = self.controller._planned
        following = [t[1] for t in self.transitions[1:]] + [first if planned is None else planned[1]]
        return np.array(following[-n:], int) - first


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("weights", AGENTS)
def test_sums_by_pair_are_the_literal_layers(agents, weights, environment):
    """Greedy target, with and without bonus, at several moments, observations seen and not."""
    env, optimism = ENVIRONMENTS[environment](), Optimism(0.7)
    controller = agents[weights].controller(env, GAMMA, exploration=0.5, refresh_every=7, seed=1)
    history = History(controller)
    space = env.observation_space
    space.seed(0)
    asked = np.array([space.sample() for _ in range(4)])
    rows = asked.reshape(4, -1)
    for n_steps in (1, 20, 19):
        play(history, env, n_steps, seed=n_steps)
        expected = literal_q(controller, history, "greedy", rows)
        np.testing.assert_allclose(controller.q_values(asked), expected, atol=TOLERANCE, rtol=TOLERANCE)
        bold = read(controller.stream, controller.pair_map, "greedy", optimism)
        x = controller.pair_map.of_all_actions(rows).reshape(-1, DIM)
        sources = controller.pair_map(np.array([np.append(t[0], t[1]) for t in history.transitions]))
        A = controller.stream.weights.attention[0]
        own = np.einsum("id,de,ie->i", x, A, x)
        mass = np.exp(np.minimum(x @ A.T @ sources.T - own[:, None], 0)).sum(axis=1)
        expected = literal_q(controller, history, "greedy", rows, optimism=optimism)
        expected = expected + optimism.bonus(mass).reshape(expected.shape)
        np.testing.assert_allclose(bold.q_values(rows), expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("weights", AGENTS)
def test_the_recorded_target_is_the_stream_itself(agents, weights):
    """SARSA in context is the paper's layer on the stream of pairs, untouched."""
    env = ENVIRONMENTS["episodes"]()
    controller = agents[weights].controller(env, GAMMA, "recorded", exploration=0.7, seed=3)
    play(controller, env, 60)
    pairs = np.array([[state, action] for state in range(6) for action in range(3)])
    expected = controller.stream.values(pairs).reshape(6, 3)
    np.testing.assert_allclose(controller.q_values(np.arange(6)), expected, atol=TOLERANCE, rtol=TOLERANCE)
    other = read(controller.stream, controller.pair_map, "greedy").q_values(np.arange(6)[:, None])
    assert np.abs(other - expected).max() > 1e-3


def test_the_recorded_action_is_the_one_taken(agents):
    env = ENVIRONMENTS["RandomMDP"]()
    controller = agents["theory"].controller(env, GAMMA, "recorded", exploration=0.5, seed=2)
    history = Recorded(controller)
    play(history, env, 40)
    expected = literal_q(controller, history, "recorded", np.arange(5)[:, None])
    np.testing.assert_allclose(controller.q_values(np.arange(5)), expected, atol=TOLERANCE)


def test_the_expected_target_weighs_by_the_acting_policy(agents):
    """The policy is epsilon-greedy on the reading that acts, which is older than the context."""
    env = ENVIRONMENTS["RandomMDP"]()
    controller = agents["theory"].controller(env, GAMMA, "expected", exploration=0.4, refresh_every=30, seed=2)
    history = History(controller)
    play(history, env, 40)
    acting = controller._acting
    assert acting.counts.sum() == 31

    def policy(x_next):
        states = np.array([[t[3]] for t in history.transitions])
        return epsilon_greedy(acting.q_values(states), 0.4)

    expected = literal_q(controller, history, "expected", np.arange(5)[:, None], policy)
    np.testing.assert_allclose(controller.q_values(np.arange(5)), expected, atol=TOLERANCE)
    wrong = literal_q(controller, history, "expected", np.arange(5)[:, None], lambda x: np.full(x.shape[:2], 1 / 3))
    assert np.abs(wrong - expected).max() > 1e-3


@pytest.mark.parametrize("change", ["gamma", "window", "layers", "target"])
def test_the_literal_check_catches(agents, change):
    env = ENVIRONMENTS["RandomMDP"]()
    options = {"gamma": {"gamma": 0.8}, "layers": {"n_layers": 39}, "window": {"context_length": 39}}.get(change, {})
    target = "expected" if change == "target" else "greedy"
    controller = agents["theory"].controller(env, **{"gamma": GAMMA, "target": target, "seed": 1, **options})
    history = History(controller)
    play(history, env, 40)
    controller.stream.n_layers = 39 if change == "layers" else 40
    found = controller.q_values(np.arange(5))
    controller.stream.n_layers = 40
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            found, literal_q(controller, history, "greedy", np.arange(5)[:, None]), atol=TOLERANCE, rtol=TOLERANCE
        )


@pytest.mark.parametrize("context_length", [1, 5, 17])
def test_a_window_keeps_the_last_transitions(agents, context_length):
    """RandomMDP never ends, so a window of n columns is the last n transitions."""
    env = ENVIRONMENTS["RandomMDP"]()
    controller = agents["theory"].controller(env, GAMMA, exploration=0.6, context_length=context_length, seed=1)
    history = History(controller)
    play(history, env, 45)
    expected = literal_q(controller, history, "greedy", np.arange(5)[:, None], window=context_length)
    np.testing.assert_allclose(controller.q_values(np.arange(5)), expected, atol=TOLERANCE)
    assert controller.n_transitions == context_length


def test_infinitely_many_layers_solve_the_empirical_model(agents):
    """delta = 0 on every pair that was left: Bellman's optimality equation of the empirical model."""
    env = ENVIRONMENTS["RandomMDP"]()
    controller = agents["theory"].controller(env, GAMMA, exploration=1.0, n_layers="fixed_point", seed=1)
    history = History(controller)
    play(history, env, 400)
    q = controller.q_values(np.arange(5))
    errors = np.zeros((5, 3))
    for obs, action, reward, next_obs, c in history.transitions:
        errors[obs, action] += reward + GAMMA * c * q[next_obs].max() - q[obs, action]
    assert (controller.visits(np.arange(5)) > 0).all()
    # Layers stop at a relative change of 1e-12; sums of 400 errors.
    np.testing.assert_allclose(errors, 0, atol=1e-8)
