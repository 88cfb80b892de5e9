"""``icrl reproduce``: each claim of the paper, the figure that tests it, the number, the interval, pass or fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from icrl_agent.cli.pretrain import progress_bar

__all__ = ["Reproduce"]


@dataclass(frozen=True)
class Reproduce:
    """Test the paper's claims and write a report; exit status 1 if a claim fails."""

    run_dir: Path
    """New folder for report.md, report.html, claims.json, figures and TensorBoard events."""
    quick: bool = False
    """Small sizes: every claim in about two minutes instead of half an hour."""
    only: tuple[str, ...] = ()
    """Ids of the claims to test; all if not given."""
    resume: bool = False
    """Go on in a folder that holds a reproduction of the same size; finished claims are not tested again."""
    n_jobs: int = 2
    """Local processes."""

    def run(self) -> int:
        """Test the claims, write the report, print the table."""
        from rich.console import Console
        from rich.table import Table

        from icrl_agent.eval.reproduce.registry import chosen_claims
        from icrl_agent.eval.reproduce.report import check_text, write_report
        from icrl_agent.eval.reproduce.runner import finished_claims, reproduce

        wanted = chosen_claims(self.only)
        with progress_bar("reproducing", "claims", len(wanted)) as tick:
            claims, reused = reproduce(
                self.run_dir,
                self.quick,
                self.only,
                self.resume,
                n_jobs=self.n_jobs,
                progress=lambda done, _: tick(done),
            )
        write_report(self.run_dir, finished_claims(self.run_dir))
        console = Console(highlight=False)
        table = Table(title=f"claims, {'quick' if self.quick else 'full'} size")
        for heading in ("claim", "check", "measured", "rule", ""):
            table.add_column(heading)
        for claim in claims:
            for number, check in enumerate(claim.checks):
                verdict = "[green]passed" if check["passed"] else "[bold red]FAILED"
                table.add_row(claim.id if number == 0 else "", str(check["what"]), *check_text(check), verdict)
            table.add_section()
        console.print(table)
        if reused:
            console.print(f"taken over from the earlier run: {', '.join(reused)}")
        console.print(f"report: {self.run_dir / 'report.html'}", soft_wrap=True)
        console.print(f"TensorBoard: icrl tensorboard {self.run_dir}", soft_wrap=True)
        failed = [claim.id for claim in claims if not claim.passed]
        if failed:
            console.print(f"[bold red]failed: {', '.join(failed)}")
        return 1 if failed else 0
