"""PromptBuffer and VectorPromptBuffer: columns by hand, episode ends, refusals, and a slow list-based twin."""

import numpy as np
import pytest

from icrl_agent.prompt import PromptBuffer, VectorPromptBuffer

# Scalar features make columns readable: a state is its feature.


def columns(buffer):
    """(feature, reward, source, continues) of every column, memories checked to be 0."""
    observation = buffer.observation()
    matrix = observation["prompt"]
    assert not matrix[2:].any()
    return [
        (
            float(matrix[0, j]),
            float(matrix[1, j]),
            int(observation["source_mask"][j]),
            float(observation["continues"][j]),
        )
        for j in range(matrix.shape[1])
    ]


PADDING = (0.0, 0.0, 0, 1.0)


def step(state, reward, continues=1.0):
    return (float(state), float(reward), 1, continues)


def no_source(state):
    return (float(state), 0.0, 0, 1.0)


WINDOWS = {
    0: [PADDING, PADDING, PADDING, PADDING, no_source(1)],
    1: [PADDING, PADDING, PADDING, step(1, 10), no_source(2)],
    3: [PADDING, step(1, 10), step(2, 20), step(3, 30), no_source(4)],
    4: [step(1, 10), step(2, 20), step(3, 30), step(4, 40), no_source(5)],
    5: [step(2, 20), step(3, 30), step(4, 40), step(5, 50), no_source(6)],
}


def check_window(make, n_steps):
    buffer = make(4, 1)
    buffer.reset([1.0])
    for k in range(1, n_steps + 1):
        buffer.append(10.0 * k, [k + 1.0], False, False)
    assert columns(buffer) == WINDOWS[n_steps]


class LaterRewardDouble(PromptBuffer):
    """Writes a reward beside the state that is entered."""

    def append(self, reward, x_next, terminated, truncated):
        late, self.late = getattr(self, "late", 0.0), reward
        super().append(late, x_next, terminated, truncated)


class RightPaddedDouble(PromptBuffer):
    def observation(self):
        observation = super().observation()
        return {name: np.roll(array, 1, axis=-1) for name, array in observation.items()}


class ShortWindowDouble(PromptBuffer):
    def __init__(self, context_length, feature_dim):
        super().__init__(context_length - 1, feature_dim)


@pytest.mark.parametrize("n_steps", WINDOWS)
def test_window_column_by_column(n_steps):
    check_window(PromptBuffer, n_steps)


@pytest.mark.parametrize("double", [LaterRewardDouble, RightPaddedDouble, ShortWindowDouble])
def test_window_check_catches(double):
    with pytest.raises(AssertionError):
        check_window(double, 3)


def test_length_one():
    buffer = PromptBuffer(1, 1)
    buffer.reset([1.0])
    assert columns(buffer) == [PADDING, no_source(1)]
    buffer.append(10.0, [2.0], False, False)
    assert columns(buffer) == [step(1, 10), no_source(2)]
    buffer.append(20.0, [3.0], True, False)
    assert columns(buffer) == [step(2, 20, continues=0.0), no_source(3)]
    buffer.reset([4.0])
    assert columns(buffer) == [no_source(3), no_source(4)]


FLAGS = {"termination": (True, False), "truncation": (False, True), "both": (True, True), "mid-episode": (False, False)}


def check_episode_end(make, kind):
    terminated, truncated = FLAGS[kind]
    buffer = make(5, 1)
    buffer.reset([1.0])
    buffer.append(10.0, [2.0], False, False)
    buffer.append(20.0, [3.0], terminated, truncated)
    continues = 0.0 if terminated else 1.0
    assert columns(buffer) == [PADDING, PADDING, PADDING, step(1, 10), step(2, 20, continues), no_source(3)]
    buffer.reset([7.0])
    assert columns(buffer) == [PADDING, PADDING, step(1, 10), step(2, 20, continues), no_source(3), no_source(7)]
    buffer.append(70.0, [8.0], False, False)
    assert columns(buffer) == [PADDING, step(1, 10), step(2, 20, continues), no_source(3), step(7, 70), no_source(8)]


class LimitIsTerminationDouble(PromptBuffer):
    def append(self, reward, x_next, terminated, truncated):
        super().append(reward, x_next, terminated or truncated, False)


class TruncationWinsDouble(PromptBuffer):
    def append(self, reward, x_next, terminated, truncated):
        super().append(reward, x_next, terminated and not truncated, truncated)


class NoFinalColumnDouble(PromptBuffer):
    """Joins the last state of an episode to the first of the next."""

    def reset(self, x):
        self._buffer._has_steps[:] = False
        super().reset(x)


@pytest.mark.parametrize("kind", FLAGS)
def test_episode_end_column_by_column(kind):
    check_episode_end(PromptBuffer, kind)


@pytest.mark.parametrize(
    ("double", "kind"),
    [
        (LimitIsTerminationDouble, "truncation"),
        (TruncationWinsDouble, "both"),
        (NoFinalColumnDouble, "termination"),
        (NoFinalColumnDouble, "mid-episode"),
    ],
)
def test_episode_end_check_catches(double, kind):
    with pytest.raises(AssertionError):
        check_episode_end(double, kind)


def test_an_episode_without_a_step_leaves_no_column():
    buffer = PromptBuffer(3, 1)
    for state in (1.0, 2.0, 3.0):
        buffer.reset([state])
    assert columns(buffer) == [PADDING, PADDING, PADDING, no_source(3)]


def test_clear_forgets_everything():
    buffer = PromptBuffer(3, 1)
    for _ in range(2):
        buffer.reset([1.0])
        buffer.append(10.0, [2.0], True, False)
        buffer.clear()
        assert columns(buffer) == [PADDING] * 4
        buffer.reset([5.0])
        assert columns(buffer) == [PADDING, PADDING, PADDING, no_source(5)]
        buffer.append(50.0, [6.0], False, False)
        assert columns(buffer) == [PADDING, PADDING, step(5, 50), no_source(6)]
        buffer.clear()


@pytest.mark.parametrize("value", [0, -1, True, 2.5, "4", None])
@pytest.mark.parametrize("name", ["num_envs", "context_length", "feature_dim"])
def test_sizes_below_one_are_refused(name, value):
    sizes = {"num_envs": 1, "context_length": 4, "feature_dim": 2} | {name: value}
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {value!r}"):
        VectorPromptBuffer(**sizes)
    if name != "num_envs":
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {value!r}"):
            PromptBuffer(sizes["context_length"], sizes["feature_dim"])


def running(make=PromptBuffer):
    buffer = make(3, 2)
    buffer.reset([1.0, 2.0])
    buffer.append(10.0, [3.0, 4.0], False, False)
    return buffer


REFUSED = {
    "NaN reward": (lambda b: b.append(np.nan, [0.0, 0.0], False, False), "rewards must be finite float32 numbers, got"),
    "inf reward": (lambda b: b.append(-np.inf, [0.0, 0.0], False, False), "rewards must be finite float32"),
    "huge reward": (lambda b: b.append(1e39, [0.0, 0.0], False, False), "rewards must be finite float32 numbers, got"),
    "vector reward": (lambda b: b.append([1.0, 2.0], [0.0, 0.0], False, False), "rewards must have shape"),
    "NaN feature": (lambda b: b.append(1.0, [0.0, np.nan], False, False), "next_features must be finite float32"),
    "short feature": (
        lambda b: b.append(1.0, [0.0], True, False),
        r"next_features must have shape \(1, 2\), got \(1, 1\)",
    ),
    "scalar feature": (lambda b: b.append(1.0, 0.0, False, False), "next_features must have shape"),
    "NaN reset": (lambda b: b.reset([np.nan, 0.0]), "features must be finite float32 numbers, got"),
    "long reset": (lambda b: b.reset([0.0, 0.0, 0.0]), r"features must have shape \(1, 2\), got \(1, 3\)"),
}


def check_refusal_changes_nothing(make, kind):
    call, message = REFUSED[kind]
    buffer, twin = running(make), running(PromptBuffer)
    with pytest.raises(ValueError, match=message):
        call(buffer)
    for other in (buffer, twin):  # a wrong flag would show at the next steps only
        other.append(20.0, [5.0, 6.0], True, False)
        other.reset([7.0, 8.0])
    for name, array in twin.observation().items():
        np.testing.assert_array_equal(buffer.observation()[name], array)


class HalfWrittenDouble(PromptBuffer):
    """Writes the column before it looks at the numbers."""

    def append(self, reward, x_next, terminated, truncated):
        self._buffer._push(np.arange(1), 0.0, is_source=True, continues=1.0)
        super().append(reward, x_next, terminated, truncated)


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_calls_leave_the_buffer_unchanged(kind):
    check_refusal_changes_nothing(PromptBuffer, kind)


def test_refusal_check_catches():
    with pytest.raises(AssertionError):
        check_refusal_changes_nothing(HalfWrittenDouble, "NaN reward")


def test_append_needs_a_running_episode():
    buffer = PromptBuffer(3, 1)
    with pytest.raises(RuntimeError, match="append needs a running episode: call reset"):
        buffer.append(1.0, [0.0], False, False)
    for flags in ((True, False), (False, True), (True, True)):
        buffer.reset([1.0])
        buffer.append(1.0, [2.0], *flags)
        before = columns(buffer)
        with pytest.raises(RuntimeError, match="append needs a running episode: call reset"):
            buffer.append(1.0, [3.0], False, False)
        assert columns(buffer) == before
    buffer.clear()
    with pytest.raises(RuntimeError, match="append needs a running episode: call reset"):
        buffer.append(1.0, [0.0], False, False)


def test_observations_and_inputs_are_copies():
    buffer, features = PromptBuffer(2, 2), np.array([1.0, 2.0], np.float32)
    buffer.reset(features)
    first = buffer.observation()
    features[:] = 9.0
    kept = {name: array.copy() for name, array in first.items()}
    buffer.append(1.0, features, False, False)
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])
        array[:] = 0
    assert buffer.observation()["prompt"].any()
    assert {name: array.dtype for name, array in kept.items()} == {
        "prompt": np.float32,
        "source_mask": np.int8,
        "continues": np.float32,
    }
