"""A saved context goes on as if nothing had happened, and nothing else is taken for one."""

from __future__ import annotations

import io
import pickle

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


def pickled():
    return pickle.dumps({"about": 1})


def plain_array():
    file = io.BytesIO()
    np.save(file, np.arange(3))
    return file.getvalue()


@pytest.mark.parametrize("content", [b"", b"not a context", pickled(), plain_array()])
def test_a_file_that_is_no_context_is_refused(agents, tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    _, controller = make(agents["theory"])
    for name, fault in (("file", "it is no .npz file"), ("missing", "there is no such file")):
        with pytest.raises(ValueError, match=rf"{name} cannot be read as a saved context: {fault}"):
            controller.load(tmp_path / name)


def changed(name, change):
    """A function that changes one array of many."""
    return lambda arrays: arrays.update({name: change(arrays[name])})


def at(index, value):
    def change(array):
        array = array.copy()
        array[index] = value
        return array

    return change


FAULTS = {
    "no about": (lambda a: a.pop("about"), "it has no array about"),
    "about": (changed("about", lambda _: np.array("[1, 2]")), "its array about is no JSON object"),
    "about text": (changed("about", lambda _: np.array("{")), "its array about is no JSON object"),
    "about number": (changed("about", lambda _: np.array(3)), "its array about is no JSON object"),
    "object": (changed("about", lambda _: np.array({"a": 1}, object)), "something else than arrays of numbers"),
    "no n_steps": (lambda a: a.pop("n_steps"), "it has no array n_steps"),
    "n_steps": (changed("n_steps", lambda _: np.array(-1)), "n_steps must be a non-negative integer, got -1"),
    "n_steps float": (changed("n_steps", lambda _: np.array(1.5)), "n_steps must be a non-negative integer, got 1.5"),
    "n_steps many": (changed("n_steps", lambda _: np.array([1, 2])), "n_steps must be a non-negative integer"),
    "no observations": (lambda a: a.pop("observations"), "it has no array observations"),
    "text": (changed("observations", lambda o: o.astype(str)), "its array observations must hold finite numbers"),
    "numbers": (changed("observations", lambda o: o[:, [0, 0, 1]]), "its observations have 2 numbers each, here 1"),
    "axes": (changed("observations", lambda o: o[:, 0]), "its observations must have shape"),
    "floats": (changed("observations", lambda o: o * 1.0), "is not in Discrete"),
    "state": (changed("observations", at((0, 0), 7)), "is not in Discrete"),
    "action": (changed("observations", at((0, 1), 9)), "action 9 has no features"),
    "running": (changed("running", lambda r: r[:2]), "its array running must hold three integers"),
    "present": (changed("running", at(0, 99)), "its present state must be one of"),
    "flags": (changed("running", at(1, 5)), "its flags must be 0 or 1"),
}
SUM_FAULTS = {
    "no counts": (lambda a: a.pop("counts"), "it has no array counts"),
    "NaN count": (changed("counts", at(0, np.nan)), "its array counts must hold finite numbers"),
    "negative count": (changed("counts", at(0, -1.0)), "its array counts must hold whole numbers"),
    "half a count": (changed("counts", at(0, 0.5)), "its array counts must hold whole numbers"),
    "NaN sum": (changed("reward_sum", at(0, np.nan)), "its array reward_sum must hold finite numbers"),
    "length": (changed("reward_sum", lambda r: r[:-1]), "its array reward_sum must have shape"),
    "lengths": (changed("continues", lambda c: c[:-1]), "must have the same length"),
    "index": (changed("source", at(0, 99)), "its array source must hold integers in 0"),
    "negative index": (changed("next_state", at(0, -1)), "its array next_state must hold integers in 0"),
    "float index": (changed("next_state", lambda s: s * 1.0), "its array next_state must hold integers in 0"),
    "too many": (changed("continues", at(0, 1000.0)), "more of its transitions go on"),
    "twice": (changed("observations", lambda o: o[[1, *range(1, len(o))]]), "its observations must differ"),
}
COLUMN_FAULTS = {
    "no columns": (lambda a: a.pop("columns"), "it has no array columns"),
    "shape": (changed("columns", lambda c: c[:, :3]), "its columns must have shape"),
    "too long": (changed("columns", lambda c: np.concatenate([c, c])), "its columns must have shape"),
    "index": (changed("columns", at((0, 0), 99.0)), "its columns must name states in 0"),
    "next index": (changed("columns", at((0, 1), -2.0)), "its columns must name states in 0"),
    "half an index": (changed("columns", at((0, 1), 0.5)), "its columns must name states in 0"),
    "NaN": (changed("columns", at((0, 2), np.nan)), "its array columns must hold finite numbers"),
    "large": (changed("columns", at((0, 2), 1e308)), "finite in float32"),
    "continues": (changed("columns", at((0, 3), 0.5)), "must say 0 or 1"),
}
ALL_FAULTS = [
    *((None, *fault) for fault in (*FAULTS.values(), *SUM_FAULTS.values())),
    *((20, *fault) for fault in (*FAULTS.values(), *COLUMN_FAULTS.values())),
]


@pytest.mark.parametrize(("context_length", "spoil", "match"), ALL_FAULTS)
def test_a_spoilt_file_is_refused_and_changes_nothing(agents, tmp_path, context_length, spoil, match):
    env, controller = make(agents["theory"], context_length=context_length, exploration=0.5)
    play(controller, env, 30)
    controller.save(tmp_path / "context.npz")
    with np.load(tmp_path / "context.npz") as file:
        arrays = dict(file)
    spoil(arrays)
    np.savez(tmp_path / "spoilt.npz", **arrays)
    play(controller, env, 3)
    before = controller.q_values(np.arange(5)), controller.n_steps, controller._planned
    with pytest.raises(ValueError, match=match) as refusal:
        controller.load(tmp_path / "spoilt.npz")
    assert "spoilt.npz cannot be read as a saved context: " in str(refusal.value)
    assert "\n" not in str(refusal.value)
    np.testing.assert_array_equal(controller.q_values(np.arange(5)), before[0])
    assert (controller.n_steps, controller._planned) == before[1:]


def test_a_file_that_is_cut_off_is_refused(agents, tmp_path):
    env, controller = make(agents["theory"])
    play(controller, env, 30)
    controller.save(tmp_path / "whole.npz")
    content = (tmp_path / "whole.npz").read_bytes()
    middle = content[:100] + bytes(100) + content[200:]
    for spoilt in (content[:-40], content[: len(content) // 2], middle):
        (tmp_path / "spoilt.npz").write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"spoilt.npz cannot be read as a saved context: it "):
            controller.load(tmp_path / "spoilt.npz")


def test_a_file_appears_whole_or_not_at_all(agents, tmp_path, monkeypatch):
    env, controller = make(agents["theory"])
    play(controller, env, 10)
    controller.save(tmp_path / "context.npz")
    before = (tmp_path / "context.npz").read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space left"):
        controller.save(tmp_path / "context.npz")
    assert (tmp_path / "context.npz").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["context.npz"]


@pytest.mark.parametrize("context_length", [None, 20])
def test_an_empty_context_is_one(agents, tmp_path, context_length):
    env, controller = make(agents["theory"], context_length=context_length)
    controller.save(tmp_path / "context.npz")
    play(controller, env, 5)
    controller.load(tmp_path / "context.npz")
    assert (controller.n_transitions, controller.n_steps) == (0, 0)
    play(controller, env, 5)
