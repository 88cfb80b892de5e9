"""Draw the pictures of docs/weighted_softmax_td.md.

    python benchmarks/explain_figures.py            into docs/figures

Attention of a softmax kernel over the states of a chain at three sharpnesses; what one TD error does to the values of
all states, beside tabular TD(0); values after 1, 3, 10, 30 and 100 layers. Takes seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from icrl_agent.algorithms import certainty_equivalence, empirical_kernel, weighted_softmax_td
from icrl_agent.envs import random_boyan_chain, state_values
from icrl_agent.features import RandomFourier, RandomUnit
from icrl_agent.figures import COLOURS, new_figure

GAMMA, N_STATES, N_STEPS = 0.9, 12, 300


def walk(seed: int, n_steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States (n + 1,) and rewards (n,) of a random Boyan chain, and its true values."""
    mdp, _ = random_boyan_chain(N_STATES, seed)
    mrp = mdp.policy_mrp()
    rng = np.random.default_rng(seed)
    states = [int(rng.choice(N_STATES, p=mrp.initial))]
    for _ in range(n_steps):
        states.append(int(rng.choice(N_STATES, p=mrp.transition[states[-1]])))
    path = np.array(states)
    return path, mrp.reward[path[:-1]], state_values(mrp, GAMMA)


def draw_attention(folder: Path) -> None:
    """M_n of one context: blunt, sharper, sharp."""
    states, rewards, _ = walk(3, N_STEPS)
    x = RandomUnit(N_STATES, 16, seed=1)(np.arange(N_STATES))
    figure, axis = new_figure(9.6, 3.4)
    figure.delaxes(axis)
    panels = figure.subplots(1, 3)
    for panel, sharpness in zip(panels, (1.0, 4.0, 16.0), strict=True):
        layer_map = empirical_kernel(np.sqrt(sharpness) * x[states], rewards, queries=np.sqrt(sharpness) * x)
        order = layer_map.column_state[-N_STATES:]
        image = panel.imshow(layer_map.M[np.ix_(order, order)], cmap="Purples", vmin=0.0, vmax=1.0)
        panel.set_title(f"sharpness {sharpness:g}", fontsize=10)
        panel.set_xlabel("source state")
        panel.set_xticks(range(0, N_STATES, 2))
        panel.set_yticks(range(0, N_STATES, 2))
    panels[0].set_ylabel("query state")
    figure.colorbar(image, ax=panels, shrink=0.85, label="attention $M_n$")
    figure.savefig(folder / "explain_attention.png")


def draw_one_error(folder: Path) -> None:
    """A single TD error of 1 at state 5: who learns from it, under features without and with order."""
    states, rewards, _ = walk(3, N_STEPS)
    figure, axis = new_figure(7.2, 3.4)
    own = np.zeros(N_STATES)
    own[5] = 1.0
    axis.bar(np.arange(N_STATES) - 0.27, own, 0.27, color=COLOURS[7], label="tabular TD(0), step size 1")
    maps = (
        ("random unit features", RandomUnit(N_STATES, 16, seed=1)),
        ("Fourier features: neighbours resemble", RandomFourier(0.0, 1.0, 64, lengthscale=1.0, seed=0)),
    )
    for number, (name, feature_map) in enumerate(maps):
        x = np.sqrt(4.0) * feature_map(np.arange(N_STATES))
        layer_map = empirical_kernel(x[states], rewards, queries=x)
        order = layer_map.column_state[-N_STATES:]
        # All visits of state 5 have the error 1: the values change by the attention paid to it.
        change = layer_map.M[np.ix_(order, order)][:, 5]
        axis.bar(np.arange(N_STATES) + 0.27 * number, change, 0.27, color=COLOURS[number], label=name)
    axis.set_xticks(range(N_STATES))
    axis.set_xlabel("state")
    axis.set_ylabel("change of its value")
    axis.legend(loc="upper right", frameon=False, fontsize=8)
    figure.savefig(folder / "explain_one_error.png")


def draw_layers(folder: Path) -> None:
    """Values after some layers, and the truth."""
    states, rewards, truth = walk(3, N_STEPS)
    x = np.sqrt(8.0) * RandomUnit(N_STATES, 32, seed=1)(np.arange(N_STATES))
    values = weighted_softmax_td(x[states], rewards, GAMMA, 100, queries=x)
    figure, axis = new_figure(8.6, 3.6)
    for number, depth in enumerate((1, 3, 10, 30, 100)):
        axis.plot(
            values[depth],
            "o-",
            color=COLOURS[0],
            alpha=0.2 + 0.2 * number,
            markersize=4,
            label=f"{depth} layer{'s' if depth > 1 else ''}",
        )
    estimate = certainty_equivalence(states, rewards, GAMMA, N_STATES)
    axis.plot(estimate, "x", color=COLOURS[1], markersize=9, label="certainty equivalence on the same steps")
    axis.hlines(
        truth, np.arange(N_STATES) - 0.3, np.arange(N_STATES) + 0.3, color="#000000", linewidth=2, label="truth"
    )
    axis.set_xticks(range(N_STATES))
    axis.set_xlabel("state")
    axis.set_ylabel("value")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    figure.savefig(folder / "explain_layers.png")


def main() -> None:
    """Draw all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("docs/figures"))
    folder = parser.parse_args().folder
    for draw in (draw_attention, draw_one_error, draw_layers):
        draw(folder)


if __name__ == "__main__":
    main()
