"""Pictures of a tabular process: its transitions, its values, and where the agent is."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from numpy.typing import NDArray

from icrl_agent.envs.solve import NoUniqueSolution, state_values
from icrl_agent.envs.tables import TabularMDP

__all__ = ["draw_image", "draw_text"]

FloatArray = NDArray[np.float64]

_INK = "#222222"
_HERE = "#D55E00"
_RADIUS = 0.34
#: Transitions less likely than this are left out of the picture.
_FAINTEST = 0.02
#: Processes with more states are drawn without their transitions.
_LARGEST_DRAWN = 60
#: States in a row of a chain.
_ROW = 14


def draw_text(mdp: TabularMDP, state: int | None, gamma: float) -> str:
    """One line per state: a mark where the agent is, the value as a number and a bar, the likeliest successors.

    Values are those of the uniformly random policy at discount factor ``gamma``.
    """
    values, P = _values(mdp, gamma), mdp.policy_mrp().transition
    largest = max(float(np.abs(values).max()), 1e-12)
    lines = [f"  state     value  (random policy, gamma {gamma:g})"]
    for s, value in enumerate(values):
        bar = ("-" if value < 0 else "+") * round(20 * abs(value) / largest)
        likeliest = [t for t in np.argsort(-P[s], kind="stable")[:4] if P[s, t] >= _FAINTEST]
        onward = "end" if mdp.terminal[s] else ", ".join(f"{t}: {P[s, t]:.2f}" for t in likeliest)
        lines.append(f"{'>' if s == state else ' '} {s:>5}  {value:8.3f}  {bar:<20}  -> {onward}")
    return "\n".join(lines)


def draw_image(mdp: TabularMDP, state: int | None, gamma: float) -> NDArray[np.uint8]:
    """RGB image (height, width, 3): states coloured by value, arrows as thick as they are likely, the agent ringed.

    A process that mostly moves to neighbouring states is laid out as a line, any other as a circle. Values are those
    of the uniformly random policy at discount factor ``gamma``.
    """
    values, P = _values(mdp, gamma), mdp.policy_mrp().transition
    chain = _is_chain(P, mdp.terminal)
    places = _line(mdp) if chain else _circle(mdp.n_states)
    low = places.min(axis=0) - np.array([0.7, 1.5 if chain else 1.0])
    high = places.max(axis=0) + np.array([0.7, 0.9 if chain else 1.0])
    width, height = high - low
    figure = Figure(figsize=(9.0, 8.0 * height / width + 0.45), dpi=100)
    canvas = FigureCanvasAgg(figure)
    drawn = 8.0 * height / width / figure.get_figheight()
    axis = figure.add_axes((0.0, 0.0, 8.0 / 9.0, drawn))
    axis.axis("off")
    axis.set_xlim(low[0], high[0])
    axis.set_ylim(low[1], high[1])
    # The colour scale ends beyond the largest value, so that the numbers stay readable on every state.
    reach = 1.25 * max(float(np.abs(values).max()), 1e-12)
    colours = ScalarMappable(Normalize(-reach, reach), colormaps["PuOr"])
    points_per_unit = 72 * 8.0 / width
    if mdp.n_states <= _LARGEST_DRAWN:
        for source, target in np.argwhere(_FAINTEST <= P):
            if not mdp.terminal[source]:
                _draw_move(axis, places[source], places[target], P[source, target], points_per_unit, circle=not chain)
    rgba = colours.to_rgba(values)
    for s, place in enumerate(places):
        _draw_state(axis, s, place, rgba[s], values[s], points_per_unit, here=s == state, end=bool(mdp.terminal[s]))
    figure.suptitle(f"value of the random policy, γ = {gamma:g}", fontsize=11, color=_INK, y=0.99, va="top")
    figure.colorbar(colours, cax=figure.add_axes((0.915, 0.12 * drawn, 0.015, 0.76 * drawn)))
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]


def _values(mdp: TabularMDP, gamma: float) -> FloatArray:
    """Values at gamma; undiscounted values that do not exist are shown at 0.99."""
    try:
        return state_values(mdp.policy_mrp(), gamma)
    except NoUniqueSolution:
        return state_values(mdp.policy_mrp(), 0.99)


def _is_chain(P: FloatArray, terminal: NDArray[np.bool_]) -> bool:
    """Whether nearly every state only moves one or two places."""
    source, target = np.nonzero(_FAINTEST <= P)
    near = np.abs(source - target) <= 2
    far_sources = np.unique(source[~near & ~terminal[source]])
    return len(P) > 3 and len(far_sources) <= 1


def _line(mdp: TabularMDP) -> FloatArray:
    """Places in reading order, in rows of up to 14."""
    order = np.arange(mdp.n_states)
    # Episodes that end in state 0 read better from left to right.
    if mdp.terminal[0] and not mdp.terminal[-1]:
        order = order[::-1]
    return np.stack([1.15 * (order % _ROW), -2.4 * (order // _ROW)], axis=1).astype(np.float64)


def _circle(n_states: int) -> FloatArray:
    angle = np.pi / 2 - 2 * np.pi * np.arange(n_states) / n_states
    radius = max(1.2, 0.24 * n_states)
    return np.asarray(radius * np.stack([np.cos(angle), np.sin(angle)], axis=1))


def _draw_move(
    axis: Any, start: FloatArray, end: FloatArray, probability: float, points_per_unit: float, *, circle: bool
) -> None:
    gap = _RADIUS * points_per_unit
    if np.array_equal(start, end):
        # A loop on the side away from the others: upwards on a line, outwards on a circle.
        outward = start / np.hypot(*start) if circle else np.array([0.0, 1.0])
        across = np.array([outward[1], -outward[0]])
        begin, finish = (start + _RADIUS * (0.9 * outward + side * 0.42 * across) for side in (-1, 1))
        curve, gap = -1.9, 0.0
    else:
        begin, finish = start, end
        # On a line, steps ahead arch above, steps back below, and direct neighbours go straight.
        neighbours = start[1] == end[1] and abs(end[0] - start[0]) < 1.3
        curve = 0.0 if neighbours else (-0.45 if start[1] == end[1] and end[0] > start[0] else -0.2)
    axis.add_patch(
        FancyArrowPatch(
            tuple(begin),
            tuple(finish),
            connectionstyle=f"arc3,rad={curve}",
            arrowstyle="-|>",
            mutation_scale=7 + 6 * probability,
            shrinkA=gap,
            shrinkB=gap + 1.0 if gap else 0.0,
            linewidth=0.4 + 2.4 * probability,
            color=_INK,
            alpha=0.25 + 0.6 * probability,
            zorder=1,
        )
    )


def _draw_state(
    axis: Any,
    state: int,
    place: FloatArray,
    colour: NDArray[Any],
    value: float,
    points_per_unit: float,
    *,
    here: bool,
    end: bool,
) -> None:
    centre = (float(place[0]), float(place[1]))
    if here:
        axis.add_patch(Circle(centre, _RADIUS + 0.1, facecolor="none", edgecolor=_HERE, linewidth=3.5, zorder=3))
    style = {"linewidth": 2.2, "linestyle": "--"} if end else {"linewidth": 1.0}
    axis.add_patch(Circle(centre, _RADIUS, facecolor=tuple(colour), edgecolor=_INK, zorder=2, **style))
    bright = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 0.5
    size = 0.24 * points_per_unit
    text = {"ha": "center", "va": "center", "color": _INK if bright else "white", "zorder": 4}
    axis.text(centre[0], centre[1] + 0.09, str(state), fontsize=size, weight="bold", **text)
    axis.text(centre[0], centre[1] - 0.15, f"{value:.2f}", fontsize=0.7 * size, **text)
