"""Transitions that were logged elsewhere: from arrays, episodes, .npz and .csv files, and Minari datasets.

Every row carries its own successor, so rows may come in any order.
"""

from __future__ import annotations

from pathlib import Path

from icrl_agent.logged_data.arrays import transitions_from_arrays, transitions_from_episodes
from icrl_agent.logged_data.files import (
    transitions_from_csv,
    transitions_from_npz,
    transitions_to_csv,
    transitions_to_npz,
)
from icrl_agent.logged_data.minari import transitions_from_minari
from icrl_agent.transitions import Transitions

__all__ = [
    "load_transitions",
    "transitions_from_arrays",
    "transitions_from_csv",
    "transitions_from_episodes",
    "transitions_from_minari",
    "transitions_from_npz",
    "transitions_to_csv",
    "transitions_to_npz",
]

#: How ``load_transitions`` tells a Minari dataset's name from a file's.
MINARI_PREFIX = "minari:"


def load_transitions(source: str | Path) -> Transitions:
    """Read transitions from an .npz or .csv file, or, as "minari:NAME", from a Minari dataset.

    Raises:
        ValueError: for anything else, and as the function for the kind.
    """
    if str(source).startswith(MINARI_PREFIX):
        return transitions_from_minari(str(source).removeprefix(MINARI_PREFIX))
    readers = {".npz": transitions_from_npz, ".csv": transitions_from_csv}
    suffix = Path(source).suffix.lower()
    if suffix not in readers:
        raise ValueError(f"logged data are a .npz or .csv file or {MINARI_PREFIX}NAME, got {str(source)!r}")
    return readers[suffix](source)
