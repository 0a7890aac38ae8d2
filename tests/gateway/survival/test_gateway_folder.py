"""Names of gateways: the process that holds a name, and refusals where it is taken."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.config import GATEWAY_NAME
from jupyter_aliquot.gateway.state.state_dir import NameTakenError, claim_folder, default_name
from jupyter_aliquot.provisioner.errors import StateError

HOLDER = """
import sys, pathlib
from jupyter_aliquot.gateway.state.state_dir import claim_folder
folder = claim_folder(pathlib.Path(sys.argv[1]), "g", is_chosen=False)
print(folder.name, flush=True)
for line in sys.stdin:
    folder.tell_stopping()
    print("told", flush=True)
    sys.stdin.readline()
    break
"""


@pytest.fixture
def a_holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start another process that holds the name."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "g\n"
        yield holder
        holder.kill()


def test_a_second_server_of_the_same_folder_gets_a_name_of_its_own(
    a_holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    second = claim_folder(tmp_path, "g", is_chosen=False)
    assert second.name == "g-2"
    second.close()


def test_a_chosen_name_is_never_exchanged(a_holder: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(NameTakenError, match=f"in use by process {a_holder.pid}"):
        claim_folder(tmp_path, "g", is_chosen=True)


def test_a_killed_server_leaves_its_name_to_the_next(a_holder: subprocess.Popen[str], tmp_path: Path) -> None:
    a_holder.kill()
    a_holder.wait()
    next_one = claim_folder(tmp_path, "g", is_chosen=True)
    assert (next_one.name, stat.S_IMODE(next_one.path.stat().st_mode)) == ("g", 0o700)
    next_one.close()


def test_a_successor_waits_for_a_server_that_is_stopping(a_holder: subprocess.Popen[str], tmp_path: Path) -> None:
    assert a_holder.stdin is not None
    assert a_holder.stdout is not None
    a_holder.stdin.write("stop\n")
    a_holder.stdin.flush()
    assert a_holder.stdout.readline() == "told\n"
    claim = "import sys, pathlib\nfrom jupyter_aliquot.gateway.state.state_dir import claim_folder\n"
    claim += "print('asked', flush=True)\n"
    claim += "print(claim_folder(pathlib.Path(sys.argv[1]), 'g', is_chosen=False).name)"
    command = [sys.executable, "-c", claim, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as successor:
        assert successor.stdout is not None
        assert successor.stdout.readline() == "asked\n"
        a_holder.stdin.close()
        assert successor.stdout.read() == "g\n"


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"state folder .*Not a directory.*c\.Aliquot\.state_dir"):
        claim_folder(tmp_path / "file", "g", is_chosen=False)


def test_the_default_name_is_one_a_folder_and_machine(tmp_path: Path) -> None:
    names = {default_name(str(tmp_path / folder), node) for folder in ("a", "b") for node in ("n1", "n2")}
    assert len(names) == 4
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert default_name(str(tmp_path / "link"), "n1") in names


@pytest.mark.parametrize("folder", ["/", "/home/me/my notebooks", "/data/…", "/x" * 200])
def test_every_folder_has_a_name_that_is_valid(folder: str) -> None:
    assert GATEWAY_NAME.fullmatch(default_name(folder))


def test_the_same_name_elsewhere_is_another_gateway(tmp_path: Path) -> None:
    one, other = (claim_folder(tmp_path / place, "g", is_chosen=True) for place in ("a", "b"))
    assert one.identity != other.identity
    one.close()
    other.close()
