"""A kernel's attacks on the folder that it shares with its relay do no harm and leave nothing."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest
from relay_house import SECONDS, Gateway, House, Stranger, kill_and_wait, lives, soon, until

from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder

_DEPTH = 1500  # more levels than Python recurses, and than a path has room for


def dig(folder: Path, levels: int = _DEPTH) -> None:
    """Nest folders as a hostile kernel does: from one into the next."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        above, here = here, os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(above)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_sockets_that_are_links_to_another_kernel_are_not_followed(a_house: House) -> None:
    async def scene() -> None:
        victim, thief = await a_house.relay(), await a_house.relay()
        for number in range(1, 6):
            (thief.kernel_folder / f"s-{number}").symlink_to(victim.kernel_folder / f"s-{number}")
        watching = await Gateway(thief).connect()
        kernel = Stranger(victim)
        try:
            talking = await Gateway(victim).connect()
            await talking.until(lambda event: getattr(event, "state", "") == "started")
            await talking.idle(talking.execute("print('a secret')"))
            await client.set_facts(thief, {})  # the relay looks at the sockets in each turn of its loop
            told = [watching.events.get_nowait() for _ in range(watching.events.qsize())]
            assert [event.incarnation for event in told if isinstance(event, client.KernelState)] == [0]
            assert not watching.messages, "it heard a kernel that is not its own"
        finally:
            kernel.end()

    asyncio.run(scene())


def test_a_kernel_that_takes_no_connection_is_taken_over_like_any_other(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay()
        connections = []
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(record.kernel_folder / "s-1"))
            listener.listen(0)
            try:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        connections.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
                        connections[-1].connect(listener.getsockname())
                a_house.kill_host()
                kill_and_wait(record.pid)
                await a_house.start()
                again = await until(lambda: found if (found := client.read_relay_record(record.folder)).is_alive else 0)
                assert again.pid != record.pid, "it was not taken over"
                await soon(a_house.relay())
            finally:
                for connection in connections:
                    connection.close()

    asyncio.run(scene())


@pytest.mark.parametrize("name", ["connection.json", "connection.json.new"])
def test_a_folder_in_the_place_of_the_connection_file_stops_neither_relay_nor_restart(
    a_house: House, name: str
) -> None:
    async def scene() -> None:
        record = await a_house.relay()
        gateway = await Gateway(record).connect()
        for incarnation in (1, 2):
            kernel = Stranger(record)
            try:
                started = await gateway.until(lambda event: getattr(event, "state", "") == "started")
                assert started.incarnation == incarnation
                (record.kernel_folder / name).unlink(missing_ok=True)
                (record.kernel_folder / name).mkdir()
                dig(record.kernel_folder / name, 3)
            finally:
                kernel.end()
            await gateway.until(lambda event: getattr(event, "state", "") == "ended")
        assert lives(record)
        assert os.listdir(record.kernel_folder) == ["connection.json"]

    asyncio.run(scene())


def test_folders_without_end_are_removed_with_the_relay(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay()
        dig(record.kernel_folder)
        await soon(client.stop_relay(record))
        assert not record.folder.exists()
        # The same for a killed relay, by the process that removes its remains.
        record = await a_house.relay()
        dig(record.kernel_folder)
        a_house.kill_host()
        kill_and_wait(record.pid)
        await soon(client.stop_relay(record))
        assert not record.folder.exists()

    asyncio.run(scene())


def test_what_links_lead_to_is_left_alone(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    (outside / "sub").mkdir(parents=True)
    (outside / "file").touch()
    (inside / "a" / "b").mkdir(parents=True)
    (inside / "link").symlink_to(outside)
    (inside / "a" / "link").symlink_to(outside)
    (inside / "a" / "b" / "link").symlink_to(outside / "sub")
    os.mkfifo(inside / "a" / "fifo")
    remove_folder(inside)
    assert not inside.exists()
    assert sorted(path.name for path in outside.iterdir()) == ["file", "sub"]
    remove_folder(tmp_path / "nothing")
    (tmp_path / "to").symlink_to(outside)
    remove_folder(tmp_path / "to")
    assert (outside / "file").exists()


def test_what_cannot_be_removed_is_left_without_an_error(a_bare_user: int) -> None:
    top = Path(tempfile.mkdtemp(prefix="aliquot-r-"))
    try:
        (top / "closed" / "in").mkdir(parents=True)
        (top / "file").touch()
        os.chown(top, a_bare_user, a_bare_user)
        remover = multiprocessing.get_context("fork").Process(target=_remove_as, args=(a_bare_user, top))
        remover.start()
        remover.join(SECONDS)
        assert remover.exitcode == 0
        assert [path.name for path in top.iterdir()] == ["closed"]
        assert (top / "closed" / "in").exists()
    finally:
        shutil.rmtree(top)


def _remove_as(user: int, folder: Path) -> None:
    os.setuid(user)
    remove_folder(folder)
