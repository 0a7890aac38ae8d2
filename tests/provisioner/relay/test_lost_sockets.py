"""The kernel's sockets lose their names, then its relay dies: the next one joins it, or ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from relay_house import Gateway, House, Stranger, ipykernel, kill_and_wait, until

from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.wire.proc import is_process

PORTS = range(1, 6)


def own_names(record: client.RelayRecord) -> list[Path]:
    return [record.kernel_folder / f"s-{port}" for port in PORTS]


def spare_names(record: client.RelayRecord) -> list[Path]:
    return [record.folder / f"b-{port}" for port in PORTS]


async def at_work(record: client.RelayRecord) -> Gateway:
    gateway = await Gateway(record).connect()
    await gateway.idle(gateway.execute("x = 7"))
    return gateway


async def another_relay(house: House, record: client.RelayRecord) -> client.RelayRecord:
    kill_and_wait(record.pid)
    await house.start()
    await until(lambda: (found := client.read_relay_record(record.folder)).is_alive and found.pid != record.pid)
    return client.read_relay_record(record.folder)


async def works(record: client.RelayRecord) -> Gateway:
    gateway = await Gateway(record, "again").connect()
    cell = gateway.execute("print(x)")
    await gateway.idle(cell)
    assert gateway.outputs(cell) == "7\n"
    return gateway


@pytest.mark.parametrize("lost", [[1], list(PORTS)], ids=["one", "all"])
def test_the_next_relay_joins_a_kernel_whose_sockets_lost_their_names(a_house: House, lost: list[int]) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        await at_work(record)
        for port in lost:
            (record.kernel_folder / f"s-{port}").unlink()
        second = await another_relay(a_house, record)
        await works(second)
        await works(await another_relay(a_house, second))

    asyncio.run(scene())


def test_so_it_is_with_a_kernel_that_no_relay_started_and_with_another_host(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay()
        kernel = Stranger(record)
        try:
            await at_work(record)
            (record.kernel_folder / "s-1").unlink()
            a_house.kill_host()
            await works(await another_relay(a_house, record))
        finally:
            kernel.end()

    asyncio.run(scene())


def test_a_kernel_that_starts_again_is_joined_by_its_own_names_and_the_others_are_of_it(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await at_work(record)
        # A descriptor keeps each old socket's number in use: the file system gives the number of a removed file again.
        kept = [os.open(path, os.O_PATH) for path in spare_names(record)]
        before = [os.fstat(descriptor).st_ino for descriptor in kept]
        started = client.read_relay_record(record.folder).kernel
        assert started is not None
        os.killpg(started.pid, signal.SIGKILL)
        await gateway.until(lambda event: getattr(event, "state", "") == "ended")
        assert not any(map(os.path.lexists, spare_names(record)))
        again = await Gateway(record, "again").connect()
        await client.spawn(record, ipykernel(record))
        await again.idle(again.execute("x = 7"))
        after = [path.stat().st_ino for path in spare_names(record)]
        assert after == [path.stat().st_ino for path in own_names(record)]
        assert not set(after) & set(before)
        for descriptor in kept:
            os.close(descriptor)

    asyncio.run(scene())


def test_a_second_name_that_was_removed_is_made_again(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        await at_work(record)
        (record.folder / "b-1").unlink()
        await until(lambda: os.path.lexists(record.folder / "b-1"))
        for path in own_names(record):
            path.unlink()
        await works(await another_relay(a_house, record))

    asyncio.run(scene())


def test_a_kernel_that_no_relay_can_join_any_more_is_ended_and_its_owner_is_told_why(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        await at_work(record)
        os.kill(record.pid, signal.SIGSTOP)  # the relay makes no second name again before it is killed
        for path in (*own_names(record), *spare_names(record)):
            path.unlink()
        found = await another_relay(a_house, record)
        told = await Gateway(found).connect()
        waiting = told.execute("1")
        end = await told.until(lambda event: getattr(event, "state", "") == "ended")
        assert end.ended["reason"] == "unreachable"
        assert found.kernel is not None
        assert not is_process(found.kernel.pid, found.kernel.start_time_ticks)
        ended = await until(lambda: client.read_ended(found))
        assert (ended.pid, ended.reason) == (found.kernel.pid, "unreachable")
        await client.spawn(found, ipykernel(found))
        await told.idle(waiting)  # the requests that had waited for the ended kernel

    asyncio.run(scene())
