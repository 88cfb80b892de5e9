"""The README's Python blocks run, in order, as one program; its commands and files exist."""

import re
import tomllib
from pathlib import Path

import gymnasium as gym
import pytest

import icrl_agent

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) >= 3
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert (tmp_path / "values.png").stat().st_size > 1000
    assert "state 9: estimated" in capsys.readouterr().out


def test_every_id_in_the_readme_is_registered():
    ids = set(re.findall(r"\b(\w+-v\d+)\b", README))
    assert {"BoyanChain-v0", "FrozenLake-v1"} <= ids
    for env_id in ids:
        gym.spec(env_id)


def test_every_file_in_the_readme_exists():
    paths = set(re.findall(r"\b((?:docs|benchmarks|examples)/[\w/.]+\.\w+)", README))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_make_target_named_in_the_documents_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    documents = README + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", documents, re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= targets


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CITATION.cff", "LICENSE", "CONTRIBUTING.md"])
def test_project_files_exist(name):
    assert (ROOT / name).stat().st_size > 100


def test_one_version_everywhere():
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with the development extra")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert project == citation == icrl_agent.__version__
