"""``icrl reproduce``: files, exit status, resume, bad input."""

from __future__ import annotations

import json
import re

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from icrl_agent.cli import main
from icrl_agent.eval.reproduce import registry, runner
from icrl_agent.eval.reproduce.claim import Outcome, exactly
from icrl_agent.eval.reproduce.registry import CLAIMS, ClaimSpec
from icrl_agent.figures import new_figure
from icrl_agent.train import dashboard


def fake(name, value, calls):
    def test(quick, folder):
        calls.append((name, quick, folder.name))
        figure, axis = new_figure()
        axis.plot([0, 1], [0, value])
        check = exactly(f"{name}'s number", value, "at most", 1.0)
        return Outcome([check], {"line": (figure, f"A line of {name}.")}, [{"a": 1}], {"curve": [(1, 0.5), (2, value)]})

    return ClaimSpec(name, name.upper(), f"{name} holds.", test)


@pytest.fixture
def fakes(monkeypatch):
    """Two claims, the second of which fails, in the place of the real ones; the calls they get."""
    calls = []
    for module in (registry, runner):
        monkeypatch.setattr(module, "CLAIMS", {"one": fake("one", 0.5, calls), "two": fake("two", 2.0, calls)})
    return calls


def run(tmp_path, *flags):
    return main(["reproduce", "--run-dir", str(tmp_path / "run"), "--n-jobs", "1", *flags])


def test_a_passing_run_writes_everything(fakes, tmp_path, capsys):
    assert run(tmp_path, "--only", "one", "--quick") == 0
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} == {
        "claims.json", "config.json", "figures", "report.html", "report.md", "results", "tensorboard",
    }  # fmt: skip
    assert fakes == [("one", True, "one")]
    (claim,) = json.loads((folder / "claims.json").read_text())
    expected = {"id": "one", "statement": "one holds.", "value": 0.5, "interval": [0.5, 0.5], "threshold": 1.0}
    assert expected.items() <= claim.items()
    assert claim["passed"] is True
    assert sorted(path.name for path in (folder / "figures").iterdir()) == ["one-line.png", "one-line.svg"]
    events = EventAccumulator(str(folder / "tensorboard" / "one"))
    events.Reload()
    assert [(p.step, p.value) for p in events.Scalars(dashboard.claim_curve_tag("curve"))] == [(1, 0.5), (2, 0.5)]
    assert [p.value for p in events.Scalars(dashboard.CLAIM_CHECK)] == [0.5]
    assert events.Tags()["images"] == [dashboard.claim_figure_tag("line")]
    assert "one's number" in capsys.readouterr().out


def test_the_reports_show_numbers_figures_and_verdicts(fakes, tmp_path, capsys):
    assert run(tmp_path) == 1
    folder = tmp_path / "run"
    markdown = (folder / "report.md").read_text()
    assert markdown.startswith("# 1 of 2 claims passed")
    assert "| two's number | 2 | ≤ 1 | FAILED |" in markdown
    for picture in re.findall(r"\]\((.*?)\)", markdown):
        assert (folder / picture).is_file()
    page = (folder / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 2
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)  # nothing outside the file
    assert {"numpy", "torch", "python"} <= set(json.loads((folder / "config.json").read_text())["versions"])
    assert "failed: two" in capsys.readouterr().out


def test_resume_takes_over_what_is_finished_and_says_so(fakes, tmp_path, capsys):
    assert run(tmp_path, "--only", "one") == 0
    capsys.readouterr()
    assert run(tmp_path, "--resume") == 1
    assert [name for name, *_ in fakes] == ["one", "two"]
    assert "taken over from the earlier run: one\n" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.md").read_text().startswith("# 1 of 2")
    # A claim alone keeps the others in the report.
    assert run(tmp_path, "--resume", "--only", "one") == 0
    assert (tmp_path / "run" / "report.md").read_text().startswith("# 1 of 2")


def test_an_interrupted_claim_is_tested_again(fakes, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_write_events", interrupted)
    assert run(tmp_path) == 130
    monkeypatch.undo()
    assert not list((tmp_path / "run" / "results").iterdir())


def test_bad_input_is_one_line_and_changes_nothing(fakes, tmp_path, capsys):
    assert run(tmp_path, "--only", "three") == 2
    assert capsys.readouterr().err == "icrl: no claim is called 'three'; claims: one, two\n"
    assert run(tmp_path, "--n-jobs", "0") == 2
    assert not (tmp_path / "run").exists()
    assert run(tmp_path, "--only", "one") == 0
    before = sorted(path for path in (tmp_path / "run").rglob("*"))
    for flags, message in (
        ((), "is in use"),
        (("--resume", "--quick"), "holds no quick reproduction"),
    ):
        capsys.readouterr()
        assert run(tmp_path, *flags) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert sorted(path for path in (tmp_path / "run").rglob("*")) == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("x")
    assert main(["reproduce", "--run-dir", str(other), "--resume"]) == 2
    assert [path.name for path in other.iterdir()] == ["mine.txt"]


def test_the_real_claims():
    expected = "theorem special-cases depth context-length phase emergence neu linear-attention shipped"
    assert list(CLAIMS) == expected.split()
    assert all(spec.id == name and spec.title and spec.statement for name, spec in CLAIMS.items())


@pytest.mark.slow
def test_a_real_claim_through_the_command(tmp_path):
    assert run(tmp_path, "--quick", "--only", "theorem", "special-cases") == 0
