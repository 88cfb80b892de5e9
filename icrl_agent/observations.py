"""Raw observations as rows of numbers: composite spaces are flattened, images are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

__all__ = [
    "batch_length",
    "flat_rows",
    "is_composite",
    "recorded_observation_space",
    "refuse_images",
    "single_observations",
]

#: Vectors with more numbers are taken for images, or for something else that no distance between numbers compares.
LONGEST_VECTOR = 1000


def is_composite(space: spaces.Space[Any]) -> bool:
    """Whether observations are recorded through ``gymnasium.spaces.flatten``: Dict, Tuple, MultiDiscrete."""
    return isinstance(space, spaces.Dict | spaces.Tuple | spaces.MultiDiscrete)


def recorded_observation_space(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """The space of recorded observations: flattened for composite spaces, else the space itself.

    Raises:
        TypeError: for a space that has no flat form of fixed length (text, graphs, sequences).

    >>> recorded_observation_space(spaces.Dict({"room": spaces.Discrete(3), "speed": spaces.Box(-1, 1, (2,))})).shape
    (5,)
    """
    flat = spaces.flatten_space(space) if is_composite(space) and space.is_np_flattenable else space
    if not isinstance(flat, spaces.Discrete | spaces.Box | spaces.MultiBinary):
        raise TypeError(
            f"observation space {type(space).__name__} is not supported: Discrete, Box, MultiBinary, MultiDiscrete,"
            " and Dict or Tuple of these are"
        )
    return flat


def refuse_images(space: spaces.Space[Any]) -> None:
    """Raise TypeError for a space with images, or vectors of more than ``LONGEST_VECTOR`` numbers, anywhere in it."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            refuse_images(part)
    elif isinstance(space, spaces.Box):
        pixels = len(space.shape) >= 3 or (len(space.shape) == 2 and space.dtype == np.uint8)
        if pixels or int(np.prod(space.shape)) > LONGEST_VECTOR:
            raise TypeError(
                f"observations of shape {space.shape}, dtype {space.dtype} look like images, which have no default"
                " features: pass a feature_map (a network's embedding), or wrap the environment to show a vector"
            )


def single_observations(space: spaces.Space[Any], batch: Any) -> list[Any]:
    """Single observations of a batch, in the form in which a vector environment or an SB3 VecEnv returns them."""
    return list(iterate(batch_space(space, batch_length(batch)), batch))


def flat_rows(space: spaces.Space[Any], observations: Any) -> NDArray[Any]:
    """Rows of numbers of a sequence of raw observations, (n, ...); unchanged where the space is not composite.

    >>> flat_rows(spaces.MultiDiscrete([2, 3]), [[0, 2], [1, 0]])
    array([[1, 0, 0, 0, 1],
           [0, 1, 1, 0, 0]])
    """
    if not is_composite(space):
        return np.array(observations, copy=True)
    return np.stack([np.asarray(spaces.flatten(space, one)) for one in observations])


def batch_length(batch: Any) -> int:
    """Number of observations in a batch whose parts may lie in mappings and tuples."""
    while isinstance(batch, Mapping | tuple):
        batch = next(iter(batch.values())) if isinstance(batch, Mapping) else batch[0]
    return len(batch)
