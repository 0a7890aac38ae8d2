"""A gateway at a port below 1024: the Hub, as root, starts it as its account with the right to listen."""

from __future__ import annotations

import pwd
import subprocess
import sys
from types import SimpleNamespace

import pytest

from jupyter_aliquot.gateway.hub import HubSettings
from jupyter_aliquot.gateway.hub.accounts import with_right_to_listen
from jupyter_aliquot.gateway.hub.service import service_entry

ACCOUNT = SimpleNamespace(pw_name="aliquot", pw_uid=65534, pw_gid=65534, pw_dir="/nowhere", pw_shell="/bin/false")
CAP_NET_BIND_SERVICE = 10


def settings(port: int, monkeypatch: pytest.MonkeyPatch) -> HubSettings:
    monkeypatch.setattr(pwd, "getpwnam", lambda _: ACCOUNT)
    return HubSettings(gateway_user="aliquot", url=f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(("port", "is_prefixed"), [(890, True), (1023, True), (1024, False), (8890, False)])
def test_the_hub_gives_the_right_below_1024_alone(
    port: int, is_prefixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = service_entry(settings(port, monkeypatch))
    assert ("setpriv" in entry["command"]) is is_prefixed
    assert entry.get("user") == (None if is_prefixed else "aliquot")
    assert entry["command"][-1].startswith("--end-with-parent=")


@pytest.mark.skipif("os.getuid() != 0", reason="only root can play another user")
def test_root_starts_the_command_as_the_account_with_that_right_alone() -> None:
    account = pwd.struct_passwd(("gpus", "x", 65534, 65534, "", "/nowhere", "/bin/false"))
    show = "echo $HOME $USER; grep -E '^(Uid|Gid|CapEff)' /proc/self/status"
    told = subprocess.run(
        [*with_right_to_listen(account), "sh", "-c", show], capture_output=True, text=True, timeout=60, check=True
    )
    home, *status = told.stdout.splitlines()
    assert home == "/nowhere gpus"
    found = {line.split()[0]: line.split()[1] for line in status}
    assert (found["Uid:"], found["Gid:"], int(found["CapEff:"], 16)) == ("65534", "65534", 1 << CAP_NET_BIND_SERVICE)


@pytest.mark.skipif("os.getuid() != 0", reason="only root can play another user")
def test_the_gateway_keeps_its_right_from_what_it_starts() -> None:
    """A program gets the ambient rights of the process that starts it."""
    show = (
        "from jupyter_aliquot.gateway.cli.commands.servers import keep_rights_from_children as keep\n"
        "ambient = lambda: next(l.split()[1] for l in open('/proc/self/status') if l.startswith('CapAmb'))\n"
        "print(int(ambient(), 16)); keep(); print(int(ambient(), 16))"
    )
    rights = ["--inh-caps=+net_bind_service", "--ambient-caps=+net_bind_service"]
    told = subprocess.run(
        ["setpriv", *rights, "--", sys.executable, "-c", show], capture_output=True, text=True, timeout=60, check=True
    )
    assert told.stdout.split() == [str(1 << CAP_NET_BIND_SERVICE), "0"]
