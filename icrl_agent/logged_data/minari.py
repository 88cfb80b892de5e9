"""Transitions from Minari datasets; Minari is an optional extra, imported when it is needed."""

from __future__ import annotations

from typing import Any

from icrl_agent.logged_data.arrays import transitions_from_episodes
from icrl_agent.transitions import Transitions

__all__ = ["transitions_from_minari"]


def transitions_from_minari(dataset: Any) -> Transitions:
    """Read a Minari dataset: its name (on this machine), or a ``minari.MinariDataset``.

    Raises:
        ValueError: if Minari is not installed, or no dataset of this name is on this machine; it says what to do.
    """
    if isinstance(dataset, str):
        try:
            import minari
        except ImportError as error:
            raise ValueError(
                "reading Minari datasets needs the extra minari: pip install 'icrl-agent[minari]'"
            ) from error
        try:
            dataset = minari.load_dataset(dataset)
        except (FileNotFoundError, ValueError) as error:
            raise ValueError(
                f"no Minari dataset {dataset!r} on this machine: `minari download {dataset}` obtains it,"
                " `minari list remote` shows what there is"
            ) from error
    episodes = (
        {
            "observations": episode.observations,
            "rewards": episode.rewards,
            "terminated": episode.terminations,
            "truncated": episode.truncations,
        }
        for episode in dataset.iterate_episodes()
    )
    return transitions_from_episodes(episodes, dataset.observation_space)
