"""What an evaluation returns: values with their evidence, their error where the truth is known, diagnostics."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icrl_agent.algorithms.kernel import LayerMap, assumption_margin, kernel_diagonality, spectral_radius
from icrl_agent.transitions import Transitions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Diagnostics", "Evaluation"]

FloatArray = NDArray[np.float64]

#: Above this many states no eigenvalues are computed.
LARGEST_SPECTRUM = 500


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What the attention kernel of a finite-state context says, over the states with visits > 0.

    Computed on first access. For contexts of continuous observations every property but ``last_layer_change`` and
    ``n_visited`` is None. With learned weights the map is that of gamma' = -gamma V_target / V_current and step size
    -V_current of the first layer.
    """

    make_layer_map: Callable[[], LayerMap] | None = field(repr=False)
    """Sums the attention by state (first layer); None for continuous observations."""
    gamma: float
    """Effective discount factor of a layer."""
    step_size: float
    """Effective step size of a layer."""
    last_layer_change: float
    """Largest change of any value by the last layer, reward units."""
    n_visited: int
    """Number of distinct states that were left at least once."""

    @cached_property
    def layer_map(self) -> LayerMap | None:
        """Sums of the attention by state (first layer); None for continuous observations."""
        return None if self.make_layer_map is None else self.make_layer_map()

    @property
    def kernel_diagonality_mean(self) -> float | None:
        """Mean of M_n(s, s): how much of its attention a state gives to its own visits, in [0, 1]."""
        return None if self.layer_map is None else self._diagonality[0]

    @property
    def kernel_diagonality_min(self) -> float | None:
        """Minimum of M_n(s, s), in [0, 1]."""
        return None if self.layer_map is None else self._diagonality[1]

    @property
    def assumption_margin(self) -> float | None:
        """C of Assumption 5.1, min M_n(s, s) - (1 + gamma) / 2; negative where the assumption fails."""
        return None if self.layer_map is None else assumption_margin(self.layer_map.M, self.gamma, self.layer_map.left)

    @cached_property
    def spectral_radius(self) -> float | None:
        """Factor by which TD errors shrink per layer in the long run; None above 500 states."""
        if self.layer_map is None or len(self.layer_map.left) > LARGEST_SPECTRUM:
            return None
        return spectral_radius(self.layer_map, self.gamma, self.step_size)

    @cached_property
    def _diagonality(self) -> tuple[float, float]:
        assert self.layer_map is not None
        return tuple(kernel_diagonality(self.layer_map.M, self.layer_map.left))  # type: ignore[return-value]

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain numbers, JSON-able; None where not finite."""
        names = ("kernel_diagonality_mean", "kernel_diagonality_min", "assumption_margin", "spectral_radius",
                 "last_layer_change", "n_visited")  # fmt: skip
        return {name: _plain(getattr(self, name)) for name in names}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Values estimated in context, one per answered state.

    >>> import gymnasium as gym, icrl_agent
    >>> result = icrl_agent.ICRLAgent.from_theory().evaluate(gym.make("BoyanChain-v0"), n_steps=200, seed=0)
    >>> result.values.shape, int(result.visits.sum()), result.normalized_msve < 0.2
    ((10,), 200, True)
    """

    states: NDArray[Any]
    """Raw observations, (m,) integers or (m, k)."""
    values: FloatArray
    """Estimated values, float64 (m,), reward units."""
    visits: NDArray[np.int64]
    """Real transitions that left the state, (m,); 0 = the value is a fill-in, not data."""
    true_values: FloatArray | None
    """Exact values (m,), None where unknown."""
    msve: float | None
    """Squared error weighted by the stationary distribution; None where unknown."""
    normalized_msve: float | None
    """``msve`` over the weighted mean square of the true values; 1 = answering 0."""
    centred_msve: float | None
    """``msve`` over the weighted variance of the true values; 1 = answering the best constant."""
    n_steps: int
    """Transitions in the context."""
    n_layers: int | str
    """Layers that ran, or "fixed_point"."""
    gamma: float
    """Discount factor."""
    seconds: float
    """Time of the estimate itself, without the environment's steps and without finding the truth."""
    diagnostics: Diagnostics = field(repr=False)
    """What the attention kernel says; computed on access."""
    transitions: Transitions = field(repr=False)
    """The experience the values come from."""
    reason: str | None = None
    """Why something is None."""
    chosen: Mapping[str, float] = field(default_factory=dict)
    """What was chosen from the context: sharpness, lengthscale."""
    make_stderr: Callable[[], FloatArray] | None = field(default=None, repr=False)
    """Computes ``stderr``."""

    @cached_property
    def stderr(self) -> FloatArray | None:
        """Standard errors of the values by the bootstrap over transitions or episodes, (m,), on first access.

        They cover the luck of the transitions; fill-ins (visits 0) have no meaningful error. See
        ``icrl_agent.uncertainty``.
        """
        return None if self.make_stderr is None else self.make_stderr()

    def to_dict(self) -> dict[str, Any]:
        """Everything but transitions and stderr as plain JSON-able numbers and lists; None where not finite."""
        result: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, Transitions) and item.name != "make_stderr":
                result[item.name] = value.to_dict() if isinstance(value, Diagnostics) else _plain(value)
        return result

    def to_csv(self, path: str | Path) -> None:
        """Write one row per state: state, value, true_value (empty where unknown), visits."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["state", "value", "true_value", "visits"])
            for row in range(len(self.values)):
                state = self.states[row]
                writer.writerow(
                    [
                        state if np.ndim(state) == 0 else " ".join(repr(float(part)) for part in np.ravel(state)),
                        repr(float(self.values[row])),
                        "" if self.true_values is None else repr(float(self.true_values[row])),
                        int(self.visits[row]),
                    ]
                )

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw estimated beside true values; fill-ins (visits 0) hollow. Saves to ``path`` where given."""
        from icrl_agent.figures import plot_values

        figure = plot_values(self)
        if path is not None:
            figure.savefig(path)
        return figure

    def plot_map(self, path: str | Path | None = None, dimensions: tuple[int, int] = (0, 1)) -> Figure:
        """Draw the values over two dimensions of the states, see ``icrl_agent.value_figures.plot_value_map``."""
        from icrl_agent.value_figures import plot_value_map

        figure = plot_value_map(self, dimensions)
        if path is not None:
            figure.savefig(path)
        return figure

    def plot_episode(self, path: str | Path | None = None) -> Figure:
        """Draw the values along the longest episode beside its discounted returns."""
        from icrl_agent.value_figures import plot_episode

        figure = plot_episode(self)
        if path is not None:
            figure.savefig(path)
        return figure


def _plain(value: Any) -> Any:
    """Arrays as lists, and None for what JSON has no number for."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
