"""The built wheel works in a fresh environment outside the checkout."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PROGRAM = """
import gymnasium as gym, icrl_agent
from icrl_agent import ICRLAgent
result = ICRLAgent.from_theory().evaluate(gym.make("BoyanChain-v0", task_seed=1000), n_steps=300, seed=0)
assert result.normalized_msve < 0.5, result
print(icrl_agent.__file__)
"""


def build_wheel(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT],
        check=True,
    )
    (wheel,) = folder.glob("icrl_agent-*.whl")
    return wheel


def run_program(python: Path, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", PROGRAM], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_wheel_with_the_installed_dependencies(tmp_path):
    """Fast: the package from the wheel, its dependencies from the running environment."""
    wheel = build_wheel(tmp_path)
    venv.create(tmp_path / "env", with_pip=False)
    site = next((tmp_path / "env" / "lib").glob("python*")) / "site-packages"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel], check=True
    )
    # A path file names the folder of the dependencies; an editable install listed there is not followed.
    (site / "dependencies.pth").write_text(str(Path(pytest.__file__).parents[1]))
    assert str(site) in run_program(tmp_path / "env" / "bin" / "python", tmp_path)


@pytest.mark.slow
def test_wheel_installs_its_own_dependencies(tmp_path):
    wheel = build_wheel(tmp_path)
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel], check=True, timeout=900
    )
    assert str(tmp_path) in run_program(python, tmp_path)
