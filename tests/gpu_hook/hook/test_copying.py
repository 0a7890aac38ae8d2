"""The hook's copying by itself: copies to segments come back, and no failure loses a byte."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WITHOUT = {"LD_LIBRARY_PATH", "ALIQUOT_KERNEL_DIR"}  # the hook is in the program, and off
# Each call of a copy, at a place in the middle of it; the code is the driver's answer there.
FAULTS = [
    "cuStreamCreate:1=2",
    "cuStreamCreate:4=2",
    "cuEventCreate:1=2",
    "cuMemcpyDtoHAsync_v2:3=700",
    "cuMemcpyHtoDAsync_v2:3=719",
    "cuEventRecord:3=719",
    "cuEventSynchronize:2=719",
    "cuStreamSynchronize:1=719",
]


@pytest.fixture
def copying(make_node: Callable[..., Any], build_program: Callable[..., Path]) -> Callable[..., list[int]]:
    """Run copying.c; return how many copies succeeded and failed, and the last failure."""

    def run(*arguments: object, prefix: tuple[str, ...] = (), **options: Any) -> list[int]:
        node = make_node(devices=2, memory="256MiB", **options.pop("softgpu", {}))
        env = {name: value for name, value in node.hooked_env.items() if name not in WITHOUT}
        command = [*prefix, str(build_program("copying.c")), *map(str, arguments)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False, **options)
        assert (done.returncode, done.stderr) == (0, "")
        return [int(word) for word in done.stdout.split()]

    return run


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_what_went_out_comes_back(kind: str, copying: Callable[..., list[int]], tmp_path: Path) -> None:
    assert copying(3, 11, kind if kind == "memory" else tmp_path) == [6, 0, 0]


def test_a_copy_makes_do_with_the_events_that_there_are(copying: Callable[..., list[int]]) -> None:
    assert copying(1, 5, "memory", softgpu={"faults": "cuEventCreate:2=2"}) == [2, 0, 0]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_that_fails_loses_nothing(fault: str, copying: Callable[..., list[int]]) -> None:
    assert copying(1, 5, "memory", softgpu={"faults": fault}) == [2, 1, int(fault.split("=")[1])]


def test_copies_go_through_pageable_memory_where_none_can_be_locked(copying: Callable[..., list[int]]) -> None:
    assert copying(1, 7, "memory", softgpu={"faults": "cuMemHostRegister_v2=2"}) == [2, 0, 0]


def test_a_ring_is_smaller_where_little_can_be_locked(copying: Callable[..., list[int]]) -> None:
    assert copying(1, 7, "memory", softgpu={"faults": "cuMemHostRegister_v2:1=2,cuMemHostRegister_v2:2=2"}) == [2, 0, 0]


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_a_program_that_closes_our_descriptors_loses_nothing(
    kind: str, copying: Callable[..., list[int]], tmp_path: Path
) -> None:
    assert copying(1, 3, kind if kind == "memory" else tmp_path, "close") == [2, 0, 0]


def test_a_limit_of_file_sizes_is_an_error_and_no_signal(copying: Callable[..., list[int]], tmp_path: Path) -> None:
    assert copying(1, 3, tmp_path, "limit") == [0, 2, -errno.EFBIG]


def test_a_full_disk_is_an_error_and_loses_nothing(copying: Callable[..., list[int]], tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    probe = [
        unshare or "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "mount",
        "-t",
        "tmpfs",
        "none",
        str(tmp_path),
    ]
    if unshare is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small disk of their own")
    script = 'mount -t tmpfs -o size=8m none "$0" && exec "$@"'
    prefix = (*probe[:4], "sh", "-c", script, str(tmp_path))
    assert copying(1, 3, tmp_path, prefix=prefix) == [0, 2, -errno.ENOSPC]
