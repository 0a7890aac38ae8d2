"""Hosts, relays, kernels, owners and gateways are killed for real: some end, others go on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from relay_house import Gateway, House, a_client, ipykernel, kill_and_wait, lives, until

from jupyter_aliquot.provisioner.errors import RelayRefusedError, RelayUnavailableError
from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.wire.proc import is_process, start_time_ticks


def kernel_lives(record: client.RelayRecord) -> bool:
    found = record.kernel
    return found is not None and is_process(found.pid, found.start_time_ticks)


async def ended(record: client.RelayRecord) -> client.Ended:
    found: client.Ended = await until(lambda: client.read_ended(record))
    return found


def test_a_relay_and_its_kernel_survive_the_host_and_a_new_host_knows_them(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        await gateway.idle(gateway.execute("x = 7"))
        a_house.kill_host()
        cell = gateway.execute("print(x)")
        await gateway.idle(cell)
        assert gateway.outputs(cell) == "7\n"
        await a_house.start()
        (found,) = client.read_relay_records(a_house.runtime)
        assert (found, found.is_alive) == (client.read_relay_record(record.folder), True)
        with pytest.raises(RelayRefusedError, match="has a relay already") as refused:
            await a_house.relay(kernel_id=record.kernel_id)
        assert refused.value.code == "exists"

    asyncio.run(scene())


@pytest.mark.parametrize("host", ["the same host", "a new host"])
def test_a_relay_that_was_killed_is_replaced_and_its_kernel_goes_on(a_house: House, host: str) -> None:
    async def scene() -> None:
        record = await a_house.kernel(facts={"owner": "ada"})
        gateway = await Gateway(record).connect()
        await gateway.idle(gateway.execute("x = 7"))
        if host == "a new host":
            a_house.kill_host()
        kill_and_wait(record.pid)
        await a_house.start()
        await until(lambda: client.read_relay_record(record.folder).pid != record.pid)
        found = client.read_relay_record(record.folder)
        assert (found.facts, found.kernel, found.front) == (record.facts, record.kernel, record.front)
        again = await Gateway(found).connect()
        cell = again.execute("print(x)")
        await again.idle(cell)
        assert again.outputs(cell) == "7\n"
        async with a_client(found) as kernel:
            assert (await kernel.execute_interactive("x", timeout=90))["content"]["status"] == "ok"
        assert found.kernel is not None
        os.killpg(found.kernel.pid, signal.SIGKILL)
        how = await ended(found)
        if host == "the same host":  # the host had become the kernel's parent
            assert how.signal == signal.SIGKILL

    asyncio.run(scene())


def test_links_go_on_while_a_relay_waits_for_how_a_kernel_of_another_relay_ended(a_house: House) -> None:
    """The relay waits its whole time.

    A host that was started anew is not the kernel's parent, and never writes the end.
    """

    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        await gateway.idle(gateway.execute("x = 7"))
        a_house.kill_host()
        kill_and_wait(record.pid)
        await a_house.start()
        await until(lambda: client.read_relay_record(record.folder).pid != record.pid)
        found = client.read_relay_record(record.folder)
        await Gateway(found).connect()
        assert found.kernel is not None
        began = time.monotonic()
        os.killpg(found.kernel.pid, signal.SIGKILL)
        longest = 0.0
        while client.read_ended(found) is None:
            asked = time.monotonic()
            another = await Gateway(found, session=f"s{asked}").connect(attach=False)
            another.link.close()
            longest = max(longest, time.monotonic() - asked)
        assert longest < (time.monotonic() - began) / 2, "no link waits for the host"

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("code", "want_exit", "want_signal"),
    [
        ("import os; os.write(2, b'so long\\n'); os._exit(3)", 3, None),
        ("import os, signal; os.write(2, b'so long\\n'); os.kill(os.getpid(), signal.SIGSEGV)", None, signal.SIGSEGV),
    ],
)
def test_how_a_kernel_ended_is_written_down(
    a_house: House, code: str, want_exit: int | None, want_signal: int | None
) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        gateway.execute(code)
        state = await gateway.until(lambda e: getattr(e, "state", "") == "ended")
        how = await ended(record)
        assert record.kernel is not None
        assert (how.pid, how.start_time_ticks) == (record.kernel.pid, record.kernel.start_time_ticks)
        assert (how.exit_code, how.signal, how.reason) == (want_exit, want_signal, "")
        assert how.last_words.splitlines()[-1] == "so long" or "so long" in how.last_words
        assert state.ended == vars(how)
        assert lives(record), "the relay waits for a restart"
        await client.spawn(record, ipykernel(record))
        assert client.read_ended(record) is None

    asyncio.run(scene())


def test_the_kernel_ends_with_its_owner_and_nothing_is_left(a_house: House) -> None:
    async def scene(owner: subprocess.Popen[bytes]) -> None:
        ticks = start_time_ticks(owner.pid)
        record = await a_house.kernel(gateway=None, owner_pid=owner.pid, owner_start_time_ticks=ticks)
        async with a_client(record):
            owner.kill()
        await until(lambda: not kernel_lives(record) and not lives(record))
        await until(lambda: not record.folder.exists())

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        try:
            asyncio.run(scene(owner))
        finally:
            owner.kill()


@pytest.mark.parametrize("ends_first", ["the kernel", "the kernel, then its relay", "the relay"])
def test_nothing_outlives_a_kernel_and_its_owner(a_house: House, ends_first: str) -> None:
    async def scene(owner: subprocess.Popen[bytes]) -> None:
        ticks = start_time_ticks(owner.pid)
        record = await a_house.kernel(gateway=None, owner_pid=owner.pid, owner_start_time_ticks=ticks)
        async with a_client(record):
            pass
        if "kernel" in ends_first:
            assert record.kernel is not None
            os.killpg(record.kernel.pid, signal.SIGKILL)
            await ended(record)
        if "relay" in ends_first:
            kill_and_wait(record.pid)
        owner.kill()
        await until(lambda: not kernel_lives(record) and not any(a_house.runtime.relays.iterdir()))
        assert not client.read_relay_records(a_house.runtime)

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        try:
            asyncio.run(scene(owner))
        finally:
            owner.kill()


def test_an_orphan_is_asked_to_end_and_says_why_it_did(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel(orphan_seconds=3.0)
        gateway = await Gateway(record).connect()
        cell = gateway.execute("input()")
        await gateway.until(lambda m: isinstance(m, dict) and m["msg_type"] == "input_request")
        gateway.link.close()
        # A kernel with an open cell is no orphan at any time: the cell ends here, by an interrupt.
        other = await Gateway(record, "other").connect()
        other.request("interrupt_request", {}, "control")
        await other.idle(cell)
        assert kernel_lives(record)
        other.link.close()
        await until(lambda: not lives(record))
        how = await ended(record)
        assert (how.reason, how.exit_code) == ("orphaned", 0)
        (found,) = client.read_relay_records(a_house.runtime)
        assert not found.is_alive
        assert await client.stop_relay(found) == how
        assert not found.folder.exists()

    asyncio.run(scene())


def test_a_kernel_that_never_had_a_gateway_connect_is_an_orphan_too(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay(orphan_seconds=0.2)
        await until(lambda: not lives(record))
        assert (await ended(record)).reason == "orphaned"

    asyncio.run(scene())


def test_a_relay_whose_folder_was_removed_ends_with_its_kernel(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel(orphan_seconds=3.0)
        async with a_client(record):
            # The relay makes a lost name again: in a folder that is removed file by file, rmtree may meet it.
            removed = record.folder.rename(record.folder.parent.parent / "removed")
            shutil.rmtree(removed)
        await until(lambda: not kernel_lives(record) and not lives(record))

    asyncio.run(scene())


def test_stop_ends_the_kernel_and_removes_the_folder_and_may_be_repeated(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        how = await client.stop_relay(record)
        assert how is not None
        assert (how.signal, how.reason) == (signal.SIGKILL, "stopped")
        assert not record.folder.exists()
        await until(lambda: not kernel_lives(record) and not lives(record))
        assert await client.stop_relay(record) is None
        await a_house.kernel(kernel_id=record.kernel_id)

    asyncio.run(scene())


def test_sigterm_to_a_relay_ends_its_kernel_and_leaves_the_record(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        async with a_client(record):
            os.kill(record.pid, signal.SIGTERM)
            await until(lambda: not lives(record) and not kernel_lives(record))
        assert (await ended(record)).reason == "stopped"

    asyncio.run(scene())


def test_what_a_killed_relay_left_is_removed_with_its_kernel(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        a_house.kill_host()
        kill_and_wait(record.pid)
        await client.stop_relay(record)
        await until(lambda: not kernel_lives(record))
        assert not record.folder.exists()

    asyncio.run(scene())


def test_facts_are_replaced_whole(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay(facts={"owner": "ada", "cwd": "/a"})
        changed = await client.set_facts(record, {"container": "c1"})
        assert changed.facts == {"container": "c1"}
        assert client.read_relay_record(record.folder) == changed

    asyncio.run(scene())


def test_last_words_are_those_of_the_process_that_ended(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay()
        for script, words in (
            ("echo first >&2; exit 3", "first"),
            ("echo second >&2; exit 4", "second"),
            ("kill $$", ""),
        ):
            process = await client.spawn(record, client.KernelLaunch(("/bin/sh", "-c", script), {}))
            said = await until(lambda: (found := client.read_ended(record)) and found.pid == process.pid and found)  # noqa: B023
            assert said.last_words == words

    asyncio.run(scene())


def test_a_program_that_cannot_be_run_is_said_clearly(a_house: House, tmp_path: Path) -> None:
    async def scene() -> None:
        record = await a_house.relay()
        for launch, reason in (
            (client.KernelLaunch(("/nowhere/python",), {}), "'/nowhere/python' cannot be started: No such file"),
            (client.KernelLaunch(("true",), {}, cwd="/nowhere"), "in /nowhere, but there is no such folder"),
            (client.KernelLaunch((str(tmp_path),), {}), "Permission denied"),
            (client.KernelLaunch(("a\0b",), {}), "none has NUL"),
        ):
            with pytest.raises(RelayRefusedError, match=reason):
                await client.spawn(record, launch)
        assert lives(record)

    asyncio.run(scene())


def test_starters_at_the_same_time_start_one_host(a_house: House) -> None:
    async def scene() -> None:
        started = await asyncio.gather(*(client.ensure_relay_host(a_house.runtime, a_house.settings) for _ in range(5)))
        assert sum(started) == 1

    asyncio.run(scene())
    command = [sys.executable, "-m", "jupyter_aliquot.provisioner.relay", "--runtime-dir", str(a_house.runtime.path)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert second.returncode == 1
    assert f"a relay host runs on {a_house.runtime.path} already (pid {a_house.host_pid})" in second.stderr


def test_a_host_that_ends_leaves_no_zombie_with_who_started_it(a_house: House) -> None:
    async def scene() -> None:
        await a_house.start()
        host = a_house.host_pid
        a_house.kill_host()
        await until(lambda: not Path(f"/proc/{host}").exists())

    asyncio.run(scene())


def test_a_host_that_does_not_start_says_why(a_house: House) -> None:
    async def scene() -> None:
        a_house.runtime.relay_socket.mkdir()
        with pytest.raises(RelayUnavailableError, match="the relay host ended with code 1: cannot listen at"):
            await a_house.start()

    asyncio.run(scene())


def test_an_idle_host_ends_and_one_with_a_relay_does_not(a_house: House) -> None:
    async def scene() -> None:
        a_house.settings = client.RelaySettings(exit_when_idle_seconds=2.0)
        record = await a_house.relay()
        pid = a_house.host_pid
        ticks = start_time_ticks(pid) or 0
        await client.stop_relay(record)
        await until(lambda: not is_process(pid, ticks))
        assert not a_house.runtime.relay_socket.exists()

    asyncio.run(scene())


def test_a_host_that_cannot_be_found_any_more_ends(a_house: House) -> None:
    async def scene() -> None:
        await a_house.start()
        pid = a_house.host_pid
        ticks = start_time_ticks(pid) or 0
        a_house.runtime.relay_socket.rename(a_house.runtime.path / "elsewhere")
        a_house.runtime.relay_socket.write_text("another's")
        await until(lambda: not is_process(pid, ticks))
        assert a_house.runtime.relay_socket.read_text() == "another's"

    asyncio.run(scene())


def test_who_gives_up_a_start_leaves_no_relay(a_house: House) -> None:
    async def scene() -> None:
        await a_house.start()
        task = asyncio.create_task(a_house.relay(kernel_id="given-up"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        # Whether the relay was ready before the caller gave up or not, the id is free once the host
        # has undone it.
        deadline = time.monotonic() + 60
        while True:
            for record in client.read_relay_records(a_house.runtime):
                await client.stop_relay(record)
            try:
                await a_house.relay(kernel_id="given-up")
            except RelayRefusedError:
                assert time.monotonic() < deadline
            else:
                return

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kernel_id": "../x"}, "no id of a kernel"),
        ({"kernel_id": "x" * 37}, "no id of a kernel"),
        ({"kernel_id": "x", "signature_scheme": "none"}, "hmac-sha256"),
        ({"kernel_id": "x", "memory_bytes": "much"}, "memory_bytes of a request is str"),
    ],
)
def test_a_request_that_is_wrong_is_refused(a_house: House, fields: dict[str, object], reason: str) -> None:
    with pytest.raises(RelayRefusedError, match=reason):
        asyncio.run(a_house.relay(**fields))
