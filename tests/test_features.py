"""Feature maps: formulas, norms, specs, purity, start offsets and bad inputs."""

import json
import math
import zlib
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from gymnasium import spaces

from icrl_agent.features import (
    FeatureMap,
    OneHot,
    RandomFourier,
    RandomUniform,
    RandomUnit,
    Table,
    feature_map_for,
    from_spec,
)

TABLE = [[0.5, -1.0], [2.0, 0.25], [0.0, 3.0]]
STATE_MAPS = {
    "one_hot": lambda start: OneHot(3, start=start),
    "random_unit": lambda start: RandomUnit(3, 5, seed=4, start=start),
    "random_uniform": lambda start: RandomUniform(3, 5, seed=4, start=start),
    "table": lambda start: Table(TABLE, start=start),
}
ALL_MAPS = {kind: make(2) for kind, make in STATE_MAPS.items()} | {
    "random_fourier": RandomFourier((1.0, -2.0), (0.5, 3.0), 7, lengthscale=1.3, seed=5),
}
SEEDED = {
    "random_unit": lambda n, seed: RandomUnit(n, 6, seed=seed),
    "random_uniform": lambda n, seed: RandomUniform(n, 6, seed=seed),
}


def example(kind):
    return np.array([[0.25, 4.0], [1.0, -2.0]]) if kind == "random_fourier" else np.array([4, 2])


def expected_row(kind, state):
    """The formula of each state map, written out for state 0 .. 2 (start already subtracted)."""
    rng = np.random.default_rng([4, zlib.crc32(b"features")])
    if kind == "one_hot":
        return [1.0 if i == state else 0.0 for i in range(3)]
    if kind == "table":
        return TABLE[state]
    if kind == "random_uniform":
        return [rng.uniform(-1, 1) for _ in range(15)][5 * state : 5 * state + 5]
    draws = [rng.standard_normal() for _ in range(15)][5 * state : 5 * state + 5]
    return [z / math.sqrt(sum(y * y for y in draws)) for z in draws]


def check_rows(feature_map, kind, start):
    for state in range(3):
        np.testing.assert_allclose(feature_map(np.array([start + state]))[0], expected_row(kind, state), rtol=1e-14)


@pytest.mark.parametrize("kind", STATE_MAPS)
@pytest.mark.parametrize("start", [0, 1, -3])
def test_state_maps_follow_their_formula_from_any_start(kind, start):
    check_rows(STATE_MAPS[kind](start), kind, start)
    with pytest.raises((AssertionError, ValueError)):
        check_rows(STATE_MAPS[kind](start + 1), kind, start)  # shifted by one state


@pytest.mark.parametrize("kind", ALL_MAPS)
def test_calls_return_float64_batches_of_dim(kind):
    feature_map = ALL_MAPS[kind]
    rows = feature_map(example(kind))
    assert isinstance(feature_map, FeatureMap)
    assert rows.dtype == np.float64
    assert rows.shape == (2, feature_map.dim)


@pytest.mark.parametrize("kind", ALL_MAPS)
def test_returned_rows_are_copies(kind):
    feature_map = ALL_MAPS[kind]
    before = feature_map(example(kind)).copy()
    feature_map(example(kind))[:] = 99.0
    np.testing.assert_array_equal(feature_map(example(kind)), before)


def test_table_keeps_its_own_copy():
    array = np.array(TABLE)
    feature_map = Table(array)
    array[:] = 0.0
    np.testing.assert_array_equal(feature_map([0, 1, 2]), TABLE)


def check_unit_norm(rows):
    # Each norm is a square root of at most 64 rounded products: a few units in the last place.
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=64 * np.finfo(float).eps)


@pytest.mark.parametrize("dim", [1, 2, 3, 32])
def test_unit_norms(dim):
    check_unit_norm(RandomUnit(50, dim, seed=1)(np.arange(50)))
    check_unit_norm(RandomFourier(0.0, 1.0, dim, seed=1)(np.linspace(-3, 3, 50)))
    with pytest.raises(AssertionError):
        check_unit_norm(RandomUniform(50, dim, seed=1)(np.arange(50)))


def check_round_trip(feature_map, observations, spec):
    rebuilt = from_spec(json.loads(json.dumps(spec)))
    assert type(rebuilt) is type(feature_map)
    assert rebuilt.spec() == feature_map.spec()
    np.testing.assert_array_equal(rebuilt(observations), feature_map(observations))


@pytest.mark.parametrize("kind", ALL_MAPS)
def test_spec_survives_json(kind):
    feature_map = ALL_MAPS[kind]
    spec = feature_map.spec()
    assert spec["kind"] == kind
    check_round_trip(feature_map, example(kind), spec)
    dropped = "seed" if "seed" in spec else "start"
    with pytest.raises((AssertionError, ValueError)):
        check_round_trip(feature_map, example(kind), {k: v for k, v in spec.items() if k != dropped})


def test_numpy_integers_give_json_specs():
    sizes = np.int64(3), np.int64(2)
    for feature_map in (OneHot(sizes[0]), RandomUnit(*sizes, seed=np.int64(1)), RandomFourier(0, 1, sizes[1])):
        check_round_trip(feature_map, [0, 1], feature_map.spec())


def check_pure(make):
    small, again, large, other = make(4, 3), make(4, 3), make(9, 3), make(4, 8)
    np.testing.assert_array_equal(small(np.arange(4)), again(np.arange(4)))
    np.testing.assert_array_equal(large(np.arange(4)), small(np.arange(4)))
    assert not np.array_equal(small(np.arange(4)), other(np.arange(4)))


def global_double(n, seed):
    return Table(np.random.rand(n, 6))  # noqa: NPY002 - the mistake this check is for


def column_major_double(n, seed):
    return Table(np.random.default_rng(seed).standard_normal((6, n)).T)


def seedless_double(n, seed):
    return RandomUnit(n, 6)


@pytest.mark.parametrize("kind", SEEDED)
def test_rows_are_a_pure_function_of_seed_and_keep_their_prefix(kind):
    check_pure(SEEDED[kind])


@pytest.mark.parametrize("double", [global_double, column_major_double, seedless_double])
def test_purity_check_catches(double):
    with pytest.raises(AssertionError):
        check_pure(double)


@pytest.mark.parametrize("kind", SEEDED)
def test_global_generators_are_untouched(kind):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    SEEDED[kind](4, 0)(np.arange(4))
    RandomFourier(0.0, 1.0, 8, seed=3)(np.arange(4.0))
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_uniform_features_fill_the_interval():
    rows = RandomUniform(4000, 5, seed=0)(np.arange(4000)).ravel()
    # 20,000 draws of U(-1, 1): mean 0, variance 1/3, variance of the square 4/45; five standard errors.
    assert np.abs(rows).max() < 1
    assert abs(rows.mean()) < 5 * math.sqrt(1 / 3 / len(rows))
    assert abs((rows**2).mean() - 1 / 3) < 5 * math.sqrt(4 / 45 / len(rows))


def fourier_by_hand(feature_map, observation):
    """Cosine-sine pairs by loops, from the documented order of the draws."""
    n_pairs = (feature_map.dim + 1) // 2
    frequencies = np.random.default_rng([feature_map.seed, zlib.crc32(b"features")]).standard_normal(
        (n_pairs, len(observation))
    )
    numbers = []
    for w in frequencies:
        phase = sum(
            w_i / feature_map.lengthscale * (o - shift) / scale
            for w_i, o, shift, scale in zip(w, observation, feature_map.shift, feature_map.scale, strict=True)
        )
        numbers += [math.cos(phase), math.sin(phase)]
    numbers = numbers[: feature_map.dim]
    return np.array(numbers) / math.sqrt(sum(x * x for x in numbers))


@pytest.mark.parametrize("dim", [1, 2, 7, 16])
def test_fourier_formula(dim):
    feature_map = RandomFourier((1.0, -2.0), (0.5, 3.0), dim, lengthscale=1.3, seed=5)
    observation = [0.25, 4.0]
    np.testing.assert_allclose(feature_map([observation])[0], fourier_by_hand(feature_map, observation), atol=1e-13)


def check_gaussian_kernel(feature_map, lengthscale):
    z = np.linspace(0.0, 3.0, 13)
    got = feature_map(z) @ feature_map(z[:1]).T
    exact = np.exp(-(z**2) / (2 * lengthscale**2))
    # <x(z), x(0)> is the mean of dim/2 independent cos(w z), of variance (1 + k(2z) - 2 k(z)^2) / 2, k Gaussian.
    variance = (1 + np.exp(-2 * z**2 / lengthscale**2) - 2 * exact**2) / 2
    error = np.sqrt(variance / (feature_map.dim // 2))
    assert (np.abs(got[:, 0] - exact) <= 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("lengthscale", [0.5, 1.0, 2.0])
def test_fourier_inner_products_approximate_the_gaussian_kernel(lengthscale):
    for seed in range(5):
        check_gaussian_kernel(RandomFourier(0.0, 1.0, 8192, lengthscale, seed), lengthscale)
    with pytest.raises(AssertionError):
        check_gaussian_kernel(RandomFourier(0.0, 1.0, 8192, lengthscale**2 + 0.5, 0), lengthscale)


def test_fourier_keeps_its_prefix_when_dim_grows():
    small, large = (RandomFourier(0.0, 1.0, dim, seed=2)([0.3])[0] for dim in (4, 10))
    np.testing.assert_allclose(large[:4] / large[0], small / small[0], rtol=1e-13)


@pytest.mark.parametrize("start", [0, 5])
def test_default_for_discrete(start):
    feature_map = feature_map_for(spaces.Discrete(4, start=start), dim=6, seed=9)
    assert isinstance(feature_map, RandomUnit)
    np.testing.assert_array_equal(feature_map(np.arange(start, start + 4)), RandomUnit(4, 6, 9)(np.arange(4)))


def check_box_default(feature_map):
    """Finite bounds: centred, unit variance of the uniform distribution; other dimensions as they are."""
    np.testing.assert_allclose(feature_map.shift, [3.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(feature_map.scale, [4.0 / math.sqrt(12), 1.0, 1.0, 1.0])
    assert feature_map.lengthscale == 2.0


def test_default_for_box_with_infinite_bounds():
    low, high = np.array([1, -np.inf, 0, -np.inf], np.float32), np.array([5, np.inf, np.inf, 2], np.float32)
    feature_map = feature_map_for(spaces.Box(low, high), dim=8)
    check_box_default(feature_map)
    check_box_default(from_spec(json.loads(json.dumps(feature_map.spec()))))
    assert np.isfinite(feature_map(np.array([[1, 3.4e38, -3.4e38, 0]], np.float32))).all()
    with pytest.raises(AssertionError):
        check_box_default(RandomFourier((3.0, 0, 0, 0), (4.0, 1, 1, 1), 8, 2.0))


@pytest.mark.parametrize(
    "box",
    [spaces.Box(-1, 1, (), np.float64), spaces.Box(0, 255, (3,), np.uint8), spaces.Box(2.0, 2.0, (2,), np.float64)],
    ids=["scalar", "integers", "one point"],
)
def test_default_for_other_vectors(box):
    feature_map = feature_map_for(box, dim=8)
    check_unit_norm(feature_map(np.stack([box.sample(), box.sample()])))


@pytest.mark.parametrize("space", [spaces.Box(0, 1, (4, 4)), spaces.Dict({}), spaces.MultiDiscrete([2, 3])])
def test_other_spaces_have_no_default(space):
    with pytest.raises(TypeError, match="no default features for observation space"):
        feature_map_for(space)


@pytest.mark.parametrize("value", [0, -1, True, 2.5, "3", None])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("n_states", lambda v: OneHot(v)),
        ("n_states", lambda v: RandomUnit(v, 4)),
        ("dim", lambda v: RandomUnit(4, v)),
        ("dim", lambda v: RandomUniform(4, v)),
        ("dim", lambda v: RandomFourier(0.0, 1.0, v)),
    ],
)
def test_sizes_must_be_positive_integers(name, make, value):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {value!r}"):
        make(value)


@pytest.mark.parametrize("seed", [-1, True, 0.5, None])
@pytest.mark.parametrize("cls", [RandomUnit, RandomUniform])
def test_seeds_must_be_non_negative_integers(cls, seed):
    with pytest.raises(ValueError, match=f"seed must be a non-negative integer, got {seed!r}"):
        cls(3, 4, seed=seed)


@pytest.mark.parametrize("kind", STATE_MAPS)
def test_states_outside_are_named(kind):
    feature_map = STATE_MAPS[kind](2)
    for bad in (1, 5):
        with pytest.raises(ValueError, match=f"state {bad} has no features: .* knows states 2 to 4"):
            feature_map([2, bad])
    with pytest.raises(TypeError, match="maps integer states, got observations of dtype float64"):
        feature_map([2.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table([1.0, 2.0]), r"shape \(n_states, dim\), got an array of shape \(2,\)"),
        (lambda: Table([[1.0], [np.nan]]), "finite numbers, row 1 does not"),
        (lambda: RandomFourier(0.0, 0.0, 4), "scale must be a finite positive number"),
        (lambda: RandomFourier(np.inf, 1.0, 4), "shift must be a finite number"),
        (
            lambda: RandomFourier(0.0, 1.0, 4, lengthscale=0.0),
            "lengthscale must be a positive number, 'median' or 'auto', got 0.0",
        ),
        (lambda: RandomFourier((0.0, 1.0), 1.0, 4)([[1.0, 2.0, 3.0]]), "have 3 numbers each, shift has 2"),
        (lambda: RandomFourier(0.0, 1.0, 4)([[1.0, 2.0], [0.0, np.nan]]), "observation 1 is not finite in dimension 1"),
        (
            lambda: from_spec({"kind": "tabular"}),
            "unknown feature map kind 'tabular', known kinds: one_hot, pairs, random_",
        ),
        (lambda: from_spec({}), "unknown feature map kind None"),
        (lambda: from_spec({"kind": "one_hot", "dim": 3}), "'one_hot' does not take these arguments: .*dim"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("kind", ALL_MAPS)
def test_maps_are_frozen(kind):
    with pytest.raises(FrozenInstanceError):
        ALL_MAPS[kind].dim = 3
