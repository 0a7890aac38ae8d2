"""A pytest plugin that writes a line per test into ALIQUOT_TEST_REPORTS at once.

After a kill the lines remain.
"""

from __future__ import annotations

import json
import os
from typing import Any

_IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ  # workers send reports to the process that started them


def pytest_runtest_logreport(report: Any) -> None:
    """Write one report. Called by pytest for each step of a test."""
    if _IS_WORKER or (report.when != "call" and report.passed):
        return
    why = ""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = str(crash.message if crash else report.longrepr)[:600]
    elif report.skipped:
        why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)[:200]
    record = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 3), "why": why}
    with open(os.environ["ALIQUOT_TEST_REPORTS"], "a") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
