"""Pictures of the process: text and images show every state and where the agent is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from icrl_agent.envs import TabularMDP, random_boyan_chain, state_values
from icrl_agent.envs.render import draw_image, draw_text

Text = Callable[[TabularMDP, int | None, float], str]
Image = Callable[[TabularMDP, int | None, float], Any]


def check_text(draw: Text, mdp: TabularMDP, state: int | None, gamma: float = 0.9) -> None:
    """One line per state with its value; exactly the present state is marked."""
    lines = draw(mdp, state, gamma).splitlines()[1:]
    values = state_values(mdp.policy_mrp(), gamma)
    assert [int(re.match(r"[> ]\s+(\d+) ", line)[1]) for line in lines] == list(range(mdp.n_states))
    assert [s for s, line in enumerate(lines) if line.startswith(">")] == ([] if state is None else [state])
    for s, line in enumerate(lines):
        assert abs(float(line.split()[1 if s != state else 2]) - values[s]) <= 0.0005 + 1e-9
        assert ("-> end" in line) == bool(mdp.terminal[s])


def test_text_shows_every_state_and_marks_the_present_one(case: Any) -> None:
    mdp = case.make().unwrapped.mdp
    for state in (None, *range(mdp.n_states)):
        check_text(draw_text, mdp, state)


def _next_state_marked(mdp: TabularMDP, state: int | None, gamma: float) -> str:
    return draw_text(mdp, None if state is None else (state + 1) % mdp.n_states, gamma)


def _last_state_missing(mdp: TabularMDP, state: int | None, gamma: float) -> str:
    return "\n".join(draw_text(mdp, state, gamma).splitlines()[:-1])


def _other_gamma(mdp: TabularMDP, state: int | None, gamma: float) -> str:
    return draw_text(mdp, state, 0.5)


@pytest.mark.parametrize("double", [_next_state_marked, _last_state_missing, _other_gamma])
def test_text_check_catches(double: Text) -> None:
    with pytest.raises(AssertionError):
        check_text(double, random_boyan_chain()[0], 3)


def check_image(draw: Image, mdp: TabularMDP) -> None:
    """uint8 (h, w, 3), the same picture for the same state and another one for another state."""
    states = [None, 0, mdp.n_states // 2, mdp.n_states - 1]
    images = [draw(mdp, state, 0.9) for state in states]
    for image in images:
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.shape == images[0].shape
        assert image.shape[2] == 3
        assert np.ptp(image) > 100
    assert np.array_equal(images[1], draw(mdp, 0, 0.9))
    for i in range(len(states)):
        assert not any(np.array_equal(images[i], images[j]) for j in range(i))


def test_images_follow_the_state_terminal_ones_included(case: Any) -> None:
    check_image(draw_image, case.make().unwrapped.mdp)


def test_images_of_more_than_60_states() -> None:
    mdp = random_boyan_chain(61)[0]
    first, last = (draw_image(mdp, state, 0.9) for state in (0, 60))
    assert first.dtype == np.uint8
    assert first.shape == last.shape
    assert not np.array_equal(first, last)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_images_of_few_states(size: int) -> None:
    cycle = np.roll(np.eye(size), 1, axis=1)
    image = draw_image(TabularMDP(cycle, np.zeros(size), np.eye(size)[0]), 0, 0.9)
    assert image.dtype == np.uint8
    assert np.ptp(image) > 100


@pytest.mark.parametrize(
    "double",
    [
        lambda mdp, state, gamma: draw_image(mdp, 0, gamma),
        lambda mdp, state, gamma: draw_image(mdp, state, gamma) / 255,
        lambda mdp, state, gamma: draw_image(mdp, state, gamma)[..., 0],
        lambda mdp, state, gamma: np.zeros((10, 10, 3), np.uint8),
    ],
    ids=["state dropped", "floats", "grey", "blank"],
)
def test_image_check_catches(double: Image) -> None:
    with pytest.raises(AssertionError):
        check_image(double, random_boyan_chain(5)[0])


def test_render_shows_the_environments_own_state(case: Any) -> None:
    text, image = (case.make(render_mode=mode).unwrapped for mode in ("ansi", "rgb_array"))
    gamma = text.render_gamma
    state = text.reset(seed=0)[0]
    assert image.reset(seed=0)[0] == state
    for _ in range(2):
        assert text.render() == draw_text(text.mdp, state, gamma)
        assert text.render() != draw_text(text.mdp, (state + 1) % text.mdp.n_states, gamma)
        assert np.array_equal(image.render(), draw_image(image.mdp, state, gamma))
        if text.mdp.terminal[state]:
            break
        state = text.step(0)[0]
        image.step(0)


def test_the_last_picture_of_an_episode_shows_the_terminal_state() -> None:
    env = gym.make("BoyanChainClassic-v0", render_mode="ansi")
    env.reset(seed=0)
    while not env.step(0)[2]:
        pass
    assert re.search(r"^>\s+0 .*-> end$", env.render(), re.MULTILINE)


def test_render_without_a_mode_warns(case: Any) -> None:
    env = case.make().unwrapped
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


STATE = """
import sys, matplotlib
# Read as plain entries: looking up the backend would choose one and import pyplot.
before = repr({{name: dict.__getitem__(matplotlib.rcParams, name) for name in matplotlib.rcParams}})
import gymnasium as gym, icrl_agent
env = gym.make("BoyanChain-v0", render_mode="rgb_array")
env.reset(seed=0); env.render(); env.step(0); env.render()
{extra}
after = repr({{name: dict.__getitem__(matplotlib.rcParams, name) for name in matplotlib.rcParams}})
assert after == before, "global state"
assert "matplotlib.pyplot" not in sys.modules, "pyplot"
"""


def check_matplotlib_untouched(extra: str = "") -> None:
    """In a process of its own, rendering changes no setting and imports no pyplot."""
    code = STATE.format(extra=extra)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-300:]


def test_rendering_leaves_matplotlib_alone() -> None:
    check_matplotlib_untouched()
    for extra in ("import matplotlib.pyplot", "matplotlib.rcParams['font.size'] = 3"):
        with pytest.raises(AssertionError):
            check_matplotlib_untouched(extra)
