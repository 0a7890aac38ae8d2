"""Run the commands of "A Hub with GPU sizes on one server" on a bare server, from the page itself."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bare_server import Done, run_on_bare_server

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.documents.printed_commands import ROOT, blocks_and_text, commands_of_block, commands_of_page
else:
    from printed_commands import ROOT, blocks_and_text, commands_of_block, commands_of_page

PAGE = ROOT / "docs/how-to/install-on-one-server.md"
BLOCKS = [block for block in blocks_and_text(PAGE.name, PAGE.read_text())[0] if block.language == "sh"]
PRINTED = [command for block in BLOCKS for command in commands_of_block(block)]
INCIDENTS = ROOT / "docs/how-to/incidents.md"
ACCOUNT = "id --user aliquot"
WHO_LISTENS = "curl --silent --retry 300 --retry-delay 1 --retry-connrefused http://127.0.0.1:890/services/aliquot/api"
FINDINGS = "/opt/aliquot/bin/aliquot doctor --hub --json"
AGENT = "cat /run/standin/aliquot-agent.service.pid"
# The incident "The node agent is down", and its remedy as the page prints it.
KILL_AGENT = f"kill -KILL $({AGENT})"
WITHOUT_AGENT = f"{FINDINGS} --user aliquot"
REMEDY = "sudo systemctl restart aliquot-agent"
WITH_AGENT = f"until {FINDINGS} > /dev/null; do sleep 0.5; done"
PROCESSES = "ps -eo user:20,pid,args"
TOKEN = "a-token-of-this-test-alone"
# What an administrator adds: here a service that plays the users.
ADD = f"""cat >> /etc/jupyterhub/jupyterhub_config.py <<'end'
c.Spawner.start_timeout = c.Spawner.http_timeout = 240
c.JupyterHub.services.append({{"name": "tests", "api_token": "{TOKEN}"}})
c.JupyterHub.load_roles.append({{"name": "tests", "services": ["tests"], "scopes": ["admin:users", "admin:servers",
    "tokens", "access:servers", "inherit"]}})
end
useradd --create-home --shell /bin/bash ada"""
VISIT = f"{sys.executable} {ROOT}/tests/documents/server_visitor.py http://127.0.0.1:8000 {TOKEN} ada"
# The accounts that a program runs as: the relay host is root's, and each relay its kernel's owner's.
OWNERS = {
    "aliquot agent": {"aliquot"},
    "serve --hub": {"aliquot"},
    "provisioner.relay": {"root", "ada"},
    "ipykernel_launcher": {"ada"},
}
# A terminal of a user of the Hub is a login shell.
PROGRAMS = [f"/opt/aliquot/bin/{name}" for name in ("aliquot", "jupyter")]
NOT_FOUND = "runuser -l ada -c 'command -v aliquot'"
FOUND = "runuser -l ada -c 'command -v aliquot jupyter'"
LEFT = "find /etc /var/lib /run /opt/aliquot/bin -newer commands.json -name '*aliquot*' ! -path '*/standin/*'"


@pytest.mark.timeout(900)  # it starts a Hub twice, and waits with the patience of a loaded machine
def test_the_pages_commands_take_a_bare_server_to_a_hub_and_back(tmp_path: Path) -> None:
    assert len(BLOCKS) == 4, "install, put on the PATH, upgrade, remove"
    install, path, upgrade, remove = (commands_of_block(block) for block in BLOCKS)
    at = install.index("sudo systemctl restart jupyterhub")
    incident = [KILL_AGENT, WITHOUT_AGENT, REMEDY, WITH_AGENT]
    looks = [ACCOUNT, WHO_LISTENS, VISIT, PROCESSES, *incident, FINDINGS, AGENT, NOT_FOUND, *path, FOUND]
    after_upgrade = [WHO_LISTENS, PROCESSES, FINDINGS, AGENT]
    commands = [*install[:at], ADD, *install[at:], *looks, *upgrade, *after_upgrade, *remove, ACCOUNT, LEFT]
    ends = run_on_bare_server(commands, tmp_path)
    printed = [one for one in ends if one.command in PRINTED]
    want_ends = [(one, 0) for one in (*install, *path, *upgrade, *remove)]
    assert [(one.command, one.code) for one in printed] == want_ends, said(ends)
    first, again = ([one for one in ends if one.command == FINDINGS][at] for at in (0, 1))
    for found in (first, again):
        look_at_findings(json.loads(found.said))
    visit = of(ends, VISIT)
    assert visit.code == 0, said(ends)
    want = {"kernelspec": "python3.gpu-0.25", "said": ["ada", "/home/ada", "/home/ada", "True"]}
    assert json.loads(visit.said) == want, said(ends)
    look_at_accounts(ends)
    look_at_incident(ends)
    assert (of(ends, NOT_FOUND).code, of(ends, FOUND).said.split()) == (1, PROGRAMS), said(ends)
    agents = [one.said for one in ends if one.command == AGENT]
    assert agents[0] != agents[1], "an upgrade starts the new agent"
    assert ends[-2].code == 1, "the account is gone"
    assert [line for line in ends[-1].said.splitlines() if "/opt/" not in line] == []


def look_at_incident(ends: list[Done]) -> None:
    """Check that the doctor names an agent that is down with the remedy of the page of incidents, which helps."""
    assert REMEDY in commands_of_page(INCIDENTS.name, INCIDENTS.read_text())
    told = json.loads(of(ends, WITHOUT_AGENT).said)
    down = {one["about"]: one for one in told["findings"] if one["state"] == "fail"}
    assert set(down) == {"units", "sockets"}, down
    assert "agent.sock" in down["sockets"]["found"]
    assert [one["remedy"] for one in down.values() if not one["remedy"].startswith(REMEDY)] == []
    assert [of(ends, command).code for command in (REMEDY, WITH_AGENT)] == [0, 0], said(ends)


def look_at_accounts(ends: list[Done]) -> None:
    """Check who runs what, and that the upgrade ended no kernel."""
    before, after = (one.said.splitlines() for one in ends if one.command == PROCESSES)
    for program, want_owners in OWNERS.items():
        owners = {line.split()[0] for line in before if program in line}
        assert owners == want_owners, (program, before)
    kernels = [line for line in before if "ipykernel_launcher" in line]
    assert [line for line in after if "ipykernel_launcher" in line] == kernels != [], "an upgrade ends no kernel"


def arguments_of_configure(text: str) -> dict[str, object]:
    (call,) = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "configure"
    )
    return {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}


def test_the_printed_call_is_the_one_of_the_configuration_that_is_installed() -> None:
    (block,) = (one for one in blocks_and_text(PAGE.name, PAGE.read_text())[0] if one.language == "python")
    installed = ROOT / "deploy" / "systemd" / "jupyterhub_config.py"
    assert arguments_of_configure(block.text) == arguments_of_configure(installed.read_text())


def look_at_findings(told: dict[str, object]) -> None:
    """Check that all is in order, on a machine that has no NVIDIA device."""
    assert told["ok"] is True, told
    states = {}
    assert isinstance(told["findings"], list)
    for one in told["findings"]:
        states.setdefault(one["about"], set()).add(one["state"])
    well = {"environment", "account", "home", "units", "runtime folder", "sockets", "port", "proxy", "jupyterhub"}
    assert {about: state for about, state in states.items() if about in well and state != {"ok"}} == {}
    assert well <= set(states)
    port = next(one for one in told["findings"] if one["about"] == "port")
    assert "is held by a process of aliquot" in port["found"]


def of(ends: list[Done], command: str) -> Done:
    return next(one for one in ends if one.command == command)


def said(ends: list[Done]) -> str:
    return "\n".join(f"$ {one.command}\n{one.said}" for one in ends)
