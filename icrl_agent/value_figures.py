"""Pictures of values where states are vectors: a map over two dimensions, and an episode with its returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from icrl_agent.figures import COLOURS, new_figure, value_limits

if TYPE_CHECKING:
    from icrl_agent.results import Evaluation

__all__ = ["discounted_returns", "grid_queries", "longest_episode", "plot_episode", "plot_value_map"]

FloatArray = NDArray[np.float64]


def grid_queries(observations: ArrayLike, dimensions: tuple[int, int] = (0, 1), size: int = 40) -> FloatArray:
    """Queries on a grid over the range of two dimensions, the others at their medians, (size * size, k).

    Args:
        observations: visited states, (n, k).
        dimensions: two different dimensions.
        size: points per dimension, at least 2.

    >>> grid_queries([[0.0, 5.0, 1.0], [2.0, 7.0, 3.0]], (0, 1), size=2).tolist()
    [[0.0, 5.0, 2.0], [0.0, 7.0, 2.0], [2.0, 5.0, 2.0], [2.0, 7.0, 2.0]]
    """
    rows = np.asarray(observations, dtype=np.float64)
    _check_dimensions(rows, dimensions)
    if size < 2:
        raise ValueError(f"size must be an integer of at least 2, got {size!r}")
    lines = [np.linspace(rows[:, d].min(), rows[:, d].max(), size) for d in dimensions]
    queries = np.tile(np.median(rows, axis=0), (size * size, 1))
    queries[:, dimensions[0]], queries[:, dimensions[1]] = (axis.ravel() for axis in np.meshgrid(*lines, indexing="ij"))
    return queries


def plot_value_map(
    evaluation: Evaluation, dimensions: tuple[int, int] = (0, 1), names: tuple[str, str] | None = None
) -> Figure:
    """Draw values over two dimensions of the states: a surface for ``grid_queries``, else one dot per state.

    Args:
        evaluation: of states with at least two dimensions, (m, k).
        dimensions: of the horizontal and the vertical axis.
        names: of the axes; None = their numbers.

    Raises:
        ValueError: for states that have no two such dimensions.
    """
    states, values = np.asarray(evaluation.states, dtype=np.float64), evaluation.values
    _check_dimensions(states, dimensions)
    x, y = states[:, dimensions[0]], states[:, dimensions[1]]
    figure, axis = new_figure(5.6, 4.2)
    axis.grid(visible=False)
    low, high = value_limits(values)
    lines = np.unique(x), np.unique(y)
    if len(lines[0]) * len(lines[1]) == len(values) > 4 and len(np.unique(states, axis=0)) == len(values):
        surface = np.empty((len(lines[1]), len(lines[0])))
        surface[np.searchsorted(lines[1], y), np.searchsorted(lines[0], x)] = values
        image = axis.pcolormesh(
            *lines, surface, cmap="viridis", vmin=low, vmax=high, shading="nearest", rasterized=True
        )
        visited = np.asarray(evaluation.transitions.observations, dtype=np.float64)[:, list(dimensions)]
        axis.plot(*visited.T, ".", color="#FFFFFF", markersize=1.5, alpha=0.5, rasterized=True)
        axis.set_xlim(lines[0][[0, -1]])
        axis.set_ylim(lines[1][[0, -1]])
    else:
        image = axis.scatter(x, y, c=values, cmap="viridis", vmin=low, vmax=high, s=9, linewidths=0, rasterized=True)
    shown = names or tuple(f"observation[{d}]" for d in dimensions)
    axis.set_xlabel(shown[0])
    axis.set_ylabel(shown[1])
    axis.set_title(f"value, {evaluation.n_steps} steps of context, γ = {evaluation.gamma:g}", fontsize=10)
    figure.colorbar(image, ax=axis)
    return figure


def plot_episode(evaluation: Evaluation, rows: ArrayLike | None = None) -> Figure:
    """Draw values along an episode beside its discounted returns.

    Where the episode was cut, the estimated value of the last state that was left stands for what was to come.

    Args:
        evaluation: it must answer for the visited states, as it does when no queries are given.
        rows: transitions of one episode in their order; None = the longest.

    Raises:
        ValueError: if a state of the episode was not answered.
    """
    t = evaluation.transitions
    chosen = longest_episode(evaluation) if rows is None else np.asarray(rows)
    values = _values_of(evaluation, t.observations[chosen])
    cut = not t.terminated[chosen[-1]]
    rewards = t.rewards[chosen]
    if cut:
        returns = np.append(discounted_returns(rewards[:-1], evaluation.gamma, float(values[-1])), values[-1])
    else:
        returns = discounted_returns(rewards, evaluation.gamma)
    figure, axis = new_figure()
    steps = np.arange(len(chosen))
    label = "discounted return" + (", continued by the estimate" if cut else "")
    axis.plot(steps, returns, color="#000000", linewidth=1.4, label=label)
    axis.plot(steps, values, color=COLOURS[0], linewidth=1.8, label="frozen agent")
    axis.set_xlabel("step of the episode")
    axis.set_ylabel("value")
    axis.set_title(f"{evaluation.n_steps} steps of context, γ = {evaluation.gamma:g}", fontsize=10)
    axis.legend(frameon=False, fontsize=9, loc="lower left")
    return figure


def longest_episode(evaluation: Evaluation) -> NDArray[np.intp]:
    """Rows of the longest recorded episode, one that ended where there is any."""
    t = evaluation.transitions
    episodes = t.episodes()
    lengths = np.bincount(episodes)
    ended = np.isin(np.arange(len(lengths)), episodes[t.terminated])
    best = np.argmax(np.where(ended, lengths, 0) if ended.any() else lengths)
    return np.flatnonzero(episodes == best)


def discounted_returns(rewards: ArrayLike, gamma: float, rest: float = 0.0) -> FloatArray:
    """G_t = R_{t+1} + gamma G_{t+1} along an episode, (n,); ``rest`` is the value of the state after it.

    >>> discounted_returns([1.0, 2.0], 0.5, rest=4.0)
    array([3., 4.])
    """
    returns = np.asarray(rewards, dtype=np.float64).copy()
    for k in range(len(returns) - 1, -1, -1):
        rest = returns[k] = returns[k] + gamma * rest
    return returns


def _values_of(evaluation: Evaluation, observations: NDArray[np.generic]) -> FloatArray:
    answered = {np.asarray(state).tobytes(): k for k, state in enumerate(evaluation.states.astype(observations.dtype))}
    found = [answered.get(np.asarray(observation).tobytes()) for observation in observations]
    if None in found:
        raise ValueError("a state of the episode was not answered: evaluate without queries, or ask for its states")
    return evaluation.values[np.asarray(found, dtype=np.intp)]


def _check_dimensions(states: NDArray[np.generic], dimensions: tuple[int, int]) -> None:
    n = states.shape[1] if states.ndim == 2 else 0
    if len(set(dimensions)) != 2 or not all(0 <= d < n for d in dimensions):
        raise ValueError(f"a map needs two different dimensions of states with several, got {dimensions} of {n}")
