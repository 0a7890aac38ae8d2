"""A relay that misses a name makes it again, or ends its kernel: no kernel runs out of reach."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from relay_house import Gateway, House, a_client, ipykernel, kill_and_wait, lives, until

from jupyter_aliquot.provisioner.launch_spec import KERNEL_ID_VARIABLE
from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.host.left_kernels import kernels_of
from jupyter_aliquot.provisioner.relay.wire.files import keep_links
from jupyter_aliquot.provisioner.relay.wire.proc import is_process

# A relay is as patient with a kernel that has no path as test_rules shows; these tests wait for its end.
_SOON = """
import runpy
from jupyter_aliquot.provisioner.relay.server import shutdown_policy
shutdown_policy._UNREACHABLE_SECONDS = 3.0
runpy.run_module("jupyter_aliquot.provisioner.relay", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def an_impatient_house(a_house: House) -> House:
    a_house.settings = replace(a_house.settings, command=(sys.executable, "-c", _SOON))
    return a_house


def kernel_lives(record: client.RelayRecord) -> bool:
    found = record.kernel
    return found is not None and is_process(found.pid, found.start_time_ticks)


def remove_name(record: client.RelayRecord, name: str) -> None:
    (record.folder / name).unlink()


@pytest.mark.parametrize("name", ["link.sock", "relay.json", "f-1", "f-2", "f-5", "c-1"])
def test_a_name_that_was_removed_is_made_again_and_the_kernel_is_found_and_ended(a_house: House, name: str) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        await gateway.idle(gateway.execute("x = 7"))
        keep_links(record.folder)
        await asyncio.sleep(1.5)  # time for the relay to see that there are some
        remove_name(record, name)
        await until(lambda: os.path.lexists(record.folder / name))
        gateway.link.close()
        found = await until(lambda: client.read_relay_record(record.folder))
        assert (found.pid, found.kernel) == (record.pid, record.kernel)
        again = await Gateway(found, "again").connect()
        cell = again.execute("print(x)")
        await again.idle(cell)
        assert again.outputs(cell) == "7\n"
        async with a_client(found) as kernel:
            assert (await kernel.execute_interactive("x", timeout=90))["content"]["status"] == "ok"
        assert await client.stop_relay(record) is not None
        await until(lambda: not kernel_lives(record) and not lives(record))
        assert not record.folder.exists()

    asyncio.run(scene())


def test_a_restart_and_an_end_wait_for_a_socket_that_is_made_again(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay()
        remove_name(record, "link.sock")
        await client.spawn(record, ipykernel(record))
        found = client.read_relay_record(record.folder)
        assert kernel_lives(found)
        remove_name(record, "link.sock")
        assert (await client.stop_relay(record) or client.Ended(None, None, None, None, 0)).reason == "stopped"
        await until(lambda: not kernel_lives(found) and not lives(record))

    asyncio.run(scene())


def test_a_relay_that_answers_nothing_is_ended_with_its_kernel(a_house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_ANSWER_SECONDS", 1.0)

    async def scene() -> None:
        record = await a_house.kernel()
        os.kill(record.pid, signal.SIGSTOP)
        await client.stop_relay(record)
        await until(lambda: not kernel_lives(record) and not lives(record))
        assert not record.folder.exists()
        await a_house.kernel(kernel_id=record.kernel_id)

    asyncio.run(scene())


def test_a_relay_without_a_folder_ends_its_kernel_though_a_cell_runs(an_impatient_house: House) -> None:
    async def scene() -> None:
        record = await an_impatient_house.kernel(orphan_seconds=86400.0)
        gateway = await Gateway(record).connect()
        gateway.execute("while True: print('on', flush=True); import time; time.sleep(0.2)")
        await gateway.until(lambda event: isinstance(event, dict) and event["msg_type"] == "stream")
        shutil.rmtree(record.folder)
        gateway.link.close()
        await until(lambda: not kernel_lives(record) and not lives(record))
        assert f"event=unreachable kernel={record.kernel_id}" in an_impatient_house.runtime.relay_log.read_text()

    asyncio.run(scene())


def test_a_relay_whose_folder_another_has_ends_its_kernel_and_leaves_the_folder(an_impatient_house: House) -> None:
    async def scene() -> None:
        first = await an_impatient_house.kernel()
        async with a_client(first):
            pass  # the kernel is ready: it makes no sockets in the next folder
        (first.folder / "relay.json").unlink()  # the host then knows of no relay, and starts one for the same kernel
        second = await an_impatient_house.kernel(kernel_id=first.kernel_id)
        assert second.pid != first.pid
        gateway = await Gateway(second).connect()
        await gateway.idle(gateway.execute("1"))
        names = set(os.listdir(second.kernel_folder))
        await until(lambda: not kernel_lives(first) and not lives(first))
        assert (set(os.listdir(second.kernel_folder)), client.read_ended(second)) == (names, None)
        assert client.read_relay_record(second.folder).kernel == second.kernel
        assert kernel_lives(second)
        await gateway.idle(gateway.execute("2"))

    asyncio.run(scene())


def test_the_host_ends_a_kernel_whose_relay_was_killed_and_left_no_record(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        os.kill(record.pid, signal.SIGSTOP)  # the relay does not write the record again before it is killed
        remove_name(record, "relay.json")
        kill_and_wait(record.pid)
        await until(lambda: not kernel_lives(record))

    asyncio.run(scene())


def test_a_program_that_reads_a_kernels_connection_file_is_not_taken_for_the_kernel(tmp_path: Path) -> None:
    """The program leads a group of its own, as each job of a shell does.

    Nothing of Aliquot is its parent.
    """
    file = os.fspath(tmp_path / "k" / "connection.json")
    started: list[subprocess.Popen[bytes]] = []

    def run(word: str, **env: str) -> int:
        command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", word]
        pipe, environ = subprocess.PIPE, {**os.environ, **env}
        process = subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, start_new_session=True)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()  # /proc has its command from here on
        return process.pid

    own = {KERNEL_ID_VARIABLE: tmp_path.name}
    try:
        run(file)
        run(file, **{KERNEL_ID_VARIABLE: "other"})
        run(f"{file}.bak", **own)
        assert kernels_of(tmp_path) == set()
        kernels = {run(file, **own), run(f"--connection={file}", **own), run(f"exec kernel -f '{file}'", **own)}
        assert kernels_of(tmp_path) == kernels
    finally:
        for process in started:
            process.communicate()


def test_a_new_host_ends_a_kernel_whose_relay_and_host_were_killed_and_left_no_record(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        a_house.kill_host()
        os.kill(record.pid, signal.SIGSTOP)
        remove_name(record, "relay.json")
        assert kernels_of(record.folder) == set(), "its relay lives"
        kill_and_wait(record.pid)
        assert kernel_lives(record)
        assert record.kernel is not None
        assert kernels_of(record.folder) == {record.kernel.pid}
        await a_house.start()
        await until(lambda: not kernel_lives(record))
        assert f"event=unreachable kernel={record.kernel_id}" in a_house.runtime.relay_log.read_text()

    asyncio.run(scene())
