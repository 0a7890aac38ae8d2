"""A relay reports which requests of a session it took, also those left in a gateway's socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest
from relay_house import Gateway, House, kill_and_wait, lives, until
from started import stopped

from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.client.link import Seen
from jupyter_aliquot.provisioner.relay.server import link_server
from jupyter_aliquot.provisioner.relay.wire.peer import Peer
from jupyter_aliquot.provisioner.relay.wire.protocol import VERSIONS, encode_whole


async def ask(gateway: Gateway, ids: Sequence[str], session: str | None = None) -> Seen:
    number = gateway.link.ask_seen(session or gateway.name, ids)
    found: Seen = await gateway.until(lambda event: isinstance(event, Seen) and event.number == number)
    return found


def test_a_relay_tells_which_requests_of_a_session_came_and_which_did_not(a_house: House) -> None:
    async def scene() -> None:
        gateway = await Gateway(await a_house.kernel()).connect()
        cell = gateway.execute("1")
        seen = await ask(gateway, [cell, "lost"])
        assert (seen.ids, seen.saw_all) == ({cell}, True)
        assert not (await ask(gateway, [cell], session="another")).ids

    asyncio.run(scene())


def test_what_a_killed_gateway_left_in_its_socket_counts_as_seen_and_runs_once(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        before = await Gateway(record).connect()
        await before.done(before.execute("runs = []"))
        with stopped(record.pid):
            first, last = (before.execute(f"runs.append({name!r})") for name in ("first", "last"))
            await before.link.drain()
            asking = asyncio.ensure_future(Gateway(record).connect())
            await asyncio.sleep(0)
            before.link.close()
        after = await asking
        assert (await ask(after, [first, last, "lost"])).ids == {first, last}
        shown = after.execute("print(runs)")
        await after.idle(shown)
        assert after.outputs(shown) == "['first', 'last']\n"

    asyncio.run(scene())


@pytest.mark.parametrize("records", ["acknowledgements", "attachments"])
def test_a_cell_that_a_killed_gateway_sent_after_other_records_runs(a_house: House, records: str) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        before = await Gateway(record).connect()
        before.acknowledges = False
        await before.done(before.execute("runs = []"))
        with stopped(record.pid):
            if records == "acknowledgements":
                for message in before.messages:
                    before.link.ack(message["seq"])
            else:
                for session in ("one", "another"):
                    before.link.attach(session)
            late = before.execute("runs.append('late')")
            await before.link.drain()
            before.link.close()
            await until(lambda: not before.link.is_open)
        after = await Gateway(record).connect()
        assert (await ask(after, [late])).ids == {late}
        shown = after.execute("print(runs)")
        await after.idle(shown)
        assert after.outputs(shown) == "['late']\n"

    asyncio.run(scene())


def test_a_relay_that_cannot_write_to_a_link_any_more_takes_what_the_link_had_sent() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    peer = Peer(ours)
    theirs.sendall(bytes(encode_whole({"op": "hello", "versions": list(VERSIONS), "role": "link"})))
    theirs.close()
    peer.say({"op": "activity"})
    peer.flush()
    assert [record.op for record in peer.read()] == ["hello"]
    assert peer.is_ended


def test_a_relay_that_took_the_place_of_another_does_not_claim_to_have_seen_all(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        before = await Gateway(record).connect()
        cell = before.execute("1")
        await before.done(cell)
        kill_and_wait(record.pid)
        after = await until(lambda: next((r for r in client.read_relay_records(a_house.runtime) if lives(r)), None))
        gateway = await Gateway(after).connect()
        assert not (await ask(gateway, [cell])).saw_all

    asyncio.run(scene())


def test_the_oldest_requests_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_server, "_SEEN_REQUESTS", 2)
    known = link_server.SeenRequests()

    def is_new(session: str, msg_id: str) -> bool:
        return known.add(session, {"msg_id": msg_id, "msg_type": "execute_request"})

    assert [is_new("s", name) for name in ("a", "a", "b", "c", "c")] == [True, False, True, True, False]
    assert is_new("s", "a"), "it is not known any more"
    assert is_new("guest", "a"), "no session takes the place of another's request"
    assert not is_new("s", "a")
    assert not known.has_all_cells


def test_other_requests_push_no_cell_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_server, "_SEEN_REQUESTS", 2)
    known = link_server.SeenRequests()
    known.add("s", {"msg_id": "cell", "msg_type": "execute_request"})
    new = [known.add("s", {"msg_id": f"comm {n}", "msg_type": "comm_msg"}) for n in (1, 2, 3, 3)]
    assert new == [True, True, True, False]
    assert (known.cells_of("s", ["cell", "comm 3", "lost", 7]), known.has_all_cells) == (["cell"], True)
