"""The prompt matrix: literal columns, extra queries, and the refusals of build_prompt."""

import numpy as np
import pytest

from icrl_agent.prompt import (
    MEMORY_ROWS,
    Prompt,
    append_queries,
    build_prompt,
    current_row,
    feature_rows,
    reward_row,
    target_row,
)

# The deterministic chain 0 - 1 - 2 - 3 with rewards 10, 20, 30 and one-hot features.
CHAIN = np.array(
    [
        [1.0, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
        [10, 20, 30, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 0],
    ]
)


def check_chain(build):
    matrix = build(np.eye(4), np.array([10.0, 20.0, 30.0]))
    assert matrix.shape == CHAIN.shape
    np.testing.assert_array_equal(matrix, CHAIN)


def shifted_reward_double(features, rewards):
    matrix = build_prompt(features, rewards)
    matrix[reward_row(features.shape[1])] = np.roll(matrix[reward_row(features.shape[1])], 1)
    return matrix


def lost_column_double(features, rewards):
    return build_prompt(features[:-1], rewards[:-1])


def transposed_double(features, rewards):
    return build_prompt(np.flip(features, axis=0), rewards)


def swapped_rows_double(features, rewards):
    matrix = build_prompt(features, rewards)
    d = features.shape[1]
    return matrix[[*range(d), d + 1, d, d + 2]]


def test_chain_is_the_literal_matrix():
    check_chain(build_prompt)


@pytest.mark.parametrize("double", [shifted_reward_double, lost_column_double, transposed_double, swapped_rows_double])
def test_chain_check_catches(double):
    with pytest.raises(AssertionError):
        check_chain(double)


def test_row_names():
    assert (reward_row(4), target_row(4), current_row(4), MEMORY_ROWS) == (4, 5, 6, 3)
    np.testing.assert_array_equal(CHAIN[feature_rows(4)], np.eye(4))


def slow_prompt(features, rewards):
    """Element by element."""
    n_columns, d = features.shape
    matrix = [[0.0] * n_columns for _ in range(d + 3)]
    for j in range(n_columns):
        for i in range(d):
            matrix[i][j] = features[j][i]
        if j < n_columns - 1:
            matrix[d][j] = rewards[j]
    return np.array(matrix)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize(("n", "d"), [(0, 2), (1, 1), (5, 3)])
def test_batch_axes_equal_a_loop_of_singles(batch, n, d):
    rng = np.random.default_rng(0)
    features, rewards = rng.normal(size=(*batch, n + 1, d)), rng.normal(size=(*batch, n))
    matrices = build_prompt(features, rewards)
    assert matrices.shape == (*batch, d + 3, n + 1)
    for index in np.ndindex(batch):
        np.testing.assert_array_equal(matrices[index], slow_prompt(features[index], rewards[index]))


def check_dtype(build, dtype):
    assert build(np.eye(3, dtype=dtype), np.array([0.1, 0.2])).dtype == dtype


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_features_dtype_is_kept(dtype):
    check_dtype(build_prompt, dtype)
    with pytest.raises(AssertionError):
        check_dtype(lambda x, r: build_prompt(x, r).astype(np.float32 if dtype != np.float32 else np.float64), dtype)


def test_integer_features_do_not_truncate_rewards():
    matrix = build_prompt(np.eye(2, dtype=int), [0.75])
    assert matrix.dtype == np.float64
    assert matrix[reward_row(2), 0] == 0.75


def test_inputs_are_copied():
    features, rewards = np.eye(3), np.array([1.0, 2.0])
    matrix = build_prompt(features, rewards)
    features[:], rewards[:] = 9.0, 9.0
    np.testing.assert_array_equal(matrix, slow_prompt(np.eye(3), [1.0, 2.0]))


@pytest.mark.parametrize(
    ("features", "rewards"),
    [((4, 2), (4,)), ((4, 2), (2,)), ((4, 2), (3, 1)), ((4,), (3,)), ((2, 4, 2), (3,)), ((2, 4, 2), (2, 4))],
)
def test_rewards_that_do_not_match_are_refused(features, rewards):
    with pytest.raises(ValueError, match=r"go with rewards of shape .*, got \(") as error:
        build_prompt(np.zeros(features), np.zeros(rewards))
    assert str(features) in str(error.value)
    assert str(rewards) in str(error.value)


def chain_prompt():
    return Prompt(CHAIN.copy(), np.array([True, True, True, False]), np.array([1.0, 1.0, 0.0, 1.0]))


def check_queries(append):
    prompt = append(chain_prompt(), np.array([[0.5, 0, 0, 0.5], [0, 2.0, 0, 0]]))
    queries = np.array([[0.5, 0], [0, 2], [0, 0], [0.5, 0], [0, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(prompt.matrix, np.hstack([CHAIN, queries]))
    assert prompt.source_mask.tolist() == [True, True, True, False, False, False]
    assert prompt.continues.tolist() == [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]


def source_query_double(prompt, features):
    appended = append_queries(prompt, features)
    return appended._replace(source_mask=np.append(prompt.source_mask, [True, True]))


def prepending_double(prompt, features):
    appended = append_queries(prompt, features)
    return appended._replace(matrix=np.roll(appended.matrix, 2, axis=1))


def test_queries_stand_after_the_last_column_and_are_no_sources():
    check_queries(append_queries)


@pytest.mark.parametrize("double", [source_query_double, prepending_double])
def test_query_check_catches(double):
    with pytest.raises(AssertionError):
        check_queries(double)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_queries_take_the_prompts_dtype(dtype):
    prompt = chain_prompt()
    prompt = Prompt(prompt.matrix.astype(dtype), prompt.source_mask, prompt.continues.astype(dtype))
    appended = append_queries(prompt, np.eye(4))
    assert appended.matrix.dtype == appended.continues.dtype == dtype
    assert appended.source_mask.dtype == np.bool_


def test_no_queries_leave_the_prompt_equal():
    appended = append_queries(chain_prompt(), np.zeros((0, 4)))
    np.testing.assert_array_equal(appended.matrix, CHAIN)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 2, 4)])
def test_queries_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"queries have shape \(m, 4\) to match the prompt, got \("):
        append_queries(chain_prompt(), np.zeros(shape))
