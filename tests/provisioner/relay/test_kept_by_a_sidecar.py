"""A pod's sidecar keeps what the kernel sends: machines of gateways are lost, and no line is, nor comes twice.

The sidecar and the kernel are real processes; each machine has a relay host of its own, and a tunnel.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from relay_house import SECONDS, Gateway, House, kill_and_wait, lives, until

from jupyter_aliquot.provisioner.kubernetes.kernel_pod import RELAY_MEMORY_BYTES
from jupyter_aliquot.provisioner.kubernetes.tunnel.gateway import KernelTunnel
from jupyter_aliquot.provisioner.kubernetes.tunnel.keys import make_keys
from jupyter_aliquot.provisioner.kubernetes.tunnel.stream import CHANNELS
from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.client.control import RelayRecord, RelaySettings, read_relay_record

KEYS = make_keys("a-key")
# It prints until there is a file, and then how often.
CELL = """
import os, time
n = 0
while not os.path.exists({path!r}):
    print("line", n, flush=True); n += 1; time.sleep(0.03)
print("lines:", n)
"""


class Pod:
    """A sidecar and a kernel, and the folders that their pod gives them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kernel_id = folder, str(uuid.uuid4())
        self.connection, self.keys = folder / "c", folder / "k"
        for one in (self.connection, self.keys, folder / "o"):
            one.mkdir()
        ports = dict(zip(("shell", "iopub", "stdin", "hb", "control"), map(int, CHANNELS), strict=True))
        place = {"transport": "ipc", "ip": str(self.connection / "s"), "key": KEYS.connection_key}
        told = {**{f"{name}_port": port for name, port in ports.items()}, **place, "signature_scheme": "hmac-sha256"}
        (self.keys / "connection.json").write_text(json.dumps(told))
        for name, value in (
            ("token", KEYS.token.encode()),
            ("tls.crt", KEYS.certificate),
            ("tls.key", KEYS.private_key),
        ):
            (self.keys / name).write_bytes(value)
        self.port = free_port()
        self.processes: list[subprocess.Popen[bytes]] = []

    def start_sidecar(self, most_bytes: int = 1 << 30, grace_seconds: float = 30) -> None:
        words = ["-m", "jupyter_aliquot.provisioner.kubernetes.tunnel.sidecar", "--connection", str(self.connection)]
        words += ["--keys", str(self.keys), "--port", str(self.port)]
        told = {"ALIQUOT_POD_IP": "127.0.0.1", "ALIQUOT_OUTPUT": str(self.folder / "o")}
        told |= {"ALIQUOT_OUTPUT_BYTES": str(most_bytes), "ALIQUOT_GRACE_SECONDS": str(grace_seconds)}
        env = {**os.environ, **told}
        self.sidecar = subprocess.Popen([sys.executable, *words], env=env)
        self.processes.append(self.sidecar)

    def peak_bytes(self) -> int:
        """Return the most memory that the sidecar had."""
        status = Path(f"/proc/{self.sidecar.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10

    def start_kernel(self) -> None:
        words = [sys.executable, "-m", "ipykernel_launcher", "-f", str(self.keys / "connection.json")]
        self.kernel = subprocess.Popen(words, stdin=subprocess.DEVNULL, cwd=self.folder)
        self.processes.append(self.kernel)

    def cell(self) -> str:
        return CELL.format(path=str(self.folder / "go"))

    def go(self) -> None:
        (self.folder / "go").touch()


class Machine:
    """A gateway's machine: a relay host, the pod's relay, its tunnel, and a page."""

    def __init__(self, pod: Pod) -> None:
        self.pod, self.house = pod, House(Path(tempfile.mkdtemp(prefix="aqm-")))
        self.house.settings = RelaySettings(exit_when_idle_seconds=None, start_seconds=SECONDS)
        self.record: RelayRecord
        self.page: Gateway

    async def serve(self, prefix: str = "") -> Machine:
        told = {"kernel_id": self.pod.kernel_id, "key": KEYS.connection_key, "has_sidecar": True, "prefix": prefix}
        self.record = await self.house.relay(**told)
        self.lead()
        self.page = await Gateway(self.record).connect()
        return self

    def lead(self) -> None:
        async def read() -> Any:
            return KEYS

        address = ("127.0.0.1", self.pod.port)
        self.tunnel = KernelTunnel(
            self.pod.kernel_id, address, read, self.record.kernel_folder, logging.getLogger("test")
        )
        self.tunnel.start()

    @property
    def prefix(self) -> str:
        return str(json.loads((self.record.folder / "relay.json").read_text())["prefix"])

    async def lose(self) -> str:
        """Lose all of the machine; return what the pod's record says of the relay."""
        prefix = self.prefix
        self.house.end()
        await self.tunnel.close()
        self.page.link.close()
        return prefix

    async def open_requests(self) -> int:
        """Return how many requests the relay takes for open."""
        told = await client._ask(self.record.link_socket, {"op": "status"}, "the relay")
        return int(told.header["activity"]["open"])

    def close(self) -> None:
        self.house.end()
        shutil.rmtree(self.house.runtime.path, ignore_errors=True)


@pytest.fixture
def a_pod() -> Iterator[Pod]:
    pod = Pod(Path(tempfile.mkdtemp(prefix="aqp-")))  # short: paths of sockets are
    yield pod
    for process in pod.processes:
        process.kill()
        process.wait()
    shutil.rmtree(pod.folder)


@pytest.fixture
def machines(a_pod: Pod) -> Iterator[Callable[[], Machine]]:
    made: list[Machine] = []

    def make() -> Machine:
        made.append(Machine(a_pod))
        return made[-1]

    yield make
    for one in made:
        one.close()


def run(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 4 * SECONDS))  # type: ignore[arg-type]


def whole(text: str) -> bool:
    """Return whether a cell's lines are all there, in order and once."""
    told = text.splitlines()
    return told == [*(f"line {n}" for n in range(len(told) - 1)), f"lines: {len(told) - 1}"]


async def has_printed(page: Gateway, cell: str, line: int) -> None:
    await until(lambda: f"line {line}\n" in page.outputs(cell))


def names(messages: list[dict[str, Any]]) -> list[str]:
    return [message["header"]["msg_id"] for message in messages]


async def acknowledged(page: Gateway) -> set[str]:
    """Return messages that the sidecar need not keep: it heard so before the second of these requests."""
    known = set(names(page.messages))
    for _ in range(2):
        await page.done(page.request("kernel_info_request", {}, "control"))
    return known


def follow(before: Gateway, page: Gateway, done: set[str]) -> None:
    """Give a later page what the one before had. None of what that had acknowledged comes again."""
    later = names(page.messages)
    assert len(set(later)) == len(later)
    assert not done & set(later), "it was acknowledged, and came twice"
    known = set(names(before.messages))
    page.messages = [*before.messages, *(m for m in page.messages if m["header"]["msg_id"] not in known)]


def test_a_lost_machine_loses_no_line_and_no_reply(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        first = await machines().serve()
        cell = first.page.execute(a_pod.cell())
        await has_printed(first.page, cell, 3)
        done = await acknowledged(first.page)
        second = await machines().serve(await first.lose())
        await until(lambda: second.page.messages)
        a_pod.go()
        await second.page.done(cell)
        assert len(set(names(first.page.messages))) == len(first.page.messages)
        follow(first.page, second.page, done)
        assert whole(second.page.outputs(cell)), second.page.outputs(cell)
        await second.tunnel.close()

    run(scene)


def test_a_later_relay_knows_the_cell_that_runs(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        first = await machines().serve()
        cell = first.page.execute(a_pod.cell())
        await has_printed(first.page, cell, 0)
        second = await machines().serve(await first.lose())
        known = await second.page.until(lambda event: getattr(event, "work", 0) == 1)
        assert known.since is not None
        number = second.page.link.ask_seen(second.page.name, [cell, "another"])
        seen = await second.page.until(lambda event: getattr(event, "number", None) == number)
        assert (seen.ids, seen.saw_all) == ({cell}, False), "another may have come to the relay that was lost"
        a_pod.go()
        await second.page.done(cell)
        await second.page.until(lambda event: getattr(event, "work", 1) == 0)
        await second.tunnel.close()

    run(scene)


def test_a_connection_that_is_cut_is_no_end_and_loses_nothing(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        machine = await machines().serve()
        cell = machine.page.execute(a_pod.cell())
        await has_printed(machine.page, cell, 3)
        await machine.tunnel.close()
        waiting = machine.page.execute("print('after')")
        machine.lead()
        a_pod.go()
        await machine.page.done(cell)
        await machine.page.done(waiting)
        assert whole(machine.page.outputs(cell)), machine.page.outputs(cell)
        assert machine.page.outputs(waiting) == "after\n"
        states = [event.state for event in list(machine.page.events._queue) if hasattr(event, "incarnation")]  # type: ignore[attr-defined]
        assert "ended" not in states
        await machine.tunnel.close()

    run(scene)


def test_a_relay_that_is_killed_loses_nothing(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        machine = await machines().serve()
        cell = machine.page.execute(a_pod.cell())
        await has_printed(machine.page, cell, 3)
        done = await acknowledged(machine.page)
        kill_and_wait(machine.record.pid)
        await until(lambda: lives(read_relay_record(machine.record.folder)))
        page = await Gateway(read_relay_record(machine.record.folder)).connect()
        a_pod.go()
        await page.done(cell)
        follow(machine.page, page, done)
        assert whole(page.outputs(cell)), page.outputs(cell)
        await machine.tunnel.close()

    run(scene)


def test_more_than_the_bound_is_told(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    async def scene() -> None:
        a_pod.start_sidecar(most_bytes=100_000)
        a_pod.start_kernel()
        first = await machines().serve()
        cell = first.page.execute(
            f"import os, time\nwhile not os.path.exists({str(a_pod.folder / 'go')!r}): time.sleep(0.01)\n"
            "for n in range(10): print('x' * 30_000, flush=True)\n"
            f"open({str(a_pod.folder / 'printed')!r}, 'x').close()"
        )
        await first.page.until(lambda event: getattr(event, "work", 0) == 1)
        prefix = await first.lose()
        a_pod.go()
        await until((a_pod.folder / "printed").exists)
        second = await machines().serve(prefix)
        await second.page.done(cell)
        text = second.page.outputs(cell)
        assert "of this cell's output are missing here" in text
        assert 0 < text.count("x" * 30_000) < 10
        await second.tunnel.close()

    run(scene)


def test_a_relay_that_is_back_is_told_of_more_than_the_bound(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    """The sidecar drops first what the relay has: the first outputs of the cell, which no page has taken."""

    async def scene() -> None:
        a_pod.start_sidecar(most_bytes=100_000)
        a_pod.start_kernel()
        machine = await machines().serve()
        machine.page.acknowledges = False
        cell = machine.page.execute(
            "import os, time\nfor n in range(3): print('a' * 3_000, flush=True); time.sleep(0.05)\n"
            f"while not os.path.exists({str(a_pod.folder / 'go')!r}): time.sleep(0.01)\n"
            "for n in range(10): print('x' * 30_000, flush=True)\n"
            f"open({str(a_pod.folder / 'printed')!r}, 'x').close()"
        )
        await until(lambda: machine.page.outputs(cell).count("a" * 3_000) == 3)
        await machine.tunnel.close()
        a_pod.go()
        await until((a_pod.folder / "printed").exists)
        machine.page.acknowledges = True
        machine.lead()
        await machine.page.done(cell)
        text = machine.page.outputs(cell)
        assert text.count("a" * 3_000) == 3
        assert "of this cell's output are missing here" in text
        assert 0 < text.count("x" * 30_000) < 10
        await machine.tunnel.close()

    run(scene)


def test_a_kernel_that_ends_is_told_after_all_that_it_sent(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        machine = await machines().serve()
        cell = machine.page.execute("print('last', flush=True)\nimport os, time; time.sleep(0.3); os._exit(3)")
        await machine.page.until(lambda event: getattr(event, "state", "") == "ended")
        assert machine.page.outputs(cell) == "last\n"
        a_pod.sidecar.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(a_pod.sidecar.wait, 60) == 0
        await machine.tunnel.close()

    run(scene)


def test_the_gateway_tells_the_end_of_a_pod_that_had_no_time_to(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        machine = await machines().serve()
        await machine.page.done(machine.page.execute("1"))
        a_pod.sidecar.kill()
        a_pod.kernel.kill()
        machine.tunnel.note_end()
        await machine.page.until(lambda event: getattr(event, "state", "") == "ended")
        await machine.tunnel.close()

    run(scene)


def test_a_sidecar_that_was_killed_is_joined_again(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        machine = await machines().serve()
        await machine.page.done(machine.page.execute("x = 6 * 7"))
        a_pod.sidecar.kill()
        a_pod.sidecar.wait()
        await until(lambda: not (machine.record.kernel_folder / "s-1").exists())
        cell = machine.page.execute("print(x)")
        a_pod.start_sidecar()
        await machine.page.until(lambda event: getattr(event, "state", "") == "ended")
        await machine.page.done(cell)
        assert machine.page.outputs(cell) == "42\n"
        await machine.tunnel.close()

    run(scene)


def test_an_idle_kernel_is_idle_after_two_machines_were_lost(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        first = await machines().serve()
        cell = first.page.execute(a_pod.cell())
        await has_printed(first.page, cell, 0)
        second = await machines().serve(await first.lose())
        await second.page.until(lambda event: getattr(event, "work", 0) == 1)
        a_pod.go()
        await second.page.done(cell)
        await acknowledged(second.page)
        third = await machines().serve(await second.lose())
        await third.page.done(third.page.request("kernel_info_request", {}, "control"))
        assert await third.open_requests() == 0
        await third.tunnel.close()

    run(scene)


def test_a_relay_asks_seldom_for_a_kernel_that_ended(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        machine = await machines().serve()
        await machine.page.done(machine.page.execute("1"))
        opened: list[str] = []
        opens = machine.tunnel._opened

        async def count(channel: str) -> Any:
            opened.append(channel)
            return await opens(channel)

        machine.tunnel._opened = count  # type: ignore[method-assign]
        a_pod.kernel.kill()
        await machine.page.until(lambda event: getattr(event, "state", "") == "ended")
        await until(lambda: opened)  # it asked again, and heard that it is the same run
        began, before = time.monotonic(), len(opened)
        await until(lambda: len(opened) >= before + 2)
        assert time.monotonic() - began >= 1.0, "at most one after the tunnel made its socket anew, and then a wait"
        await machine.tunnel.close()

    run(scene)


def test_a_request_with_a_large_header_is_not_noted_and_does_not_end_the_kernel(
    a_pod: Pod, machines: Callable[[], Machine]
) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        machine = await machines().serve()
        message = machine.page.session.msg("execute_request", {"code": "print('large')", "silent": False})
        message["header"]["username"] = "x" * (9 << 20)
        machine.page.link.send("shell", machine.page.name, machine.page.session.serialize(message))
        await machine.page.done(message["header"]["msg_id"])
        assert machine.page.outputs(message["header"]["msg_id"]) == "large\n"
        await machine.tunnel.close()

    run(scene)


def test_output_of_a_kernel_that_ends_without_a_gateway_waits_for_one(
    a_pod: Pod, machines: Callable[[], Machine]
) -> None:
    async def scene() -> None:
        a_pod.start_sidecar(grace_seconds=2 * SECONDS)
        a_pod.start_kernel()
        first = await machines().serve()
        cell = first.page.execute(a_pod.cell() + "import sys; sys.stdout.flush(); time.sleep(0.3); os._exit(0)")
        await has_printed(first.page, cell, 3)
        prefix = await first.lose()
        a_pod.go()
        assert await asyncio.to_thread(a_pod.kernel.wait, SECONDS) == 0
        a_pod.sidecar.send_signal(signal.SIGTERM)  # as the kubelet does
        second = await machines().serve(prefix)
        await until(lambda: "lines: " in second.page.outputs(cell))
        follow(first.page, second.page, set())
        assert whole(second.page.outputs(cell)), second.page.outputs(cell)
        assert await asyncio.to_thread(a_pod.sidecar.wait, SECONDS) == 0
        await second.tunnel.close()

    run(scene)


def test_a_request_that_a_kernel_had_no_room_for_is_not_the_next_ones(
    a_pod: Pod, machines: Callable[[], Machine]
) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        machine = await machines().serve()
        await machine.page.done(machine.page.execute("1"))
        a_pod.kernel.send_signal(signal.SIGSTOP)
        ran = a_pod.folder / "ran"
        for number in range(4):  # the first two are on their way: the sidecar has the others
            machine.page.execute(f"open({str(ran)!r}, 'a').write('{number} ') #" + "x" * (1 << 20))
        shell, before = a_pod.connection / "s-1", a_pod.kernel
        was = shell.stat().st_ino
        a_pod.start_kernel()  # in its place, as a program of the user's may
        await until(lambda: shell.exists() and shell.stat().st_ino != was)
        before.kill()
        await machine.page.until(lambda event: getattr(event, "state", "") == "ended")
        cell = machine.page.execute(f"import os; print(os.path.exists({str(ran)!r}))")
        await machine.page.done(cell)
        assert machine.page.outputs(cell) == "False\n"
        await machine.tunnel.close()

    run(scene)


def test_a_message_that_is_too_large_is_told_to_its_cell(a_pod: Pod, machines: Callable[[], Machine]) -> None:
    async def scene() -> None:
        a_pod.start_sidecar()
        a_pod.start_kernel()
        machine = await machines().serve()
        shown = "from IPython.display import display; display({'text/plain': 'x' * SIZE}, raw=True)"
        cell = machine.page.execute(shown.replace("SIZE", "(65 << 20)"))
        await machine.page.done(cell)
        assert "a message of 68 MB, which is not passed on: at most 67 MB are" in machine.page.outputs(cell)
        cell = machine.page.execute(shown.replace("SIZE", "(60 << 20)"))
        await machine.page.done(cell)
        (large,) = [m for m in machine.page.messages if m["msg_type"] == "display_data"]
        assert len(large["content"]["data"]["text/plain"]) == 60 << 20
        peak = a_pod.peak_bytes()
        print(f"peak memory of the sidecar: {peak >> 20} MiB")
        assert peak < 0.8 * RELAY_MEMORY_BYTES, f"{peak >> 20} MiB"
        await machine.tunnel.close()

    run(scene)
