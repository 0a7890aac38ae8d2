"""A gateway bounds what it takes of a relay that its owner replaced, and ours leave out what is too large."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from owners_house import ENV, OwnersHouse, an_owners_house, kernel_pid
from relay_house import Gateway, ipykernel, kill_and_wait, until

from jupyter_aliquot.gateway.relays.link import KernelLink
from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.client.link import KernelState, KnownCells, RelayLink, read_event
from jupyter_aliquot.provisioner.relay.client.unacknowledged import MOST_BYTES
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord
from jupyter_aliquot.provisioner.relay.wire.protocol import LONGEST_MESSAGE, LONGEST_OF_ANOTHER, ProtocolError, Record

# A kernel that stops its relay, and listens in its place.
FORGER = """
import json, os, signal, socket, struct, sys
folder, kind, waits = sys.argv[1:]

def record(header, *frames):
    text = json.dumps(header).encode()
    lengths = [len(text), *map(len, frames)]
    head = struct.pack(">4sIQ", b"AqR1", len(lengths), sum(lengths)) + struct.pack(f">{len(lengths)}Q", *lengths)
    return b"".join([head, text, *frames])

os.kill(os.getppid(), signal.SIGSTOP)
os.unlink(folder + "/link.sock")
server = socket.socket(socket.AF_UNIX)
server.bind(folder + "/link.sock")
os.chmod(folder + "/link.sock", 0o660)
server.listen()
open(folder + "/k/listens", "w").close()
while True:
    peer, _ = server.accept()
    try:
        peer.recv(1 << 16)
        peer.sendall(record({"op": "hello", "epoch": "e"}))
        if waits:
            peer.recv(1 << 16)
        if kind == "huge":
            peer.sendall(struct.pack(">4sIQ", b"AqR1", 2, 1 << 31) + struct.pack(">2Q", 2, (1 << 31) - 2) + b"{}")
        if kind == "header":
            peer.sendall(record({"op": "kernel", "state": "x" * (2 << 20)}))
        frames, number = [b"<IDS|MSG>", b"", b"{}", b"{}", b"{}", bytes(1 << 20)], 0
        while True:
            number += 1
            peer.sendall(record({"op": "message", "seq": number, "channel": "iopub", "session": None}, *frames))
    except OSError:
        peer.close()
"""
FAULTS = {
    "huge": f"a record has {1 << 31} bytes; at most {LONGEST_OF_ANOTHER} are accepted",
    "header": "a header of",
    "many": "without waiting for an acknowledgement",
}


@pytest.fixture
def a_house() -> Iterator[OwnersHouse]:
    with an_owners_house() as house:
        yield house


async def forger(house: OwnersHouse, kind: str, waits: str = "until attached") -> RelayRecord:
    record = await house.relay(account="ada")
    argv = (sys.executable, "-c", FORGER, str(record.folder), kind, waits)
    await client.spawn(record, client.KernelLaunch(argv, ENV))
    await until((record.kernel_folder / "listens").exists)
    return client.read_relay_record(record.folder)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_relay_of_the_owners_own_fills_no_memory_of_the_gateway(kind: str, a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await forger(a_house, kind)
        gateway = Gateway(record)
        gateway.reads = False
        await gateway.connect()
        await until(lambda: gateway.lost_because)
        assert FAULTS[kind] in str(gateway.lost_because)
        assert FAULTS[kind] in gateway.link.fault
        taken = sum(len(bytes(frame)) for event in gateway.raw for frame in event.frames)
        assert taken <= MOST_BYTES
        kill_and_wait(record.pid)
        kill_and_wait(kernel_pid(record))

    asyncio.run(scene())


@pytest.mark.parametrize("kind", FAULTS)
def test_the_log_says_why_such_a_relay_is_left_alone(
    kind: str, a_house: OwnersHouse, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        record = await forger(a_house, kind, waits="")
        link = KernelLink(
            lambda listener: RelayLink.connect(record, listener),
            lambda _: None,
            logging.getLogger("gateway"),
            "adas-kernel",
        )
        link.start()
        await until(lambda: "relay_link=adas-kernel closed reason=" in caplog.text)
        assert FAULTS[kind] in caplog.text
        assert "the gateway asks again in 30 s" in caplog.text
        await link.close()
        kill_and_wait(record.pid)
        kill_and_wait(kernel_pid(record))

    asyncio.run(scene())


def test_a_message_that_its_gateway_would_refuse_is_left_out_and_told(a_house: OwnersHouse) -> None:
    code = f"""
from IPython.display import publish_display_data
publish_display_data({{"text/plain": "x" * {LONGEST_MESSAGE + 1}}})
print("goes on")
"""

    async def scene() -> None:
        record = await a_house.relay(account="ada")
        await client.spawn(record, ipykernel(record, env=ENV))
        gateway = await Gateway(record).connect()
        cell = gateway.execute(code, user_expressions={"large": f"b'x' * {LONGEST_MESSAGE}"})
        await gateway.done(cell)
        assert "The kernel sent a message of 67 MB, which is not passed on: at most 67 MB are" in gateway.outputs(cell)
        assert "goes on" in gateway.outputs(cell)
        (reply,) = [one for one in gateway.messages if one["msg_type"] == "execute_reply"]
        assert reply["content"]["ename"] == "MessageTooLarge"
        assert gateway.lost_because is None
        await client.stop_relay(client.read_relay_record(record.folder))

    asyncio.run(scene())


def test_of_a_records_fields_texts_and_numbers_are_kept() -> None:
    deep = {"a": [{}] * 1000}
    told = {"state": "ended", "incarnation": 1, "ended": {"signal": 9, "last_words": "killed", "at": deep}}
    assert read_event(Record({"op": "kernel", **told}, [])) == KernelState(
        "ended", 1, {"signal": 9, "last_words": "killed"}
    )
    cell = {"msg_id": "m", "cell_id": None, "began": 1.0, "is_open": True, "input": {"prompt": "?", "id": deep}}
    event = read_event(Record({"op": "cells", "cells": [cell]}, []))
    assert isinstance(event, KnownCells)
    assert event.cells[0].input == {"prompt": "?"}


@pytest.mark.parametrize(
    "header",
    [
        {"op": "activity", "open": 1, "work": 1, "since": 1.0, "last": 1.0, "input": {"a": []}},
        {"op": "kernel", "state": "ended", "incarnation": 1, "ended": [1]},
        {"op": "kernel", "state": "ended", "incarnation": 1, "ended": {str(number): 0 for number in range(33)}},
        {"op": "unread", "messages": 1e400, "bytes": 0, "refused": 0},
    ],
)
def test_a_record_with_fields_of_another_kind_is_a_breach_of_the_protocol(header: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match=f"its {header['op']} record lacks a field"):
        read_event(Record(header, []))
