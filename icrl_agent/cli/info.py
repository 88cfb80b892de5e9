"""``icrl info`` and ``icrl tensorboard``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import tyro

from icrl_agent import __version__
from icrl_agent.cli.evaluate import THEORY
from icrl_agent.envs.registration import ENVIRONMENT_IDS

__all__ = ["Info", "TensorBoard"]


@dataclass(frozen=True)
class Info:
    """Show versions, environments and shipped weights."""

    def run(self) -> None:
        """Print the tables."""
        import importlib.metadata
        import platform

        from rich.console import Console
        from rich.table import Table

        from icrl_agent.frozen import SHIPPED_WEIGHTS

        versions = Table("package", "version", title="icrl-agent")
        versions.add_row("icrl-agent", __version__)
        versions.add_row("python", platform.python_version())
        for name in ("torch", "gymnasium", "numpy", "stable-baselines3", "tensorboard"):
            versions.add_row(name, importlib.metadata.version(name))
        environments = Table("id", "what it is", title="environments")
        for env_id in ENVIRONMENT_IDS:
            entry_point = gym.spec(env_id).entry_point
            environments.add_row(env_id, (_load(str(entry_point)).__doc__ or "").partition("\n")[0].replace("``", ""))
        shipped = sorted(file.stem for file in SHIPPED_WEIGHTS.glob("*.safetensors"))
        weights = Table("weights", "what they are", title="weights")
        weights.add_row(THEORY, "the theorem's: nothing is trained")
        for name in shipped:
            weights.add_row(name, "pretrained, shipped with the package")
        console = Console()
        for table in (versions, environments, weights):
            console.print(table)


@dataclass(frozen=True)
class TensorBoard:
    """Start TensorBoard on a run folder, or on a folder of run folders."""

    run_dir: Annotated[Path, tyro.conf.Positional]
    """The folder."""
    port: int = 6006
    """Port of the page."""

    def run(self) -> int:
        """Serve until interrupted; returns TensorBoard's own exit status."""
        import subprocess

        if not self.run_dir.is_dir():
            raise ValueError(f"{self.run_dir} is no folder: give a run folder or a folder of run folders")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must lie in 0 .. 65535, got {self.port}")
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(self.run_dir), "--port", str(self.port)]
        try:
            return subprocess.run(command, check=False).returncode
        except KeyboardInterrupt:
            return 0


def _load(entry_point: str) -> Any:
    from gymnasium.envs.registration import load_env_creator

    return load_env_creator(entry_point)
