"""What a comparison compares, checked before anything runs. Light: the command line reads it without torch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icrl_agent.envs.solve import check_gamma

__all__ = ["CompareConfig"]


@dataclass(frozen=True)
class CompareConfig:
    """A comparison; together with nothing else it decides every number but the seconds.

    Raises:
        ValueError: for a budget, size, discount factor or JSON text that is not allowed.
    """

    env: str
    """Environment id with Discrete observations, for example BoyanChain-v0."""
    steps: tuple[int, ...] = (30, 100, 300, 1000)
    """Budgets: environment steps really taken."""
    n_tasks: int = 20
    """Tasks: task seeds from first-task on, or trajectory seeds where the environment has one task."""
    first_task: int = 1000
    """First task seed."""
    gamma: float = 0.9
    """Discount factor of every method, in [0, 1)."""
    methods: tuple[str, ...] = ()
    """Names, or parts of names, of the methods; all if not given."""
    policy: str = ""
    """The policy evaluated: an .npy file of action probabilities (n_states, n_actions); uniform if not given."""
    env_kwargs: str = "{}"
    """Arguments of the environment as JSON."""
    truth_steps: int = 200_000
    """Steps of the Monte-Carlo reference where the true values are not known."""

    def __post_init__(self) -> None:
        if not self.steps or any(not isinstance(k, int) or isinstance(k, bool) or k < 1 for k in self.steps):
            raise ValueError(f"steps must be integers of at least 1, got {self.steps}")
        if len(set(self.steps)) < len(self.steps):
            raise ValueError(f"steps must differ, got {self.steps}")
        if self.n_tasks < 1 or self.first_task < 0:
            raise ValueError(
                f"n_tasks must be at least 1 and first_task at least 0, got {self.n_tasks}, {self.first_task}"
            )
        if self.truth_steps < 1:
            raise ValueError(f"truth_steps must be at least 1, got {self.truth_steps}")
        if check_gamma(self.gamma) == 1:
            raise ValueError("gamma must be below 1 in a comparison: several methods have no undiscounted form")
        if self.policy and not Path(self.policy).is_file():
            raise ValueError(f"no policy file {self.policy}: an .npy file of shape (n_states, n_actions) is needed")
        _ = self.env_arguments

    @property
    def env_arguments(self) -> dict[str, Any]:
        """``env_kwargs`` as a dictionary."""
        try:
            arguments = json.loads(self.env_kwargs)
        except json.JSONDecodeError as error:
            raise ValueError(f"env_kwargs must be a JSON object, got {self.env_kwargs!r}: {error}") from error
        if not isinstance(arguments, Mapping):
            raise ValueError(f"env_kwargs must be a JSON object, got {self.env_kwargs!r}")
        return dict(arguments)

    def to_dict(self) -> dict[str, Any]:
        """All fields in JSON's types."""
        return dict(json.loads(json.dumps(dataclasses.asdict(self))))
