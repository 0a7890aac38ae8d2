"""The command `aliquot doctor`: checks of this machine, each with a remedy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from traitlets import Bool, Int, Unicode

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.doctor.deployment import GATEWAY_URL, check_deployment
from jupyter_aliquot.gateway.doctor.runner import FAIL, OK, WARN, Finding, all_checks, all_well, examine, report
from jupyter_aliquot.gateway.terminal.tables import console
from jupyter_aliquot.provisioner.addresses import address_problem

from .base import JSON_FLAG, Command

_LAST_PORT = 65535
_MARKS = {OK: ("✓", "green"), WARN: ("!", "yellow"), FAIL: ("✗", "red")}


class DoctorCommand(Command):
    """Print the findings. The exit code is 0 when no check failed, else 1."""

    name = "aliquot doctor"
    description = """Check this machine: versions, driver, devices and their modes, the hook and its self-check, the
    sockets of agent and gateway, their owners, kernelspecs and extensions; each finding has a remedy.

    With --hub it checks a deployment as a service below a JupyterHub instead: account, home, units, runtime folder,
    sockets, the gateway's port, the Hub's proxy and version, a token's scopes, and the driver and its modes; and each
    gateway that the Hub's configuration names (gateways=[…]): whether it answers, and whether the Hub knows its token.

    With --cluster it checks a Kubernetes cluster instead: the API's version, the permissions of its own account, the
    kernels' Pod Security level, and the nodes whose agent is the kubelet's device plugin.

    The exit code is 0 when no check failed, else 1. It changes nothing."""
    examples = """
    aliquot doctor
    aliquot doctor --json
    aliquot doctor --hub
    aliquot doctor --cluster --namespace aliquot
    """
    flags = {
        **Command.flags,
        **JSON_FLAG,
        "cluster": ({"DoctorCommand": {"looks_at_cluster": True}}, "Check a Kubernetes cluster."),
        "hub": ({"DoctorCommand": {"looks_at_hub": True}}, "Check what a JupyterHub on this machine needs."),
    }
    aliases = {
        "user": "DoctorCommand.user",
        "gateway-url": "DoctorCommand.gateway_url",
        "namespace": "DoctorCommand.namespace",
        "relay-port": "DoctorCommand.relay_port",
    }
    only_with: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **dict.fromkeys(("user", "gateway-url"), ("hub",)),
        **dict.fromkeys(("namespace", "relay-port"), ("cluster",)),
    }
    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = (("hub", "cluster"),)

    looks_at_hub = Bool(False, help="Check what a JupyterHub on this machine needs.").tag(config=True)
    looks_at_cluster = Bool(False, help="Check a Kubernetes cluster.").tag(config=True)
    namespace = Unicode("aliquot", help="With --cluster: the namespace of the kernels.").tag(config=True)
    relay_port = Int(8787, help="With --cluster: the port of kernels' relays, as KernelPods.relay_port has it.").tag(
        config=True
    )
    user = Unicode("aliquot", help="With --hub: the account of agent, relay host and gateway.").tag(config=True)
    gateway_url = Unicode(GATEWAY_URL, help="With --hub: where the gateway listens, as configure() has it.").tag(
        config=True
    )

    def start(self) -> None:
        """Called by Application.start."""
        if not 1 <= self.relay_port <= _LAST_PORT:
            raise UsageError(f"--relay-port {self.relay_port} is no port. Use a number from 1 to {_LAST_PORT}")
        if problem := address_problem(self.gateway_url):
            raise UsageError(f"--gateway-url: {problem}")
        if self.looks_at_cluster:
            findings = _look_at_cluster(self.namespace, self.relay_port)
        elif self.looks_at_hub:
            findings = check_deployment(self.user, self.gateway_url)
        else:
            findings = examine(all_checks(), lambda about: self.log.debug("looking at %s", about))
        if self.json_output:
            print(json.dumps(report(findings), indent=2, ensure_ascii=False))
        else:
            print_findings(findings)
        self.exit(0 if all_well(findings) else 1)


def _look_at_cluster(namespace: str, relay_port: int) -> list[Finding]:
    """Return the findings on a cluster. Raises CommandError where its client is not installed."""
    try:
        # Without --cluster there is no use for the client, whose import takes memory and time.
        from jupyter_aliquot.gateway.doctor.cluster import check_cluster
    except ImportError as error:
        raise CommandError(f"{error.name} is not installed. Install jupyter-aliquot[kubernetes]") from error
    return check_cluster(namespace, relay_port=relay_port)


def print_findings(findings: Sequence[Finding]) -> None:
    """Print one line a finding, its remedy below it, and the counts."""
    screen = console()
    width = max(len(finding.about) for finding in findings)
    for finding in findings:
        mark, style = _MARKS[finding.state]
        found = finding.found.replace("\n", f"\n  {'':<{width}}  ")
        line = Text.assemble((mark, style), f" {finding.about:<{width}}  {found}")
        screen.print(line, soft_wrap=True)
        if finding.remedy:
            screen.print(Text(f"  {'':<{width}}  → {finding.remedy}", style=style), soft_wrap=True)
    counts = {state: sum(finding.state == state for finding in findings) for state in (OK, WARN, FAIL)}
    screen.print(f"\n{counts[OK]} in order, {counts[WARN]} to know about, {counts[FAIL]} failed")
