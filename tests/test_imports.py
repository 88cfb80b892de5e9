"""Imports inside the package go one way, and importing it stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import icrl_agent

PACKAGE = Path(icrl_agent.__file__).parent
# A part may import parts of a lower level; those of the lowest level know nothing of each other.
LEVELS = [
    {"features", "prompt", "metrics", "algorithms", "envs", "observations"},
    {"wrappers"},
    {"model", "streaming"},
    {
        "transitions",
        "logged_data",
        "collect",
        "truth",
        "context",
        "depth",
        "queries",
        "results",
        "figures",
        "value_figures",
        "estimate",
        "jobs",
        "trails",
        "selection",
        "adaptation",
        "uncertainty",
    },
    {"control", "frozen"},
    {"in_loop"},
    {"agent"},
    {"train"},
    {"eval"},
    {"cli", "__main__"},
]
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}
# The parts that may import a heavy library; the last two only inside functions or for types.
HOME = {
    "torch": {
        "model",
        "context",
        "depth",
        "estimate",
        "adaptation",
        "uncertainty",
        "frozen",
        "agent",
        "train",
        "eval",
        "cli",
        "__main__",
    },
    "stable_baselines3": {"eval"},
    "tensorboard": {"train", "eval"},
}
# A Stable-Baselines3 callback is a subclass: its module imports SB3, and no module of the package imports it.
OUTERMOST = "icrl_agent.eval.callback"


def part_of(module: str) -> str:
    """``icrl_agent.envs.solve`` -> ``envs``; the package itself -> ``""``."""
    return [*module.split("."), ""][1]


def imports(text: str, module: str) -> Iterator[tuple[str, bool]]:
    """Every imported module with whether the import runs with the module (not in a function or for types only)."""

    def walk(node: ast.AST, runs: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            inner = runs and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                inner = False
            if isinstance(child, ast.Import):
                yield from ((alias.name, runs) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    above = module.split(".")[: -child.level]
                    base = ".".join([*above, base]).rstrip(".")
                yield base, runs
                yield from ((f"{base}.{alias.name}", runs) for alias in child.names)
            yield from walk(child, inner)

    yield from walk(ast.parse(text), True)


def check_module(module: str, text: str) -> None:
    part = part_of(module)
    if not part:  # the package's own __init__ only registers and names things lazily
        for name, runs in imports(text, module):
            assert not (runs and name.startswith("icrl_agent.") and part_of(name) != "envs"), f"{module}: {name}"
        return
    assert part in LEVEL, f"{module} belongs to no part"
    for name, runs in imports(text, module):
        top = "tensorboard" if name.startswith("torch.utils.tensorboard") else name.split(".")[0]
        if top in HOME:
            assert part in HOME[top], f"{module} imports {top}"
            lazy_only = top in ("stable_baselines3", "tensorboard") and module != OUTERMOST
            assert not (runs and lazy_only), f"{module} imports {top} before it is needed"
        assert name != OUTERMOST, f"{module} imports {name}"
        if top != "icrl_agent" or not part_of(name) or part_of(name) not in LEVEL or part_of(name) == part:
            continue
        below = LEVEL[part_of(name)] < LEVEL[part]
        beside = LEVEL[part_of(name)] == LEVEL[part] and LEVEL[part] > 0
        assert below or beside, f"{module} imports {name}"


MODULES = {
    ".".join(("icrl_agent", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module: str) -> None:
    check_module(module, MODULES[module].read_text())


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("icrl_agent.envs.fake", "from icrl_agent.wrappers import HistoryWrapper"),
        ("icrl_agent.envs.fake", "from ..wrappers import HistoryWrapper"),
        ("icrl_agent.envs.fake", "from icrl_agent import agent"),
        ("icrl_agent.envs.fake", "def f():\n    import icrl_agent.model.transformer"),
        ("icrl_agent.algorithms.fake", "from icrl_agent.envs.tables import TabularMDP"),
        ("icrl_agent.metrics", "import torch"),
        ("icrl_agent.wrappers.fake", "import torch.nn as nn"),
        ("icrl_agent.model.fake", "from icrl_agent.results import Evaluation"),
        ("icrl_agent.agent", "from icrl_agent.train.loop import pretrain"),
        ("icrl_agent.train.fake", "from icrl_agent.eval.compare import compare"),
        ("icrl_agent.train.fake", "def f():\n    from stable_baselines3 import DQN"),
        ("icrl_agent.eval.fake", "from stable_baselines3 import DQN"),
        ("icrl_agent.results", "def f():\n    from torch.utils.tensorboard import SummaryWriter"),
        ("icrl_agent.train.fake", "import tensorboard"),
        ("icrl_agent.eval.fake", "def f():\n    from icrl_agent.eval.callback import ICTDValueCallback"),
        ("icrl_agent.new_part", "import numpy"),
        ("icrl_agent", "from icrl_agent.agent import ICRLAgent"),
    ],
)
def test_import_check_catches(module: str, text: str) -> None:
    with pytest.raises(AssertionError):
        check_module(module, text)


HEAVY = ("torch", "stable_baselines3", "matplotlib", "tensorboard")


def check_light(before: str) -> None:
    code = f"{before}\nimport icrl_agent, sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import icrl_agent.envs, icrl_agent.envs.vector",
        "import icrl_agent.wrappers, icrl_agent.wrappers.vector",
        "import icrl_agent.features, icrl_agent.prompt, icrl_agent.metrics, icrl_agent.algorithms",
        "import gymnasium; gymnasium.make_vec('icrl_agent:BoyanChain-v0', num_envs=2).reset()",
    ],
)
def test_importing_loads_nothing_heavy(before: str) -> None:
    check_light(before)


@pytest.mark.parametrize("before", ["import matplotlib", "import sys; sys.modules['torch'] = sys"])
def test_light_check_catches(before: str) -> None:
    with pytest.raises(AssertionError):
        check_light(before)


def test_public_names_load_lazily_and_unknown_ones_are_named() -> None:
    for name in icrl_agent.__all__:
        assert getattr(icrl_agent, name) is not None
    assert set(icrl_agent.__all__) == set(dir(icrl_agent))
    with pytest.raises(AttributeError, match="no attribute 'ICRLagent'"):
        _ = icrl_agent.ICRLagent
