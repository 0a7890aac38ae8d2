"""The control group of an owner's kernel, made by a host of root on this machine."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from owners_house import ADA, ENV, SLEEP, OwnersHouse, an_owners_house, kernel_pid
from relay_house import kill_and_wait, until

from jupyter_aliquot.provisioner.control_groups import MOUNTED, ControlGroups, GroupLimits
from jupyter_aliquot.provisioner.launch_spec import LaunchSpec
from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord
from jupyter_aliquot.provisioner.resources import Bytes
from jupyter_aliquot.provisioner.runtime.base import Launch
from jupyter_aliquot.provisioner.runtime.relay_process import RelayedRuntime
from jupyter_aliquot.provisioner.terminations import read_ending

MIB = 1 << 20
LIMITS = {"group_memory": 128 * MIB, "group_cpus": 0.5, "group_pids": 40}
TAKES_TOO_MUCH = "block = b'x' * (300 << 20)"


@pytest.fixture
def a_house() -> Iterator[OwnersHouse]:
    with an_owners_house() as house:
        asyncio.run(house.start())
        if not ControlGroups().are_prepared():
            pytest.skip("this system gives root no control groups to make")
        yield house


def group_of(record: RelayRecord) -> str:
    return f"/aliquot.slice/user-{ADA}/kernel-{record.kernel_id}"


def groups_of(pid: int) -> list[str]:
    """Return the paths of a process's groups of memory, CPUs, and of systemd's units."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    return [path for _, names, path in lines if {"memory", "cpu", "pids", "name=systemd"} & set(names.split(","))] or [
        path for _, names, path in lines if not names
    ]


def most_pids(record: RelayRecord) -> str:
    """Return how many processes and threads a kernel's group may have."""
    (found,) = [path for tree in ("", "pids") if (path := MOUNTED / tree / group_of(record)[1:] / "pids.max").exists()]
    return found.read_text().strip()


def launch_of(record: RelayRecord, code: str) -> Launch:
    spec = LaunchSpec(record.kernel_id, (sys.executable, "-c", code), tuple(ENV.items()), program=sys.executable)
    return Launch(spec, relay=record)


def test_relay_and_kernel_are_in_a_group_of_their_own_which_goes_with_them(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.relay(account="ada", **LIMITS)
        await client.spawn(record, client.KernelLaunch(SLEEP, ENV))
        record = client.read_relay_record(record.folder)
        for pid in (record.pid, kernel_pid(record)):
            assert set(groups_of(pid)) == {group_of(record)}
        assert group_of(record) not in groups_of(a_house.host_pid)
        use = ControlGroups().memory_use(ADA, record.kernel_id)
        assert use is not None
        assert use.limit == 128 * MIB
        assert most_pids(record) == "40"
        await client.limit_kernel(record, GroupLimits(Bytes(256 * MIB), 1.0, 50))
        assert most_pids(record) == "50"
        use = ControlGroups().memory_use(ADA, record.kernel_id)
        assert use is not None
        assert use.limit == 256 * MIB
        # Its owner cannot leave it, or change it.
        for folder in MOUNTED.glob(f"*{group_of(record)}"):
            assert all(path.stat().st_uid == 0 and not path.stat().st_mode & 0o022 for path in folder.iterdir())
        await client.stop_relay(record)
        await until(lambda: not list(MOUNTED.glob(f"*{group_of(record)}")))

    asyncio.run(scene())


def test_a_kernel_that_takes_too_much_memory_is_ended_alone_and_its_end_says_so(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.relay(account="ada", **LIMITS)
        runtime = RelayedRuntime(record)
        process = await runtime.create(launch_of(record, TAKES_TOO_MUCH))
        await runtime.wait(process)
        end = await runtime.ending(process)
        assert end is not None
        said = read_ending(end, None, 0.0)
        assert said.code.value == "oom"
        assert "of 128 MiB host memory, and was ended for it" in said.message
        assert client.read_relay_record(record.folder).pid == record.pid, "the relay told of it"
        assert client.read_relay_record(record.folder).is_alive
        again = await runtime.create(launch_of(record, "import time; time.sleep(1000)"))
        os.kill(again.pid, 9)
        await runtime.wait(again)
        by_hand = await runtime.ending(again)
        assert by_hand is not None
        assert not by_hand.is_out_of_memory, "the group's kill was of the process before"

    asyncio.run(scene())


def test_a_relay_that_follows_a_killed_one_is_in_the_kernels_group(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.relay(account="ada", **LIMITS)
        await client.spawn(record, client.KernelLaunch(SLEEP, ENV))
        kill_and_wait(record.pid)
        await until(lambda: client.read_relay_record(record.folder).is_alive)
        assert set(groups_of(client.read_relay_record(record.folder).pid)) == {group_of(record)}

    asyncio.run(scene())
