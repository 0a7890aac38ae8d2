"""The agent and processes that live in namespaces of their own, under another user, as in a container."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import RefusalReason

MIB = 1 << 20
HERE = Path(__file__).parent


@pytest.fixture
def _namespaces() -> None:
    if subprocess.run(
        ["unshare", "-p", "-f", "-m", "--mount-proc", "true"], capture_output=True, check=False
    ).returncode:
        pytest.skip("no pid and mount namespaces here: run as root")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_of_a_kernel_opens_for_any_user_and_the_folders_above_are_listed_by_none(
    a_node: Any, a_holder: Any
) -> None:
    folder = Path(a_holder.reserve()["grant"]["kernel_dir"])
    above = 0o711 if os.geteuid() == 0 else 0o700
    assert [mode_of(path) for path in (a_node.folder, a_node.folder / "kernels")] == [above, above]
    assert [mode_of(path) for path in (folder, folder / "hook.sock", folder / "grant.json")] == [0o711, 0o666, 0o600]
    assert {path.name for path in folder.iterdir()} == {"hook.sock", "grant.json", "entrance"}


AS_ANOTHER = """
import os, socket, sys
node, mine, other = sys.argv[1:]
os.setgroups([])
os.setgid(65534)
os.setuid(65534)  # only now: another account may not be able to read this Python

def tried(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"

def connect(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as one:
        one.connect(path)

print(tried(lambda: connect(f"{mine}/hook.sock", socket.SOCK_SEQPACKET)))
for path in (node, f"{node}/kernels", mine, other):
    print(tried(lambda: os.listdir(path)))
print(tried(lambda: connect(f"{node}/agent.sock", socket.SOCK_STREAM)))
for path in (f"{mine}/grant.json", f"{other}/grant.json", *(f"{node}/agent.{end}" for end in ("log", "json", "lock"))):
    print(tried(lambda: open(path)))
"""


def test_a_kernel_of_another_account_reaches_its_own_socket_under_a_root_agent_and_nothing_else(
    a_node: Any, a_holder: Any
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can play another user")
    mine, other = (a_holder.reserve(name, 25)["grant"]["kernel_dir"] for name in ("k", "other"))
    played = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER, str(a_node.folder), mine, other],
        capture_output=True,
        text=True,
        check=True,
    )
    assert played.stdout.split() == ["done", *["PermissionError"] * 10], played.stderr
    process = a_node.a_hook_process(str(MIB), "another")
    assert process.stdout.readline() == f"{MIB}\n"
    (pid,) = a_node.kernel()["pids"]
    assert os.stat(f"/proc/{pid}").st_uid == 65534


@pytest.mark.usefixtures("_namespaces")
def test_another_user_in_a_container_reaches_its_kernel_and_no_other(a_node: Any, a_holder: Any) -> None:
    mine, other = (Path(a_holder.reserve(name, 25)["grant"]["kernel_dir"]) for name in ("k", "other"))
    script = (
        f"mount --bind {mine} /mnt && mount -o remount,bind,ro /mnt && exec setpriv --reuid 4321 --clear-groups "
        f'"$@" {sys.executable} {HERE / "run_fake_hook.py"} /mnt {MIB}'
    )
    process = subprocess.Popen(
        ["unshare", "-p", "-f", "-m", "--mount-proc", "sh", "-c", script, "sh"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    a_node.helpers.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == f"{MIB}\n"
    (pid,) = a_node.kernel()["pids"]
    assert os.stat(f"/proc/{pid}").st_uid == 4321, "as the host sees it"
    command = ["setpriv", "--reuid", "4321", "--clear-groups", "ls", str(other)]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    command = ["setpriv", "--reuid", "4321", "--clear-groups", "cat", "/mnt/grant.json"]
    inside = ["nsenter", "-t", str(pid), "-m", *command]
    assert b"Permission denied" in subprocess.run(inside, capture_output=True, check=False).stderr
    process.communicate("end\n")
    a_node.until(lambda: not a_node.kernel()["pids"])


@pytest.mark.usefixtures("_namespaces")
def test_a_process_that_the_agent_cannot_see_is_told_so(
    an_idle_node: Any, open_holder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = an_idle_node.command
    monkeypatch.setattr(
        an_idle_node,
        "command",
        lambda *words: ["unshare", "-p", "-f", "-m", "--mount-proc", "--kill-child", *command(*words)],
    )
    an_idle_node.start()
    open_holder().reserve()
    refusal = an_idle_node.a_hook().hello()
    assert isinstance(refusal, protocol.Refuse)
    assert refusal.reason is RefusalReason.PEER
    assert "host's pid namespace" in refusal.text
    assert "reason=PEER" in an_idle_node.log()


def test_another_user_is_turned_away_from_the_agents_own_socket(a_node: Any, a_holder: Any) -> None:
    """The folder is private already; this is the second lock."""
    if os.geteuid() != 0:
        pytest.skip("only root can play another user")
    socket = a_node.folder / "agent.sock"
    code = (
        "import os, socket, sys\nsock = socket.socket(socket.AF_UNIX); os.chdir(sys.argv[1]); os.setuid(65534)\n"
        "sock.connect('agent.sock')\n"
        'try:\n    sock.sendall(b\'{"op": "status"}\\n\'); print(sock.makefile().readline())\n'
        "except OSError as error:\n    print(type(error).__name__)\n"
    )
    socket.chmod(0o666)
    socket.parent.chmod(0o755)
    assert a_holder.reserve()["ok"]
    peer = subprocess.run([sys.executable, "-c", code, str(socket.parent)], capture_output=True, text=True, check=True)
    assert "kernels" not in peer.stdout
    a_node.until(lambda: "event=turned_away" in a_node.log())
    assert a_node.kernel()["pids"] == []
