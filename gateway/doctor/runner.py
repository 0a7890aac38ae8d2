"""What `aliquot doctor` reports: findings, each with what to do about it. The looking is done by doctor_*.py.

A look never changes what it looks at, save that the self-check runs against a short-lived agent of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class Finding:
    """One thing looked at. ``remedy`` is empty when there is nothing to do."""

    about: str
    state: str
    found: str
    remedy: str = ""


Check = Callable[[], Sequence[Finding]]


def examine(checks: Sequence[Check], progress: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Run every check; one that cannot look is a finding itself, and hides none of the others."""
    findings: list[Finding] = []
    for check in checks:
        about = check.__name__.removeprefix("look_at_").replace("_", " ")
        progress(about)
        try:
            findings += check()
        except Exception as error:
            reason = f"could not be looked at: {type(error).__name__}: {error}"
            findings.append(Finding(about, FAIL, reason, "this is a defect of the doctor: please report it"))
    return findings


def all_well(findings: Sequence[Finding]) -> bool:
    """Whether nothing failed; warnings are allowed."""
    return all(finding.state != FAIL for finding in findings)


def report(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings for programs."""
    return {"ok": all_well(findings), "findings": [asdict(finding) for finding in findings]}


def all_checks() -> list[Check]:
    """Every check, in the order in which things are needed."""
    from . import host as doctor_host, jupyter as doctor_jupyter, node as doctor_node

    return [
        doctor_host.look_at_versions,
        doctor_host.look_at_runtime_folder,
        doctor_host.look_at_driver,
        doctor_host.look_at_native_libraries,
        doctor_node.look_at_node,
        doctor_host.look_at_agent,
        doctor_host.look_at_gateway,
        doctor_host.look_at_shared_memory,
        doctor_host.look_at_container_engine,
        doctor_jupyter.look_at_provisioner,
        doctor_jupyter.look_at_kernelspecs,
        doctor_jupyter.look_at_server,
        doctor_jupyter.look_at_lab_extension,
    ]
