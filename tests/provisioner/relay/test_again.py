"""Requests that come a second time, or may have: what is new runs once, and what cannot be known to be is not run."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import pytest
from relay_house import Gateway, House, kill_and_wait, lives, parent, until

from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.server import link_server as links
from jupyter_aliquot.provisioner.relay.wire.resend import MARK, Again, Doubts, read_again

NOW = 1000.0


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        (b"{}", None),
        (b'{"note": "aliquot_again"}', None),
        (b'{"aliquot_again": 1}', None),
        (b'{"aliquot_again": {"sent": 5, "runs": true}}', Again(5.0, True)),
        (b'{"aliquot_again": {"sent": 5}}', Again(5.0, False)),
        (b'{"aliquot_again": {"sent": "5", "runs": 1}}', Again(-math.inf, False)),
        (b'{"aliquot_again": {"sent": 1e999, "runs": true}}', Again(-math.inf, True)),
        (b'{"aliquot_again": {"age": 3, "runs": true}}', Again(-math.inf, True)),
        (b'{"aliquot_again": {"sent": 1' + 400 * b"0" + b', "runs": true}}', Again(-math.inf, True)),
    ],
)
def test_the_mark_is_read_with_suspicion(metadata: bytes, want: Again | None) -> None:
    assert read_again([b"", b"", b"{}", b"{}", metadata, b"{}"]) == want


@pytest.mark.parametrize(
    ("again", "started_at", "knows_since", "runs"),
    [
        (Again(NOW, True), NOW - 6, NOW - 6, True),
        (Again(NOW, False), NOW - 6, NOW - 6, False),
        (Again(NOW, True), NOW - 4, NOW - 100, False),
        (Again(NOW, True), NOW + 1, NOW - 2, False),
        (Again(NOW, True), 0.0, NOW - 2, False),
        (Again(NOW, True), NOW - 100, NOW - 4, False),
        (Again(NOW, True, forgot_at=NOW - 1), NOW - 100, NOW - 100, False),
        (Again(NOW, True, forgot_at=NOW - 90), NOW - 100, NOW - 100, True),
        (Again(-math.inf, True), NOW - 1, NOW - 2, False),
    ],
    ids=["new", "unwanted", "young", "restarted", "no kernel", "another relay", "forgotten", "remembered", "unknown"],
)
def test_what_may_have_run_is_not_run(again: Again, started_at: float, knows_since: float, runs: bool) -> None:
    words = Doubts(knows_since).why_not(again, started_at, NOW + 1)
    assert (words == "") is runs
    assert runs or "nobody knows whether it ran" in words


def test_nothing_runs_that_was_sent_before_a_cell_failed_or_before_something_that_was_not_run() -> None:
    doubts = Doubts(0.0)
    reply = [b"", b"", b'{"msg_type": "execute_reply"}', b"{}", b"{}"]
    doubts.saw_reply([*reply, b'{"status": "ok"}'], NOW + 1)
    assert not doubts.why_not(Again(NOW, True), 1.0, NOW + 2)
    doubts.saw_reply([*reply, b'{"status": "aborted"}'], NOW + 1)
    assert doubts.why_not(Again(NOW, True), 1.0, NOW + 2)
    # That one failed, too, as far as what came behind it goes.
    assert doubts.why_not(Again(NOW + 1.5, True), 1.0, NOW + 2)
    assert not doubts.why_not(Again(NOW + 3, True), 1.0, NOW + 4)
    doubts.saw_reply([*reply, b'{"status": "ok", "payload": "%s"}' % (b"x" * 70_000)], NOW + 5)
    assert doubts.why_not(Again(NOW + 4, True), 1.0, NOW + 6), "what nobody reads may have failed"


class Returning(Gateway):
    """A gateway to which its clients send again what they do not know to have arrived."""

    def again(self, msg_type: str, content: dict[str, Any], channel: str = "shell", **fields: Any) -> str:
        """``age``: for how long it has been under way; ``message``: the one that was sent.

        Below zero: it was sent later than now, past the first seconds of a relay and of all that has happened.
        """
        age, runs = fields.pop("age", -60.0), fields.pop("runs", True)
        message = fields.pop("message", None) or self.session.msg(msg_type, content, **fields)
        message["metadata"] = {MARK: {"sent": time.time() - age, "runs": runs}}
        self.link.send(channel, self.name, self.session.serialize(message))
        return str(message["header"]["msg_id"])

    def cell(self, code: str) -> dict[str, Any]:
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": True, "user_expressions": {}}
        return content

    async def error(self, cell: str) -> tuple[str, str]:
        reply = await self.until(lambda m: parent(m) == cell and m["msg_type"] == "execute_reply")
        return reply["content"].get("ename", ""), reply["content"].get("evalue", "")


async def warm(record: Any) -> Returning:
    gateway = Returning(record)
    await gateway.connect()
    first = gateway.execute("runs = 0")
    await gateway.idle(first)
    return gateway


def test_a_cell_that_comes_again_runs_once_and_one_that_never_came_runs(a_house: House) -> None:
    async def scene() -> None:
        gateway = await warm(await a_house.kernel())
        message = gateway.session.msg("execute_request", gateway.cell("runs += 1; print(runs)"))
        gateway.link.send("shell", gateway.name, gateway.session.serialize(message))
        cell = str(message["header"]["msg_id"])
        await gateway.idle(cell)
        assert gateway.again("", {}, message=message) == cell
        lost = gateway.again("execute_request", gateway.cell("runs += 10; print(runs)"))
        await gateway.idle(lost)
        assert (gateway.outputs(cell), gateway.outputs(lost)) == ("1\n", "11\n")

    asyncio.run(scene())


def test_a_cell_from_before_the_kernels_start_or_the_interrupt_is_answered_and_not_run(a_house: House) -> None:
    async def scene() -> None:
        gateway = await warm(await a_house.kernel())
        code = gateway.cell("runs += 1")
        name, words = await gateway.error(gateway.again("execute_request", code, age=3600.0))
        assert (name, "was started since" in words) == ("NotRun", True), words
        stopped = gateway.again("execute_request", code, runs=False)
        name, words = await gateway.error(stopped)
        assert (name, "an interrupt or a restart was asked" in words) == ("NotRun", True), words
        assert "nobody knows whether it ran" in words
        seen = gateway.execute("print('runs', runs)")
        await gateway.idle(seen)
        assert gateway.outputs(seen) == "runs 0\n"

    asyncio.run(scene())


def test_a_cell_that_was_sent_before_another_failed_or_the_kernel_was_interrupted_is_not_run(a_house: House) -> None:
    async def scene() -> None:
        gateway = await warm(await a_house.kernel())
        code = gateway.cell("runs += 1")

        async def is_turned_away(sent: float) -> None:
            name, words = await gateway.error(gateway.again("execute_request", code, age=time.time() - sent))
            assert (name, "failed, was interrupted" in words) == ("NotRun", True), words

        # Past the first seconds, in which nothing of before is run anyway.
        failing = gateway.execute("import time; time.sleep(6); sent = time.time(); print(sent, end=''); 1 / 0")
        await gateway.idle(failing)
        await is_turned_away(float(gateway.outputs(failing)))
        sent = time.time()
        interrupt = gateway.session.msg("interrupt_request", {})
        gateway.link.send("control", gateway.name, gateway.session.serialize(interrupt))
        asked = interrupt["header"]["msg_id"]
        await gateway.until(lambda m: parent(m) == asked and m["msg_type"] == "interrupt_reply")
        await is_turned_away(sent)
        seen = gateway.execute("print('runs', runs)")
        await gateway.idle(seen)
        assert gateway.outputs(seen) == "runs 0\n"

    asyncio.run(scene())


def test_a_relay_that_took_the_place_of_another_runs_nothing_that_the_other_may_have_run(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel()
        before = await warm(record)
        message = before.session.msg("execute_request", before.cell("runs += 1"))
        sent = time.time()
        before.link.send("shell", before.name, before.session.serialize(message))
        await before.idle(str(message["header"]["msg_id"]))
        kill_and_wait(record.pid)
        after = await until(lambda: next((r for r in client.read_relay_records(a_house.runtime) if lives(r)), None))
        gateway = Returning(after)
        await gateway.connect()
        cell = gateway.again("", {}, message=message, age=time.time() - sent)
        assert (await gateway.error(cell))[0] == "NotRun"
        seen = gateway.execute("print('runs', runs)")
        await gateway.idle(seen)
        assert gateway.outputs(seen) == "runs 1\n"

    asyncio.run(scene())


def test_an_answer_that_comes_again_answers_its_own_question_and_no_later_one(a_house: House) -> None:
    async def scene() -> None:
        gateway = await warm(await a_house.kernel())
        cell = gateway.execute("print(input('a? ')); print(input('b? '))")

        async def question(prompt: str) -> dict[str, Any]:
            found: dict[str, Any] = await gateway.until(
                lambda m: isinstance(m, dict) and m["content"].get("prompt") == prompt
            )
            return found

        first = await question("a? ")
        gateway.again("input_reply", {"value": "one"}, "stdin", parent=first)
        second = await question("b? ")
        gateway.again("input_reply", {}, "stdin", parent=second, runs=False)
        gateway.again("input_reply", {"value": "one again"}, "stdin", parent=first)
        gateway.again("input_reply", {"value": "two"}, "stdin", parent=second)
        await gateway.idle(cell)
        assert gateway.outputs(cell) == "one\ntwo\n"

    asyncio.run(scene())


def test_who_forgot_ids_says_from_when_on_it_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_SEEN_REQUESTS", 2)
    known: Any = links.Links.__new__(links.Links)
    known._seen, known._forgot_at = {}, -math.inf
    assert [known._was_seen("s", name) for name in ("a", "a", "b", "c", "c")] == [False, True, False, False, True]
    assert time.time() - 60 < known._forgot_at <= time.time()
    assert not known._was_seen("s", "a"), "it is not known any more"
    assert not known._was_seen("guest", "a"), "nobody takes the place of another session's request"
    assert known._was_seen("s", "a")
