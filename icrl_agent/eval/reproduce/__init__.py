"""The paper's claims as executable checks: ``runner.reproduce`` tests them, ``report.write_report`` shows them."""
