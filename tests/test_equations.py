"""docs/equations.md names functions, tests and claims that exist."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from icrl_agent.eval.reproduce.registry import CLAIMS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
#: What the page may not leave out.
EQUATIONS = {"1–3", "8–9", "10–17", "18–19", "20", "21–23", "26", "27"}
RESULTS = {"Theorem 1", "Lemma 1", "Assumption 5.1", "Theorem 2", "Theorem 3"}


def rows(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def check_row(row):
    assert len(row) == 5, row
    _, _, function, test, claim = (cell.strip("`") for cell in row)
    module, _, name = function.partition(":")
    thing = importlib.import_module(module)
    for part in name.split("."):
        thing = getattr(thing, part)
    assert callable(thing)
    file, _, test_name = test.partition("::")
    names = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)}
    assert test_name in names, test
    assert not claim or claim in CLAIMS, claim


def test_every_name_exists():
    for row in rows(TEXT):
        check_row(row)


def test_every_equation_and_claim_is_there():
    first = {row[0] for row in rows(TEXT)}
    assert first >= EQUATIONS | RESULTS
    claims = {row[4].strip("`") for row in rows(TEXT)}
    assert set(CLAIMS) - claims == {"shipped"}  # the one that is about results, not equations


@pytest.mark.parametrize("column", [2, 3, 4])
def test_the_check_catches_a_name_that_is_gone(column):
    row = list(rows(TEXT)[4])
    row[column] = re.sub(r"\w+`$", "gone`", row[column])
    with pytest.raises((AssertionError, AttributeError)):
        check_row(row)


def test_links_lead_somewhere():
    for page in sorted((ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
