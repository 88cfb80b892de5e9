"""PromptBuffer and VectorPromptBuffer against a slow list-based twin over long random event sequences."""

import numpy as np
import pytest

from icrl_agent.prompt import PromptBuffer, VectorPromptBuffer


class SlowBuffer:
    """One history as a plain list of columns (features, reward, is_source, continues); nothing is overwritten."""

    def __init__(self, context_length, feature_dim):
        self.n, self.d = context_length, feature_dim
        self.clear()

    def clear(self):
        self.past, self.query, self.steps, self.running = [], None, 0, False

    def reset(self, x):
        if self.steps > 0:
            self.past.append((list(self.query), 0.0, 0, 1.0))
        self.query, self.steps, self.running = list(x), 0, True

    def append(self, reward, x_next, terminated, truncated):
        self.past.append((list(self.query), reward, 1, 0.0 if terminated else 1.0))
        self.query, self.steps = list(x_next), self.steps + 1
        self.running = not (terminated or truncated)

    def observation(self):
        window = self.past[-self.n :]
        window = [([0.0] * self.d, 0.0, 0, 1.0)] * (self.n - len(window)) + window
        window.append((self.query or [0.0] * self.d, 0.0, 0, 1.0))
        prompt = np.array([[*x, reward, 0.0, 0.0] for x, reward, _, _ in window], np.float32).T
        return {
            "prompt": prompt,
            "source_mask": np.array([source for _, _, source, _ in window], np.int8),
            "continues": np.array([c for _, _, _, c in window], np.float32),
        }


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for name in expected:
        assert got[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(got[name], expected[name], err_msg=name)


def check_single(make, context_length, n_events=400, seed=0):
    rng = np.random.default_rng(seed)
    fast, slow = make(context_length, 2), SlowBuffer(context_length, 2)
    for _ in range(n_events):
        event = rng.choice(["append", "reset", "clear"], p=[0.85, 0.12, 0.03])
        if event == "clear":
            arguments = ()
        elif event == "reset" or not slow.running:
            event, arguments = "reset", (rng.normal(size=2),)
        else:
            arguments = (rng.normal(), rng.normal(size=2), bool(rng.random() < 0.15), bool(rng.random() < 0.15))
        for buffer in (fast, slow):
            getattr(buffer, event)(*arguments)
        assert_same(fast.observation(), slow.observation())


def check_vector(make, context_length, num_envs=3, n_events=400, seed=0):
    """Every event concerns a random subset of the copies; the others must stay as they are."""
    rng = np.random.default_rng(seed)
    fast, slow = make(num_envs, context_length, 2), [SlowBuffer(context_length, 2) for _ in range(num_envs)]
    for _ in range(n_events):
        where = rng.random(num_envs) < 0.6
        running = np.array([buffer.running for buffer in slow])
        x = rng.normal(size=(num_envs, 2))
        x[~where] = np.nan  # what stands in the rows that are not meant does not matter
        event = rng.choice(["append", "reset", "clear"], p=[0.8, 0.17, 0.03])
        if event == "clear":
            fast.clear(where)
            for i in np.flatnonzero(where):
                slow[i].clear()
        elif event == "reset" or not running[where].all():
            fast.reset(x, where)
            for i in np.flatnonzero(where):
                slow[i].reset(x[i])
        else:
            rewards = np.where(where, rng.normal(size=num_envs), np.inf)
            terminated, truncated = rng.random((2, num_envs)) < 0.15
            fast.append(rewards, x, terminated, truncated, where)
            for i in np.flatnonzero(where):
                slow[i].append(rewards[i], x[i], terminated[i], truncated[i])
        expected = [buffer.observation() for buffer in slow]
        assert_same(fast.observation(), {name: np.stack([o[name] for o in expected]) for name in expected[0]})


class IgnoresWhereDouble(VectorPromptBuffer):
    def reset(self, features, where=None):
        super().reset(np.nan_to_num(features), None)


class SharedSlotDouble(VectorPromptBuffer):
    """One write position for all copies."""

    def append(self, rewards, next_features, terminated, truncated, where=None):
        super().append(rewards, next_features, terminated, truncated, where)
        self._next_slot[:] = self._next_slot[0]


class NeverEndsDouble(VectorPromptBuffer):
    def append(self, rewards, next_features, terminated, truncated, where=None):
        super().append(rewards, next_features, False, truncated, where)


class NewestFirstDouble(PromptBuffer):
    def observation(self):
        observation = super().observation()
        for array in observation.values():
            array[..., :-1] = array[..., -2::-1]
        return observation


class KeepsPaddingDouble(PromptBuffer):
    def clear(self):
        self._buffer._has_steps[:] = False


@pytest.mark.parametrize("context_length", [1, 2, 5, 64])
def test_single_buffer_equals_the_slow_twin(context_length):
    check_single(PromptBuffer, context_length, seed=context_length)


@pytest.mark.parametrize("context_length", [1, 2, 5, 64])
def test_vector_buffer_equals_the_slow_twin_under_partial_masks(context_length):
    check_vector(VectorPromptBuffer, context_length, seed=context_length)


@pytest.mark.parametrize("double", [NewestFirstDouble, KeepsPaddingDouble])
def test_single_twin_catches(double):
    with pytest.raises(AssertionError):
        check_single(double, 5)


@pytest.mark.parametrize("double", [IgnoresWhereDouble, SharedSlotDouble, NeverEndsDouble])
def test_vector_twin_catches(double):
    with pytest.raises(AssertionError):
        check_vector(double, 5)


def test_vector_refusals_leave_every_copy_unchanged():
    buffer, running = VectorPromptBuffer(2, 3, 1), np.array([True, False])
    buffer.reset([[1.0], [2.0]])
    before = buffer.observation()
    for call, error, message in [
        (lambda: buffer.append([1.0, np.nan], [[1.0], [1.0]], False, False), ValueError, "rewards must be finite"),
        (lambda: buffer.append([1.0], [[1.0], [1.0]], False, False), ValueError, r"rewards must have shape \(2,\)"),
        (
            lambda: buffer.append([1.0, 1.0], [[1.0]], False, False),
            ValueError,
            r"next_features must have shape \(2, 1\)",
        ),
        (lambda: buffer.reset([[1.0], [np.inf]]), ValueError, "features must be finite"),
    ]:
        with pytest.raises(error, match=message):
            call()
        assert_same(buffer.observation(), before)
    buffer.clear(~running)
    before = buffer.observation()
    with pytest.raises(RuntimeError, match="append needs a running episode"):
        buffer.append([1.0, 1.0], [[1.0], [1.0]], False, False)
    assert_same(buffer.observation(), before)
    buffer.append([1.0, 1.0], [[1.0], [1.0]], False, False, running)
