"""The command `aliquot doctor`: checks of this machine, each with a remedy."""

from __future__ import annotations

import json

from rich.text import Text

from jupyter_aliquot.gateway.doctor.runner import FAIL, OK, WARN, Finding, all_checks, all_well, examine, report
from jupyter_aliquot.gateway.terminal.tables import console

from .base import JSON_FLAG, Command

_MARKS = {OK: ("✓", "green"), WARN: ("!", "yellow"), FAIL: ("✗", "red")}


class DoctorCommand(Command):
    """Print the findings. The exit code is 0 when no check failed, else 1."""

    name = "aliquot doctor"
    description = """Check this machine: versions, driver, devices, the hook and its self-check, the sockets of agent
    and gateway, their owners, kernelspecs and extensions; each finding has a remedy.

    The exit code is 0 when no check failed, else 1. It changes nothing."""
    examples = """
    aliquot doctor
    aliquot doctor --json
    """
    flags = {**Command.flags, **JSON_FLAG}

    def start(self) -> None:
        """Called by Application.start."""
        findings = examine(all_checks(), lambda about: self.log.debug("looking at %s", about))
        if self.json_output:
            print(json.dumps(report(findings), indent=2, ensure_ascii=False))
        else:
            self._print(findings)
        self.exit(0 if all_well(findings) else 1)

    def _print(self, findings: list[Finding]) -> None:
        screen = console()
        width = max(len(finding.about) for finding in findings)
        for finding in findings:
            mark, style = _MARKS[finding.state]
            line = Text.assemble((mark, style), f" {finding.about:<{width}}  {finding.found}")
            screen.print(line, soft_wrap=True)
            if finding.remedy:
                screen.print(Text(f"  {'':<{width}}  → {finding.remedy}", style=style), soft_wrap=True)
        counts = {state: sum(finding.state == state for finding in findings) for state in (OK, WARN, FAIL)}
        screen.print(f"\n{counts[OK]} in order, {counts[WARN]} to know about, {counts[FAIL]} failed")
