"""The documents' Python blocks run, in order, as one program each; files and figures they name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXECUTED = ["evaluate_your_policy.md"]


@pytest.mark.parametrize("name", EXECUTED)
def test_python_blocks_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / name).read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 3
    assert len(blocks[0].strip().splitlines()) <= 15
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, name, "exec"), namespace)
    for figure in ("episode.png", "map.png"):
        assert (tmp_path / figure).stat().st_size > 1000


@pytest.mark.parametrize("name", EXECUTED)
def test_every_file_that_is_named_exists(name):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    named = re.findall(r"\b((?:benchmarks|examples)/[\w/.]+\.\w+)", text)
    figures = [f"docs/{path}" for path in re.findall(r"\]\((figures/[\w/.]+)\)", text)]
    assert named
    assert figures
    assert [path for path in named + figures if not (ROOT / path).exists()] == []
