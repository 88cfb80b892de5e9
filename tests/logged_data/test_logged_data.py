"""The same transitions give the same values, whichever way they arrive; what is wrong with a record is named."""

from __future__ import annotations

import csv
import dataclasses
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from icrl_agent import ICRLAgent
from icrl_agent.logged_data import (
    load_transitions,
    transitions_from_arrays,
    transitions_from_csv,
    transitions_from_episodes,
    transitions_from_minari,
    transitions_from_npz,
    transitions_to_csv,
    transitions_to_npz,
)
from icrl_agent.transitions import Transitions

PARTS = [field.name for field in dataclasses.fields(Transitions)]
ENVIRONMENTS = {"CartPole-v1": {"max_episode_steps": 30}, "FrozenLake-v1": {}, "Pendulum-v1": {}}
GAMMA = 0.9


@pytest.fixture(scope="module")
def agent():
    return ICRLAgent.from_theory(n_layers=40, sharpness="auto")


@pytest.fixture(params=ENVIRONMENTS)
def evaluated(request, agent):
    return agent.evaluate(gym.make(request.param, **ENVIRONMENTS[request.param]), n_steps=300, gamma=GAMMA, seed=0)


def shuffled(t):
    order = np.random.default_rng(0).permutation(len(t))
    return Transitions(*(getattr(t, name)[order] for name in PARTS))


def as_episodes(t):
    """Cut where an episode or the record ends, in the form a Gymnasium loop writes down."""
    ends = np.flatnonzero(t.terminated | t.truncated | (np.arange(len(t)) == len(t) - 1))
    starts = [0, *(ends[:-1] + 1)]
    return [
        {
            "observations": np.concatenate([t.observations[a : b + 1], t.next_observations[b : b + 1]]),
            "rewards": t.rewards[a : b + 1],
            "terminated": bool(t.terminated[b]),
            "truncated": bool(t.truncated[b]),
        }
        for a, b in zip(starts, ends, strict=True)
    ]


def as_minari(t, space):
    """What ``minari.load_dataset`` returns, as far as it is read."""
    episodes = []
    for episode in as_episodes(t):
        flags = np.zeros((2, len(episode["rewards"])), bool)
        flags[:, -1] = episode["terminated"], episode["truncated"]
        episodes.append(
            types.SimpleNamespace(
                observations=episode["observations"],
                rewards=episode["rewards"],
                terminations=flags[0],
                truncations=flags[1],
            )
        )
    return types.SimpleNamespace(iterate_episodes=lambda: iter(episodes), observation_space=space)


def through_npz(t, tmp_path):
    transitions_to_npz(t, tmp_path / "t.npz")
    return load_transitions(tmp_path / "t.npz")


def through_csv(t, tmp_path):
    transitions_to_csv(t, tmp_path / "t.csv")
    return load_transitions(tmp_path / "t.csv")


def space_of(t):
    if t.observations.ndim == 1:
        return spaces.Discrete(16)
    return spaces.Box(-np.inf, np.inf, t.observations.shape[1:], np.float32)


WAYS = {
    "arrays": lambda t, tmp_path: transitions_from_arrays(*(getattr(t, name).tolist() for name in PARTS[:5])),
    "episodes": lambda t, tmp_path: transitions_from_episodes(as_episodes(t)),
    "npz": through_npz,
    "csv": through_csv,
    "minari": lambda t, tmp_path: transitions_from_minari(as_minari(t, space_of(t))),
    "shuffled": lambda t, tmp_path: shuffled(t),
}


def check_equal_values(way, agent, evaluated, tmp_path):
    arrived = way(evaluated.transitions, tmp_path)
    result = agent.evaluate_transitions(arrived, GAMMA, queries=evaluated.states)
    np.testing.assert_allclose(result.values, evaluated.values, atol=1e-9)
    np.testing.assert_array_equal(result.visits, evaluated.visits)
    assert result.chosen["sharpness"] == evaluated.chosen["sharpness"]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_equal_values(way, agent, evaluated, tmp_path):
    check_equal_values(WAYS[way], agent, evaluated, tmp_path)


def lost_ends(t, tmp_path):
    return dataclasses.replace(t, terminated=np.zeros(len(t), bool))


def successors_by_position(t, tmp_path):
    """Takes the next row for the successor, as a reader must not."""
    mixed = shuffled(t)
    return dataclasses.replace(mixed, next_observations=np.roll(mixed.observations, -1, axis=0))


def rewards_off_by_one(t, tmp_path):
    return dataclasses.replace(t, rewards=np.roll(t.rewards, 1))


@pytest.mark.parametrize("double", [lost_ends, successors_by_position, rewards_off_by_one])
def test_the_check_catches(double, agent, tmp_path):
    lake = agent.evaluate(gym.make("FrozenLake-v1"), n_steps=300, gamma=GAMMA, seed=0)
    with pytest.raises(AssertionError):
        check_equal_values(double, agent, lake, tmp_path)


@pytest.mark.parametrize("way", ["npz", "csv"])
def test_files_keep_every_bit(way, evaluated, tmp_path):
    arrived = WAYS[way](evaluated.transitions, tmp_path)
    for name in PARTS:
        np.testing.assert_array_equal(getattr(arrived, name), getattr(evaluated.transitions, name), err_msg=name)
    assert [path.name for path in tmp_path.iterdir()] == [f"t.{way}"]


def test_flags_may_be_numbers_and_columns_in_any_order(tmp_path):
    (tmp_path / "t.csv").write_text("reward,terminated,next_observation,observation,note\n1.5,0,1,0,a\n2,TRUE,2,1,b\n")
    t = transitions_from_csv(tmp_path / "t.csv")
    assert (t.rewards.tolist(), t.terminated.tolist(), t.truncated.any()) == ([1.5, 2.0], [False, True], False)
    assert (t.observations.tolist(), t.next_observations.tolist()) == ([0, 1], [1, 2])


def test_a_byte_order_mark_and_long_integers(tmp_path):
    text = "observation,reward,next_observation,terminated\n1,100000000000000000000000000000,0,1\n"
    (tmp_path / "t.csv").write_text(text, encoding="utf-8-sig")
    assert transitions_from_csv(tmp_path / "t.csv").rewards.tolist() == [1e29]


def test_what_is_no_transitions(agent):
    with pytest.raises(TypeError, match=r"transitions must be Transitions, which .*load_transitions .* got str"):
        agent.evaluate_transitions("logged.csv")
    images = transitions_from_arrays(np.zeros((2, 3, 8, 8)), [1.0, 2.0], np.zeros((2, 3, 8, 8)), [False, True])
    with pytest.raises(TypeError, match="look like images"):
        agent.evaluate_transitions(images)


def test_dictionary_observations_of_episodes_are_flattened():
    space = spaces.Dict({"room": spaces.Discrete(3), "speed": spaces.Box(-1, 1, (2,))})
    stacked = {"room": np.array([0, 2]), "speed": np.array([[0.1, 0.2], [0.3, 0.4]])}
    single = [{"room": 0, "speed": np.array([0.1, 0.2])}, {"room": 2, "speed": np.array([0.3, 0.4])}]
    for observations in (stacked, single):
        episode = {"observations": observations, "rewards": [1.0], "terminated": False}
        t = transitions_from_episodes([episode], space)
        np.testing.assert_allclose(t.observations, [[1, 0, 0, 0.1, 0.2]])
        np.testing.assert_allclose(t.next_observations, [[0, 0, 1, 0.3, 0.4]])
    with pytest.raises(ValueError, match="need the environment's observation_space"):
        transitions_from_episodes([{"observations": stacked, "rewards": [1.0], "terminated": False}])


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rewards": [1.0]}, r"rewards must have shape \(2,\), one per row of observations, got \(1,\)"),
        ({"rewards": [1.0, np.nan]}, "rewards are not finite in row 2: dimension 0 is nan"),
        ({"rewards": ["1", "2"]}, "rewards must be numbers"),
        ({"observations": [[0.0, 1.0], [np.inf, 1.0]]}, "observations are not finite in row 2: dimension 0 is inf"),
        ({"next_observations": [[0.0], [1.0]]}, r"the same shape, got \(2, 2\) and \(2, 1\)"),
        ({"observations": [["a", "b"]] * 2}, "observations must be real numbers"),
        ({"terminated": [0.5, 1.0]}, "terminated must hold True and False"),
        ({"truncated": [True]}, r"truncated must have shape \(2,\)"),
        ({"copy": [0.0, 1.0]}, "copy must hold integers"),
        ({"copy": [0, -1]}, "copy must hold integers of at least 0, got -1"),
        ({"observations": [[0j, 1.0], [2.0, 3.0]]}, "observations must be real numbers, got complex128"),
        ({"observations": np.zeros((2, 0)), "next_observations": np.zeros((2, 0))}, "at least one number per row"),
        ({"observations": [], "next_observations": []}, "a row per transition, at least one"),
    ],
)
def test_bad_arrays(change, match):
    good = {
        "observations": [[0.0, 1.0], [2.0, 3.0]],
        "rewards": [1.0, 2.0],
        "next_observations": [[2.0, 3.0], [4.0, 5.0]],
        "terminated": [False, True],
    }
    transitions_from_arrays(**good)
    with pytest.raises(ValueError, match=match):
        transitions_from_arrays(**{**good, **change})


@pytest.mark.parametrize(
    ("episode", "match"),
    [
        ({"observations": [0, 1], "rewards": [1.0]}, "episode 1 has no terminated"),
        ({"observations": [0, 1], "rewards": [1.0, 2.0], "terminated": True}, "2 observations and 2 rewards"),
        ({"observations": [0, 1], "rewards": [np.inf], "terminated": True}, "episode 1: rewards are not finite"),
        ({"observations": [0], "rewards": [], "terminated": False}, "hold no transition"),
    ],
)
def test_bad_episodes(episode, match):
    with pytest.raises(ValueError, match=match):
        transitions_from_episodes([episode])


def test_episodes_that_do_not_go_together():
    with pytest.raises(ValueError, match="an episode is a mapping of arrays, episode 1 is int"):
        transitions_from_episodes([3])
    episodes = [{"observations": np.zeros((2, k)), "rewards": [1.0], "terminated": True} for k in (1, 2)]
    with pytest.raises(ValueError, match=r"observations of one shape, got \[\(1,\), \(2,\)\]"):
        transitions_from_episodes(episodes)


HEADER = "observation_0,observation_1,reward,next_observation_0,next_observation_1,terminated\n"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (HEADER.replace("reward,", "") + "1,2,3,4,0\n", "line 1: there is no column reward"),
        (HEADER.replace("observation_1,reward", "observation_2,reward") + "1,2,3,4,5,0\n", "no column observation_1"),
        (HEADER + "1,2,3,4,5,0\n1,two,3,4,5,0\n", r"line 3, column observation_1: 'two' is not a finite number"),
        (HEADER + "1,nan,3,4,5,0\n", "line 2, column observation_1: 'nan' is not a finite number"),
        (HEADER + "1,2,,4,5,0\n", "line 2, column reward: '' is not"),
        (HEADER + "1,2,3,4,5,maybe\n", "line 2, column terminated: 'maybe' is not true, false, 1 or 0"),
        (HEADER + "1,2,3,4,5,0\n1,2,3\n", "line 3: 3 cells, the header has 6: is the file cut off"),
        (HEADER.replace(",", ";") + "1;2;3;4;5;0\n", "no column observation among observation_0;observation_1"),
        (HEADER.replace("observation_1,reward", "observation_0,reward"), "holds no transition"),
        ("reward,reward\n1,2\n", "line 1: there are two columns reward"),
        ("observation,observation_0\n1,2\n", "there are columns observation and observation_0"),
        (HEADER + "1_0,2,3,4,5,0\n", "line 2, column observation_0: '1_0' is not"),
        (HEADER, "holds no transition"),
        ("", "holds no transition"),
    ],
)
def test_bad_csv(text, match, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=match):
        transitions_from_csv(tmp_path / "t.csv")


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_a_file_cut_in_half(kind, evaluated, tmp_path):
    path = tmp_path / f"t.{kind}"
    {"npz": transitions_to_npz, "csv": transitions_to_csv}[kind](evaluated.transitions, path)
    whole = path.read_bytes()
    half = len(whole) // 2
    while kind == "csv" and whole[half - 1 : half] == b"\n":
        half += 1
    path.write_bytes(whole[:half])
    with pytest.raises(ValueError, match=r"is it cut off|is the file cut off|is not true, false"):
        load_transitions(path)


def test_an_npz_without_an_array_and_one_with_objects(tmp_path):
    np.savez(tmp_path / "t.npz", observations=np.zeros(2), rewards=np.zeros(2), terminated=np.zeros(2, bool))
    with pytest.raises(ValueError, match="has no array next_observations"):
        transitions_from_npz(tmp_path / "t.npz")
    np.savez(tmp_path / "t.npz", observations=np.array([{}, {}], dtype=object))
    with pytest.raises(ValueError, match=r"cannot be read as \.npz with arrays of numbers"):
        transitions_from_npz(tmp_path / "t.npz")


@pytest.mark.parametrize("source", ["missing.npz", "missing.csv"])
def test_a_file_that_is_not_there(source, tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        load_transitions(tmp_path / source)


def test_other_sources_are_named():
    with pytest.raises(ValueError, match=r"a \.npz or \.csv file or minari:NAME, got 'data\.parquet'"):
        load_transitions("data.parquet")


def test_a_minari_dataset_that_is_not_there(monkeypatch):
    def load_dataset(name):
        raise FileNotFoundError(name)

    monkeypatch.setitem(sys.modules, "minari", types.SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(
        ValueError, match=r"no Minari dataset 'D4RL/door/human-v2'.*`minari download D4RL/door/human-v2`"
    ):
        load_transitions("minari:D4RL/door/human-v2")
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ValueError, match=r"pip install 'icrl-agent\[minari\]'"):
        load_transitions("minari:D4RL/door/human-v2")


@pytest.mark.filterwarnings("ignore:::minari")
def test_a_real_minari_dataset(agent, tmp_path, monkeypatch):
    import minari

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    recorded = agent.evaluate(gym.make("CartPole-v1", max_episode_steps=20), n_steps=200, gamma=GAMMA, seed=0)
    episodes = as_minari(recorded.transitions, None).iterate_episodes()
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=number,
            observations=episode.observations,
            actions=np.zeros(len(episode.rewards), np.int64),
            rewards=episode.rewards.tolist(),
            terminations=episode.terminations.tolist(),
            truncations=episode.truncations.tolist(),
        )
        for number, episode in enumerate(episodes)
    ]
    env = gym.make("CartPole-v1")
    minari.create_dataset_from_buffers(
        "cartpole/test-v0",
        buffers,
        observation_space=env.observation_space,
        action_space=env.action_space,
    )
    arrived = load_transitions("minari:cartpole/test-v0")
    result = agent.evaluate_transitions(arrived, GAMMA)
    np.testing.assert_allclose(result.values, recorded.values, atol=1e-9)
    with pytest.raises(ValueError, match="no Minari dataset 'cartpole/other-v0'"):
        load_transitions("minari:cartpole/other-v0")


def test_the_csv_is_plain(tmp_path):
    t = transitions_from_arrays([[0.5, 1.0]], [2.0], [[1.5, 2.0]], [True])
    transitions_to_csv(t, tmp_path / "t.csv")
    header, row = csv.reader((tmp_path / "t.csv").read_text().splitlines())
    assert dict(zip(header, row, strict=True)) == {
        "observation_0": "0.5", "observation_1": "1.0", "reward": "2.0", "next_observation_0": "1.5",
        "next_observation_1": "2.0", "copy": "0", "terminated": "True", "truncated": "False",
    }  # fmt: skip
