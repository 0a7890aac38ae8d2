"""The findings of `aliquot doctor`, each with a remedy.

The checks are in the other files of this folder.

A check changes nothing. The self-check starts a short-lived agent of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class Finding:
    """The result of one check. ``remedy`` is empty when there is nothing to do."""

    about: str
    state: str
    found: str
    remedy: str = ""


Check = Callable[[], Sequence[Finding]]


def examine(checks: Sequence[Check], progress: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Run every check. A check that fails to run becomes a finding, and the others still run."""
    findings: list[Finding] = []
    for check in checks:
        about = check.__name__.removeprefix("check_").replace("_", " ")
        progress(about)
        try:
            findings += check()
        except Exception as error:
            reason = f"could not be looked at: {type(error).__name__}: {error}"
            findings.append(Finding(about, FAIL, reason, "this is a defect of the doctor: please report it"))
    return findings


def all_well(findings: Sequence[Finding]) -> bool:
    """Return whether no check failed; warnings are allowed."""
    return all(finding.state != FAIL for finding in findings)


def report(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings for programs."""
    return {"ok": all_well(findings), "findings": [asdict(finding) for finding in findings]}


def all_checks() -> list[Check]:
    """Return every check, in the order in which the parts need each other."""
    from . import host as doctor_host, jupyter as doctor_jupyter, messages, node as doctor_node

    return [
        doctor_host.check_versions,
        doctor_host.check_runtime_folder,
        doctor_host.check_driver,
        doctor_host.check_native_libraries,
        doctor_node.check_node,
        doctor_host.check_agent,
        doctor_host.check_gateway,
        messages.check_messages,
        doctor_host.check_shared_memory,
        doctor_host.check_container_engine,
        doctor_jupyter.check_provisioner,
        doctor_jupyter.check_kernelspecs,
        doctor_jupyter.check_server,
        doctor_jupyter.check_lab_extension,
    ]
