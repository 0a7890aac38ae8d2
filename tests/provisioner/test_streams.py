from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.runtime.stdio import Streams


def test_without_a_wish_a_client_gives_its_own_output_and_a_gateway_none() -> None:
    assert Streams({}, inherits=True).descriptors == {1: 1, 2: 2}
    assert Streams({}, inherits=False).descriptors == {}


def test_files_and_descriptors_are_given_as_they_are(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        streams = Streams({"stdout": out, "stderr": err.fileno()}, inherits=False)
        assert streams.descriptors == {1: out.fileno(), 2: err.fileno()}
        streams.given()
        os.fstat(err.fileno())


def test_errors_follow_the_output() -> None:
    streams = Streams({"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}, inherits=True)
    assert streams.descriptors[2] == streams.descriptors[1]
    assert os.readlink(f"/proc/self/fd/{streams.descriptors[1]}") == os.devnull
    streams.given()
    # If the output is the relay's log, so are errors, without an argument.
    assert Streams({"stderr": subprocess.STDOUT}, inherits=False).descriptors == {}


def test_a_pipe_has_two_ends_and_none_is_left_open() -> None:
    before = set(os.listdir("/proc/self/fd"))
    streams = Streams({"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}, inherits=False)
    os.write(streams.descriptors[1], b"said")
    streams.ours["stdin"].write(b"heard")
    assert os.read(streams.descriptors[0], 10) == b"heard"
    streams.given()
    assert streams.ours["stdout"].read() == b"said", "ours ends where theirs was closed"
    streams.close()
    assert set(os.listdir("/proc/self/fd")) == before


def test_the_umask_travels() -> None:
    assert Streams({"umask": 0o077}, inherits=False).umask == 0o077
    assert Streams({"umask": -1}, inherits=False).umask is None


@pytest.mark.parametrize("argument", [{"preexec_fn": print}, {"pass_fds": (7,)}, {"user": "nobody"}])
def test_what_cannot_travel_is_refused(argument: dict[str, Any]) -> None:
    with pytest.raises(LaunchError, match=r"Leave it out, or set c\.AliquotProvisioner\.relay = False"):
        Streams(argument, inherits=True)


def test_what_has_no_effect_is_taken() -> None:
    assert Streams({"independent": True, "start_new_session": True, "pass_fds": ()}, inherits=False).descriptors == {}
