"""Links: no output of a kernel is missing or comes twice, whichever links come and go meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from relay_house import Gateway, House, a_client, is_idle, parent, soon, until, until_true

from jupyter_aliquot.provisioner.errors import RelayProtocolError, RelayRefusedError, RelayUnavailableError
from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.wire.protocol import MAGIC, VERSIONS, Record, RecordReader, encode_whole

MANY = "for i in range({n}): print(i, flush=True)"


async def ask_status(record: client.RelayRecord) -> dict[str, Any]:
    return dict((await client._ask(record.link_socket, {"op": "status"}, "the relay")).header)


async def until_quiet(record: client.RelayRecord) -> dict[str, Any]:
    """Return the relay's status once the kernel has finished all."""
    status: dict[str, Any] = {}

    async def is_quiet() -> bool:
        status.update(await soon(ask_status(record)))
        return status["kernel"]["state"] == "started" and not status["activity"]["open"]

    await until_true(is_quiet)
    return status


async def execute_by_front(record: client.RelayRecord, code: str) -> str:
    async with a_client(record) as kernel:
        msg_id = str(kernel.execute(code))
        assert (await soon(kernel.get_shell_msg()))["content"]["status"] == "ok"
    return msg_id


def test_a_page_that_reads_widgets_of_a_kernel_that_has_none_is_no_activity(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        await gateway.done(gateway.execute("pass"))
        want_last = (await soon(ask_status(record)))["activity"]["last"]
        opening = {"comm_id": "c", "target_name": "jupyter.widget.control", "data": {}}
        opened = gateway.request("comm_open", opening, metadata={"version": "1.0.0"})
        read = gateway.request("comm_msg", {"comm_id": "c", "data": {"method": "request_states"}})
        await gateway.idle(read)
        await until(lambda: "No such comm" in gateway.outputs(opened))
        assert (await soon(ask_status(record)))["activity"]["last"] == want_last

    asyncio.run(scene())


def test_what_was_printed_while_nobody_was_attached_comes_at_the_next_attach(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        cell = await execute_by_front(record, MANY.format(n=50))
        gateway = await Gateway(record).connect()
        await gateway.idle(cell)
        assert gateway.outputs(cell) == "".join(f"{i}\n" for i in range(50))
        await until(lambda: not gateway.link.untaken)
        other = await Gateway(record, "other").connect()
        probe = other.execute("1")
        await other.idle(probe)
        assert not other.outputs(cell), "what was acknowledged does not come again"

    asyncio.run(scene())


def test_a_cell_that_ends_before_its_page_attaches_is_shown_to_it(a_house: House, tmp_path: Path) -> None:
    """A gateway hands on what a page sent while its kernel started, and connects the page later."""

    async def scene() -> None:
        record = await a_house.kernel(gateway=None)  # which keeps no output by itself
        gateway = await Gateway(record).connect(attach=False)
        cell = gateway.execute(f"open({str(tmp_path / 'ran')!r}, 'w').close(); print(6 * 7)")
        await until((tmp_path / "ran").exists)
        await until_quiet(record)
        gateway.link.attach(gateway.name)
        await gateway.done(cell)
        assert gateway.outputs(cell) == "42\n"

    asyncio.run(scene())


def test_a_link_that_is_lost_in_the_middle_misses_nothing_and_doubles_nothing(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        first = await Gateway(record).connect()
        cell = first.execute("import time\n" + MANY.format(n=400))
        await first.until(lambda m: parent(m) == cell and m["msg_type"] == "stream")
        first.link.close()
        second = await Gateway(record).connect()
        assert second.link.epoch == first.link.epoch
        numbers: dict[int, Any] = {}

        def is_complete() -> bool:
            numbers.update({m["seq"]: m for m in [*first.messages, *second.messages]})
            its = [m for m in numbers.values() if parent(m) == cell]
            return any(is_idle(m, cell) for m in its) and any(m["msg_type"] == "execute_reply" for m in its)

        await until(is_complete)
        # A message that was acknowledged, with the acknowledgment lost, keeps its number: the
        # gateway knows it.
        text = "".join(
            m["content"]["text"] for _, m in sorted(numbers.items()) if parent(m) == cell and m["msg_type"] == "stream"
        )
        assert text == "".join(f"{i}\n" for i in range(400))
        ids = [m["header"]["msg_id"] for m in numbers.values()]
        assert len(ids) == len(set(ids))
        assert [m["content"]["status"] for m in numbers.values() if m["msg_type"] == "execute_reply"] == ["ok"]

    asyncio.run(scene())


def test_what_was_not_acknowledged_comes_again_with_its_number(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        first = await Gateway(record).connect()
        first.acknowledges = False
        cell = first.execute("print('held')")
        await first.done(cell)
        first.link.close()
        second = await Gateway(record).connect()
        await until(lambda: len(second.messages) >= len(first.messages))
        assert [(m["seq"], m["header"]["msg_id"]) for m in second.messages[: len(first.messages)]] == [
            (m["seq"], m["header"]["msg_id"]) for m in first.messages
        ]

    asyncio.run(scene())


def test_a_request_that_is_sent_again_runs_once(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        first = await Gateway(record).connect()
        await first.idle(first.execute("n = 0"))
        await until(lambda: not first.link.untaken)
        message = first.session.serialize(
            first.session.msg("execute_request", {"code": "n += 1", "silent": False, "allow_stdin": False})
        )
        first.link.send("shell", first.name, message)
        (untaken,) = first.link.untaken
        first.link.close()
        second = await Gateway(record).connect()
        for _ in range(3):
            second.link.send(untaken.channel, untaken.session, untaken.frames)
        probe = second.execute("print(n)")
        await second.idle(probe)
        assert second.outputs(probe) == "1\n"

    asyncio.run(scene())


def test_more_than_fits_into_memory_waits_on_disk(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel(memory_bytes=100_000)
        cell = await execute_by_front(record, "for i in range(200): print('x' * 20_000, flush=True)")
        store = (await until_quiet(record))["store"]
        assert store["bytes"] > 4_000_000
        assert store["memory_bytes"] <= 100_000
        assert store["dropped_messages"] == 0
        gateway = await Gateway(record).connect()
        await gateway.idle(cell)
        assert gateway.outputs(cell) == ("x" * 20_000 + "\n") * 200

        async def is_empty() -> bool:
            store = (await until_quiet(record))["store"]
            return (store["messages"], store["segments"]) == (0, 0)

        await until_true(is_empty)

    asyncio.run(scene())


def test_beyond_the_bound_outputs_are_dropped_counted_and_told_in_the_notebook(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel(memory_bytes=100_000, store_bytes=1_000_000)
        cell = await execute_by_front(record, "for i in range(200): print('x' * 20_000, flush=True)\nprint('end')")
        store = (await until_quiet(record))["store"]
        assert store["bytes"] <= 1_000_000
        gateway = await Gateway(record).connect()
        dropped = await gateway.until(lambda e: isinstance(e, client.Dropped))
        await gateway.idle(cell)
        notices = [m for m in gateway.messages if parent(m) == cell and "Aliquot" in m["content"].get("text", "")]
        assert (dropped.messages, dropped.bytes) == (store["dropped_messages"], store["dropped_bytes"])
        told = [re.search(r"(\d+) messages", m["content"]["text"]) for m in notices]
        assert 100 < sum(int(found[1]) for found in told if found) <= dropped.messages
        assert [m["content"]["name"] for m in notices] == ["stderr"]
        assert gateway.outputs(cell).endswith("x\nend\n")
        assert sum(m["msg_type"] == "status" and parent(m) == cell for m in gateway.messages) == 2

    asyncio.run(scene())


def test_a_gateway_that_does_not_acknowledge_gets_a_window_and_no_more(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        gateway.acknowledges = False
        cell = gateway.execute("for i in range(30): print('x' * 1_000_000, flush=True)")
        await until_quiet(record)
        await until(lambda: gateway.messages)
        sizes = [len(m["content"]["text"]) for m in gateway.messages if m["msg_type"] == "stream"]
        assert sum(sizes) <= 8 << 20
        gateway.acknowledges = True
        gateway.link.ack(gateway.messages[-1]["seq"])
        await gateway.idle(cell)
        assert len(gateway.outputs(cell)) == 30 * 1_000_001

    asyncio.run(scene())


def test_a_session_that_moved_gets_its_replies_where_it_is(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        first = await Gateway(record, "moving").connect()
        cell = first.execute("input()")
        await first.until(lambda m: isinstance(m, dict) and m["msg_type"] == "input_request")
        first.link.detach("moving")
        second = await Gateway(record, "moving").connect()
        second.request("input_reply", {"value": ""}, "stdin")
        reply = await second.until(lambda m: parent(m) == cell and m["msg_type"] == "execute_reply")
        assert reply["to"] == "moving"
        assert not [m for m in first.messages if m["msg_type"] == "execute_reply"]

    asyncio.run(scene())


def test_activity_is_told_as_it_changes_and_counts_subshells(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        gateway = await Gateway(record).connect()
        await gateway.idle(gateway.execute("1"))  # ipykernel makes no subshell before its main shell runs
        asked = gateway.request("create_subshell_request", {}, "control")
        created = await gateway.until(lambda m: parent(m) == asked and m["channel"] == "control")
        before = time.time()
        cell = gateway.execute("input()")
        await gateway.until(lambda m: isinstance(m, dict) and m["msg_type"] == "input_request")
        message = gateway.session.msg("execute_request", {"code": "print(1)", "silent": False, "allow_stdin": False})
        message["header"]["subshell_id"] = created["content"]["subshell_id"]
        gateway.link.send("shell", gateway.name, gateway.session.serialize(message))
        await gateway.idle(message["header"]["msg_id"])
        told = await gateway.until(lambda e: isinstance(e, client.Activity) and e.open == 1)
        assert told.work == 1, "the cell on the main shell is still open"
        assert before <= told.since <= told.last
        gateway.request("input_reply", {"value": ""}, "stdin")
        await gateway.idle(cell)
        told = await gateway.until(lambda e: isinstance(e, client.Activity))
        assert (told.open, told.work, told.since) == (0, 0, None)

    asyncio.run(scene())


# ---- what is no link


def raw(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(10)
    connection.connect(str(path))
    return connection


def answers(connection: socket.socket) -> list[Record]:
    """Return all records until the other side hangs up."""
    reader, records = RecordReader(1 << 30), []
    while count := connection.recv_into(reader.buffer()):
        records += reader.filled(count)
    return records


HELLO = {"op": "hello", "versions": list(VERSIONS), "role": "link"}
BAD = {
    "garbage": b"GET / HTTP/1.1\r\n\r\n",
    "a huge length": MAGIC + b"\0\0\0\1" + b"\xff" * 16,
    "another version": encode_whole({**HELLO, "versions": [99]}),
    "no versions": encode_whole({"op": "hello", "role": "link"}),
    "another role": encode_whole({**HELLO, "role": "king"}),
    "no hello": encode_whole({"op": "attach", "session": "x"}),
    "an op of another's": encode_whole(HELLO) + encode_whole({"op": "spawn"}),
    "a session that is none": encode_whole(HELLO) + encode_whole({"op": "attach", "session": 7}),
    "a channel that is none": encode_whole(HELLO)
    + encode_whole({"op": "send", "session": "x", "channel": "iopub", "n": 1}, [b"<IDS|MSG>"]),
    "a message that is none": encode_whole(HELLO)
    + encode_whole({"op": "send", "session": "x", "channel": "shell", "n": 1}, [b"nothing"]),
    "an acknowledgement of nothing": encode_whole(HELLO) + encode_whole({"op": "ack", "seq": "x"}),
    "garbage after hello": encode_whole(HELLO) + b"\0" * 100,
    "a launch that is none": encode_whole({**HELLO, "role": "control"}) + encode_whole({"op": "spawn", "launch": []}),
    "facts that are none": encode_whole({**HELLO, "role": "control"}) + encode_whole({"op": "set_facts", "facts": 1}),
}


@pytest.fixture(scope="module")
def a_bare_relay(tmp_path_factory: pytest.TempPathFactory) -> Any:
    house = House(Path(tempfile.mkdtemp(prefix="aliquot-r-")))
    yield asyncio.run(house.kernel())
    house.end()
    shutil.rmtree(house.runtime.path)


@pytest.mark.parametrize("what", BAD)
def test_malformed_input_gets_a_refusal_and_harms_no_kernel(a_bare_relay: client.RelayRecord, what: str) -> None:
    for path in (a_bare_relay.link_socket, a_bare_relay.folder.parent.parent / "relay.sock"):
        with raw(path) as connection:
            connection.sendall(BAD[what])
            last = answers(connection)[-1]
            assert last.op == "refused", (what, last.header)
            assert last.header["code"] in ("bad_request", "version", "running")
            assert last.header["message"]
    assert asyncio.run(ask_status(a_bare_relay))["kernel"]["state"] in ("starting", "started")


def test_half_a_record_then_the_end_harms_nobody(a_bare_relay: client.RelayRecord) -> None:
    whole = encode_whole(HELLO) + encode_whole({"op": "attach", "session": "x" * 100})
    for cut in range(0, len(whole), 7):
        with raw(a_bare_relay.link_socket) as connection:
            connection.sendall(whole[:cut])

    async def has_none() -> bool:
        return (await soon(ask_status(a_bare_relay)))["links"] == 0

    asyncio.run(until_true(has_none))


def test_descriptors_that_nobody_asked_for_are_closed(a_bare_relay: client.RelayRecord) -> None:
    folder = Path(f"/proc/{a_bare_relay.pid}/fd")
    before = len(list(folder.iterdir()))
    with raw(a_bare_relay.link_socket) as connection:
        connection.sendall(encode_whole({**HELLO, "role": "control"}))
        connection.recv(1000)
        socket.send_fds(connection, [encode_whole({"op": "status"})], [0, 1, 2])
        assert answers(connection)[-1].op == "status"
    asyncio.run(until(lambda: len(list(folder.iterdir())) <= before))


def test_our_client_says_what_is_wrong(a_bare_relay: client.RelayRecord, tmp_path: Path) -> None:
    async def scene() -> None:
        launch = client.KernelLaunch(("/nowhere/python",), {})
        with pytest.raises(RelayRefusedError, match="the kernel runs") as refused:
            await client.spawn(a_bare_relay, launch)
        assert refused.value.code == "running"
        gone = client.parse_relay_record(tmp_path, json.loads((a_bare_relay.folder / "relay.json").read_text()))
        with pytest.raises(RelayUnavailableError, match=r"link\.sock does not answer: No such file"):
            await client.spawn(gone, launch)
        with pytest.raises(RelayUnavailableError, match="does not answer: No such file"):
            await Gateway(gone).connect()
        server = await asyncio.start_unix_server(lambda _, writer: writer.write(b"nonsense"), tmp_path / "link.sock")
        async with server:
            with pytest.raises((RelayProtocolError, RelayUnavailableError), match="cannot be understood"):
                await client.set_facts(gone, {})
            with pytest.raises((RelayProtocolError, RelayUnavailableError), match="cannot be understood"):
                await Gateway(gone).connect()

    asyncio.run(scene())


def test_a_queue_of_connections_that_is_full_is_waited_for(a_bare_relay: client.RelayRecord, tmp_path: Path) -> None:
    gone = client.parse_relay_record(tmp_path, json.loads((a_bare_relay.folder / "relay.json").read_text()))

    async def scene(listening: socket.socket, waiting: list[socket.socket]) -> None:
        asking = asyncio.create_task(client.set_facts(gone, {}))
        linking = asyncio.create_task(Gateway(gone).connect())
        done, _ = await asyncio.wait({asking, linking}, timeout=0.1)
        assert not done
        listening.setblocking(False)
        for _ in range(len(waiting) + 2):
            connection, _ = await soon(asyncio.get_running_loop().sock_accept(listening))
            connection.close()
        for task in (asking, linking):
            with pytest.raises(RelayUnavailableError):
                await task

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "link.sock"))
        listening.listen(0)
        waiting: list[socket.socket] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
                waiting[-1].connect(str(tmp_path / "link.sock"))
        waiting.pop().close()
        asyncio.run(scene(listening, waiting))
        for connection in waiting:
            connection.close()
