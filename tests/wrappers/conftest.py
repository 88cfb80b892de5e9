"""Tasks whose every transition is known beforehand."""

import gymnasium as gym
import numpy as np
import pytest

import icrl_agent  # noqa: F401 - registers the environments


@pytest.fixture
def make_chain():
    """The chain 0 - 1 - 2 - 3 with rewards 10, 20, 30; state 3 is terminal."""

    def make(max_episode_steps=None):
        return gym.make(
            "TabularMDP-v0",
            max_episode_steps=max_episode_steps,
            transition=[[0.0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]],
            reward=[10.0, 20.0, 30.0, 0.0],
            initial=[1.0, 0.0, 0.0, 0.0],
            terminal=[False, False, False, True],
        )

    return make


@pytest.fixture
def columns():
    """Reads a prompt of one-hot features: (state, reward, source, continues) per column; state None = padding."""

    def read(observation):
        prompt = observation["prompt"]
        assert not prompt[-2:].any(), "the memories start at 0"
        assert np.isin(prompt[:-3], [0.0, 1.0]).all()
        return [
            (
                int(prompt[:-3, j].argmax()) if prompt[:-3, j].any() else None,
                float(prompt[-3, j]),
                int(observation["source_mask"][j]),
                float(observation["continues"][j]),
            )
            for j in range(prompt.shape[1])
        ]

    return read
