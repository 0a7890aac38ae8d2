"""A relay apart from its messages: small, bounded, closed to strangers, the same for any kernel."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import zmq
from jupyter_client.session import Session
from relay_house import Gateway, House, Stranger, a_client, lives, soon, until

from jupyter_aliquot.provisioner.relay.client import control as client


def private_kilobytes(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in rollup if line.startswith(("Private_Clean", "Private_Dirty")))


def test_a_relay_is_small(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        await gateway.idle(gateway.execute("for i in range(20): print('x' * 1_000_000, flush=True)"))
        await gateway.idle(gateway.execute("1"))
        assert private_kilobytes(record.pid) < 25 << 10, "the benchmark has the narrow bound"

    asyncio.run(scene())


def test_the_log_of_a_kernel_is_bounded_and_keeps_its_end(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay(log_bytes=10_000)
        code = "import time\nfor i in range(20_000): print(i, flush=True)\ntime.sleep(100)"
        await client.spawn(record, client.KernelLaunch((sys.executable, "-c", code), dict(os.environ)))
        await until(lambda: record.kernel_log.exists() and record.kernel_log.read_text().endswith("19999\n"))
        await until(lambda: record.kernel_log.stat().st_size <= 10_000)
        assert record.kernel_log.read_text().endswith("19999\n")

    asyncio.run(scene())


def test_a_kernel_that_others_start_is_found_and_its_end_is_seen(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay()
        gateway = await Gateway(record).connect()
        waiting = gateway.execute("print('from the start')")
        for incarnation in (1, 2):
            stranger = Stranger(record)
            try:
                started = await gateway.until(lambda e: getattr(e, "state", "") == "started")
                assert started.incarnation == incarnation
                await gateway.idle(waiting)
                assert gateway.outputs(waiting) == "from the start\n"
                waiting = gateway.execute("print('from the start')", store_history=False)
                await gateway.idle(waiting)
            finally:
                assert stranger.end() == -signal.SIGKILL
            ended = await gateway.until(lambda e: getattr(e, "state", "") == "ended")
            assert (ended.ended["exit_code"], ended.ended["signal"]) == (None, None)
            waiting = gateway.execute("print('from the start')")
        assert client.read_relay_record(record.folder).kernel is None

    asyncio.run(scene())


def test_an_orphan_that_others_started_is_asked_to_end(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay(orphan_seconds=3.0)
        gateway = await Gateway(record).connect()  # otherwise the kernel is an orphan while the stranger still starts
        stranger = Stranger(record)
        try:
            async with a_client(record):
                gateway.link.close()
            await until(lambda: not lives(record))
            assert await asyncio.to_thread(stranger.wait) == 0
            assert (client.read_ended(record) or client.Ended(None, None, None, None, 0)).reason == "orphaned"
        finally:
            stranger.end()

    asyncio.run(scene())


def test_a_killed_relay_of_such_a_kernel_is_replaced(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay()
        stranger = Stranger(record)
        try:
            gateway = await Gateway(record).connect()
            await gateway.idle(gateway.execute("x = 7"))
            os.kill(record.pid, signal.SIGKILL)
            await until(lambda: client.read_relay_record(record.folder).pid != record.pid)
            gateway = await Gateway(client.read_relay_record(record.folder)).connect()
            cell = gateway.execute("print(x)")
            await gateway.idle(cell)
            assert gateway.outputs(cell) == "7\n"
        finally:
            stranger.end()

    asyncio.run(scene())


def test_the_front_speaks_curve_where_asked_and_turns_others_away(a_house: House) -> None:
    public, secret = (key.decode() for key in zmq.curve_keypair())

    async def scene() -> None:
        record = await a_house.kernel(curve_publickey=public, curve_secretkey=secret)
        assert record.front["curve_publickey"] == public
        async with a_client(record) as kernel:
            assert (await kernel.execute_interactive("1", timeout=90))["content"]["status"] == "ok"
        with zmq.Context() as context, context.socket(zmq.DEALER) as plain:
            plain.linger = 0
            plain.connect(f"ipc://{record.front['ip']}-{record.front['shell_port']}")
            session = Session(key=str(record.front["key"]).encode())
            with contextlib.suppress(zmq.Again):  # the relay may have turned it away already
                plain.send_multipart(session.serialize(session.msg("kernel_info_request")), zmq.NOBLOCK)
            gateway = await Gateway(record).connect()
            await gateway.idle(gateway.execute("1"))
            assert not plain.poll(0)

    asyncio.run(scene())


def test_only_what_a_kernel_needs_is_open_to_others(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        async with a_client(record):
            pass
        modes = {p.relative_to(a_house.runtime.path): stat.S_IMODE(p.lstat().st_mode) for p in record.folder.rglob("*")}
        spares = {record.folder / f"b-{port}" for port in range(1, 6)}  # the kernel's sockets, with its mode
        spares = {path.relative_to(a_house.runtime.path) for path in spares}
        assert spares <= set(modes)
        inside = {path for path in modes if "k" in path.parts} | spares
        assert modes[(record.folder / "k").relative_to(a_house.runtime.path)] == 0o777
        assert modes[record.kernel_connection_file.relative_to(a_house.runtime.path)] == 0o644
        assert not [path for path, mode in modes.items() if path not in inside and mode & 0o077]
        assert (
            stat.S_IMODE(record.folder.stat().st_mode) == stat.S_IMODE(a_house.runtime.relays.stat().st_mode) == 0o700
        )

    asyncio.run(scene())


def test_another_user_is_turned_away(a_bare_user: int, a_house: House) -> None:
    async def scene() -> client.RelayRecord:
        return await a_house.relay()

    record = asyncio.run(scene())
    for folder in (a_house.runtime.path, a_house.runtime.relays, record.folder):
        folder.chmod(0o755)
    code = """
import os, socket, sys
os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
for path in sys.argv[2:]:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        try: s.sendall(b"AqR1"); print(s.recv(10))
        except ConnectionError: print(b"")
"""
    for path in (record.link_socket, a_house.runtime.relay_socket):
        path.chmod(0o666)
    command = [sys.executable, "-c", code, str(a_bare_user), str(record.link_socket), str(a_house.runtime.relay_socket)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert (done.stdout, done.stderr) == ("b''\nb''\n", "")
    assert lives(record)


def test_the_command_is_a_host_whose_relays_outlive_it(a_house: House) -> None:
    command = [
        sys.executable,
        "-m",
        "jupyter_aliquot.gateway.cli.app",
        "relay",
        "--runtime-dir",
        str(a_house.runtime.path),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as host:
        try:
            asyncio.run(until(a_house.runtime.relay_socket.exists))
            assert a_house.host_pid == host.pid
            record = asyncio.run(a_house.kernel())
            host.terminate()
            assert host.wait(30) == 0
        finally:
            host.kill()
    assert not a_house.runtime.relay_socket.exists()

    async def scene() -> None:
        gateway = await soon(Gateway(record).connect())
        cell = gateway.execute("print('still here')")
        await gateway.idle(cell)
        assert gateway.outputs(cell) == "still here\n"

    asyncio.run(scene())
