"""A saved context goes on as if nothing had happened, and nothing else is taken for one."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from .conftest import ENVIRONMENTS, GAMMA, make, play


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
