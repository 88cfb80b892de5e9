"""The report of a reproduction: claims.json, report.md with linked figures, report.html with everything inside."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from icrl_agent.eval.reproduce.claim import Claim
from icrl_agent.eval.reproduce.runner import CONFIG_FILE, FIGURES_FOLDER

__all__ = ["check_text", "write_report"]

CLAIMS_FILE, MARKDOWN_FILE, HTML_FILE = "claims.json", "report.md", "report.html"

_SIGNS = {"at most": "≤", "at least": "≥", "below": "<", "above": ">", "contains": "contains", "excludes": "excludes"}
_INTRODUCTION = (
    "Every claim is tested by numbers that could have come out otherwise. An interval is a 99 % interval unless the"
    " claim says otherwise, and must keep its rule as a whole; numbers without an interval involve no chance beyond"
    " the tasks that were drawn."
)


def write_report(run_dir: Path, claims: Sequence[Claim]) -> None:
    """Write claims.json, report.md and report.html beside the figures."""
    config = json.loads((run_dir / CONFIG_FILE).read_text(encoding="utf-8"))
    content = json.dumps([claim.to_dict() for claim in claims], indent=2) + "\n"
    (run_dir / CLAIMS_FILE).write_text(content, encoding="utf-8")
    (run_dir / MARKDOWN_FILE).write_text(_markdown(claims, config), encoding="utf-8")
    (run_dir / HTML_FILE).write_text(_html(run_dir, claims, config), encoding="utf-8")


def check_text(check: Mapping[str, Any]) -> tuple[str, str]:
    """A check's number with its interval, and its rule, as text.

    >>> check_text({"value": 0.5, "interval": [0.25, 0.75], "rule": "at most", "threshold": 1.0})
    ('0.5 [0.25, 0.75]', '≤ 1')
    """
    value, (low, high) = check["value"], check["interval"]
    text = _number(value)
    if low != high:
        text += f" [{_number(low)}, {_number(high)}]"
    return text, f"{_SIGNS[check['rule']]} {_number(check['threshold'])}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def _verdict(passed: bool) -> str:
    return "passed" if passed else "FAILED"


def _origin(config: Mapping[str, Any]) -> str:
    size = "--quick " if config["quick"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in config["versions"].items())
    return f"`icrl reproduce {size}--run-dir DIR`; {config['machine']}; {versions}."


def _summary_rows(claims: Sequence[Claim]) -> list[list[str]]:
    rows = []
    for claim in claims:
        value, rule = check_text(claim.checks[0])
        rows.append([claim.id, claim.title, str(claim.checks[0]["what"]), value, rule, _verdict(claim.passed)])
    return rows


def _check_rows(claim: Claim) -> list[list[str]]:
    return [[str(check["what"]), *check_text(check), _verdict(check["passed"])] for check in claim.checks]


_SUMMARY_HEADER = ("claim", "", "headline", "measured", "rule", "verdict")
_CHECK_HEADER = ("check", "measured", "rule", "verdict")


def _markdown(claims: Sequence[Claim], config: Mapping[str, Any]) -> str:
    def table(header: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
        cells = [[cell.replace("|", "\\|") for cell in row] for row in (list(header), *rows)]
        lines = [f"| {' | '.join(row)} |" for row in cells]
        return [lines[0], "|" + "---|" * len(cells[0]), *lines[1:], ""]

    passed = sum(claim.passed for claim in claims)
    text = [f"# {passed} of {len(claims)} claims passed", "", _origin(config), "", _INTRODUCTION, ""]
    text += table(_SUMMARY_HEADER, _summary_rows(claims))
    for claim in claims:
        text += [f"## {claim.title} (`{claim.id}`): {_verdict(claim.passed)}", "", claim.statement, ""]
        text += table(_CHECK_HEADER, _check_rows(claim))
        for stem, caption in claim.figures:
            text += [f"![{claim.title}]({FIGURES_FOLDER}/{claim.id}-{stem}.png)", "", f"*{caption}*", ""]
        if claim.table:
            text += table(claim.table[0], [[str(cell) for cell in row.values()] for row in claim.table])
    return "\n".join(text)


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.88rem; }
th, td { border-bottom: 1px solid #ddd; padding: 0.3rem 0.7rem; text-align: left; vertical-align: top; }
img { max-width: 100%; } figcaption { color: #555; font-size: 0.88rem; } figure { margin: 1.5rem 0; }
.passed { color: #00734f; font-weight: 600; } .FAILED { color: #b00020; font-weight: 700; }
nav a { margin-right: 1rem; } h2 { margin-top: 3rem; border-top: 2px solid #eee; padding-top: 1.5rem; }
"""


def _html(run_dir: Path, claims: Sequence[Claim], config: Mapping[str, Any]) -> str:
    def cell(text: str) -> str:
        style = f' class="{text}"' if text in ("passed", "FAILED") else ""
        return f"<td{style}>{html.escape(text)}</td>"

    def table(header: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
        body = "".join(f"<tr>{''.join(cell(text) for text in row)}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    passed = sum(claim.passed for claim in claims)
    title = f"{passed} of {len(claims)} claims passed"
    links = "".join(f'<a href="#{claim.id}">{claim.id}</a>' for claim in claims)
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>{_STYLE}</style></head>",
        f"<body><h1>{title}</h1><p>{html.escape(_origin(config))}</p><p>{_INTRODUCTION}</p><nav>{links}</nav>",
        table(_SUMMARY_HEADER, _summary_rows(claims)),
    ]
    for claim in claims:
        verdict = _verdict(claim.passed)
        parts.append(
            f'<h2 id="{claim.id}">{html.escape(claim.title)}: <span class="{verdict}">{verdict}</span></h2>'
            f"<p>{html.escape(claim.statement)}</p>"
        )
        parts.append(table(_CHECK_HEADER, _check_rows(claim)))
        for stem, caption in claim.figures:
            picture = (run_dir / FIGURES_FOLDER / f"{claim.id}-{stem}.svg").read_bytes()
            source = f"data:image/svg+xml;base64,{base64.b64encode(picture).decode()}"
            parts.append(
                f'<figure><img alt="{html.escape(claim.title)}" src="{source}">'
                f"<figcaption>{html.escape(caption)}</figcaption></figure>"
            )
        if claim.table:
            parts.append(table(claim.table[0], [[str(value) for value in row.values()] for row in claim.table]))
    return "\n".join([*parts, "</body></html>\n"])
