"""Kept output of cells: pure, with numbers as times."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gateway.replay.cells import Budget, KernelCells
from jupyter_aliquot.gateway.replay.seen_ids import SeenMessages
from jupyter_aliquot.gateway.replay.store import CellOutputs
from jupyter_aliquot.provisioner.relay.client.link import KnownCell
from jupyter_aliquot.provisioner.relay.wire.messages import Signer

SIGNER = Signer("key", "hmac-sha256", "kernel")


class Kernel:
    """A scripted kernel that passes its messages to its kept cells."""

    def __init__(self, messages: int = 10_000, kept_bytes: int = 1 << 20) -> None:
        self.budget = Budget(kept_bytes, messages, 1 << 30, seconds=60)
        self.cells = KernelCells(self.budget, lambda: None)
        self.now = 1_000_000.0
        self._number = 0

    def ask(self, msg_id: str, cell_id: str | None = "cell", silent: bool = False) -> None:
        frames = self._frames("execute_request", {"code": "x", "silent": silent}, {}, msg_id)
        frames[4] = json.dumps({} if cell_id is None else {"cellId": cell_id}).encode()
        self.cells.asked(frames, self.now)

    def say(self, parent: str, kind: str, **content: Any) -> str:
        self._number += 1
        msg_id = f"kernel_1_{self._number}"
        header = {"msg_id": parent, "msg_type": "execute_request"}
        self.cells.told(self._frames(kind, content, header, msg_id), self.now)
        return msg_id

    def write(self, parent: str, text: str, name: str = "stdout") -> str:
        return self.say(parent, "stream", name=name, text=text)

    def finish(self, parent: str) -> None:
        self.say(parent, "status", execution_state="idle")

    def report(self, idle_since: float | None = None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cells.report(self.now, idle_since).text())
        return found

    def cell(self) -> dict[str, Any]:
        [found] = self.report()["cells"]
        return dict(found)

    def shown(self) -> list[Any]:
        return [message["content"] for message in self.cell()["messages"]]

    @staticmethod
    def _frames(kind: str, content: dict[str, Any], parent: dict[str, Any], msg_id: str) -> list[Any]:
        return list(SIGNER.message(kind, content, json.dumps(parent).encode(), msg_id))


@pytest.fixture
def a_kernel() -> Kernel:
    kernel = Kernel()
    kernel.ask("a")
    return kernel


def test_a_cell_is_kept_with_its_name_its_code_and_all_that_it_showed(a_kernel: Kernel) -> None:
    a_kernel.say("a", "execute_input", code="x", execution_count=3)
    a_kernel.write("a", "one\n")
    a_kernel.say("a", "display_data", data={"text/plain": "picture"}, metadata={}, transient={})
    cell = a_kernel.cell()
    assert (cell["msg_id"], cell["cell_id"], cell["is_open"], cell["omitted_messages"]) == ("a", "cell", True, 0)
    assert [m["header"]["msg_type"] for m in cell["messages"]] == ["execute_input", "stream", "display_data"]
    assert {m["parent_header"]["msg_id"] for m in cell["messages"]} == {"a"}
    a_kernel.finish("a")
    assert not a_kernel.cell()["is_open"]


def test_lines_of_one_stream_are_joined_and_streams_keep_their_order(a_kernel: Kernel) -> None:
    for text, name in [("1\n", "stdout"), ("2\n", "stdout"), ("no\n", "stderr"), ("3\n", "stdout")]:
        a_kernel.write("a", text, name)
    assert [each["text"] for each in a_kernel.shown()] == ["1\n2\n", "no\n", "3\n"]


def test_a_progress_bar_takes_the_room_of_its_last_line(a_kernel: Kernel) -> None:
    for percent in range(100):
        a_kernel.write("a", f"\r{percent:3} %")
    assert a_kernel.shown() == [{"name": "stdout", "text": "\r 99 %"}]


def test_what_is_cleared_is_not_kept(a_kernel: Kernel) -> None:
    a_kernel.write("a", "old")
    a_kernel.say("a", "clear_output", wait=False)
    assert a_kernel.shown() == []
    a_kernel.write("a", "old again")
    a_kernel.say("a", "clear_output", wait=True)
    assert [each.get("text") for each in a_kernel.shown()] == ["old again", None], "it clears with what comes next"
    a_kernel.write("a", "new")
    assert [each["text"] for each in a_kernel.shown()] == ["new"]


def test_of_a_displays_updates_the_last_one_is_kept(a_kernel: Kernel) -> None:
    a_kernel.say("a", "display_data", data={}, metadata={}, transient={"display_id": "bar"})
    for done in range(50):
        a_kernel.say(
            "a", "update_display_data", data={"text/plain": done}, metadata={}, transient={"display_id": "bar"}
        )
    assert [each["data"] for each in a_kernel.shown()] == [{}, {"text/plain": 49}]


def test_a_picture_that_is_drawn_again_and_again_stays_with_its_last_drawing() -> None:
    kernel = Kernel(kept_bytes=1_000_000)
    kernel.ask("a")
    kernel.say("a", "display_data", data={"image/png": "first"}, metadata={}, transient={"display_id": "ä"})
    for number in range(30):
        picture = {"image/png": "x" * 100_000 + str(number)}
        kernel.say("a", "update_display_data", data=picture, metadata={}, transient={"display_id": "ä"})
    assert [each["data"]["image/png"][100_000:] for each in kernel.shown()] == ["", "29"]
    assert kernel.cell()["omitted_messages"] == 0


def test_beyond_the_bound_the_first_messages_go_and_are_counted() -> None:
    kernel = Kernel(messages=3)
    kernel.ask("a")
    kernel.say("a", "execute_input", code="x", execution_count=1)
    for number in range(8):
        kernel.say("a", "display_data", data={"text/plain": number}, metadata={})
    cell = kernel.cell()
    assert cell["omitted_messages"] == 5
    assert [m["content"].get("data") for m in cell["messages"]] == [None, *({"text/plain": n} for n in (5, 6, 7))]


def test_what_is_kept_is_bounded_whatever_a_kernel_prints() -> None:
    kernel = Kernel(kept_bytes=200_000)
    for run in range(40):
        kernel.ask(f"run-{run}", cell_id=f"cell-{run}")
        for _ in range(20):
            kernel.write(f"run-{run}", "x" * 5_000)
        kernel.finish(f"run-{run}")
    assert kernel.cells.bytes <= 200_000
    assert kernel.budget.used == kernel.cells.bytes
    assert sum(cell["omitted_messages"] for cell in kernel.report()["cells"]) > 0
    kernel.say("run-39", "display_data", data={"image/png": "x" * 300_000}, metadata={})
    assert kernel.cells.bytes <= 200_000
    assert kernel.report()["cells"][-1]["messages"], "one that is too large takes no other's room"


def held_by(act: Callable[[], None]) -> int:
    """Return the bytes that are still allocated by us after ``act``, not by other threads of the tests."""
    ours = [tracemalloc.Filter(True, "*/gateway/*"), tracemalloc.Filter(True, __file__)]
    tracemalloc.start()
    try:
        act()
        return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)
    finally:
        tracemalloc.stop()


def test_what_was_cleared_or_replaced_takes_no_memory(a_kernel: Kernel) -> None:
    picture = {"data": {"image/png": "x" * 20_000}, "metadata": {}}

    def animate() -> None:
        for _ in range(60):
            a_kernel.say("a", "update_display_data", **picture, transient={"display_id": "one"})
            a_kernel.say("a", "clear_output", wait=True)
            a_kernel.say("a", "display_data", **picture)

    assert held_by(animate) < 20 * 20_000
    assert a_kernel.cells.bytes < 3 * 20_000


def test_cells_that_are_forgotten_take_no_memory() -> None:
    kernel = Kernel()

    def work_for_a_day() -> None:
        for run in range(400):
            kernel.ask(f"run-{run}", cell_id=f"cell-{run}")
            kernel.write(f"run-{run}", "text")
            kernel.finish(f"run-{run}")
            kernel.now += 200
            kernel.cells.forget_old(kernel.now)
        kernel.ask("last")
        kernel.write("last", "text")
        assert len(kernel.cells._order) <= 2, "what is before it is gone"

    assert held_by(work_for_a_day) < 20_000
    kernel.write("last", " and more")
    assert kernel.shown() == [{"name": "stdout", "text": "text and more"}]


def test_names_that_a_kernel_makes_up_take_no_memory_without_end() -> None:
    kernel = Kernel(messages=10, kept_bytes=100_000)
    kernel.ask("a")

    def make_up_names() -> None:
        for number in range(60):
            name = f"{number}" + "x" * 20_000
            kernel.ask(name, cell_id=None)
            kernel.say(name, "status", execution_state="busy")
            kernel.say("a", "update_display_data", data={}, metadata={}, transient={"display_id": name})
            frames = SIGNER.message("stream", {"name": "stdout", "text": ""}, b"{}", name)
            kernel.cells.told(frames, kernel.now)

    assert held_by(make_up_names) < 20 * 20_000
    assert kernel.cell()["msg_id"] == "a"


def test_a_header_of_no_known_form_changes_nothing(a_kernel: Kernel) -> None:
    frames = SIGNER.message("stream", {}, json.dumps({"msg_id": "a", "msg_type": "execute_request"}).encode())
    frames[2] = json.dumps({"msg_id": ["a"], "msg_type": ["stream"]}).encode()
    a_kernel.cells.told(frames, a_kernel.now)
    assert a_kernel.shown() == []


def test_a_figure_that_no_browser_can_read_is_left_out_and_counted(a_kernel: Kernel) -> None:
    a_kernel.say("a", "display_data", data={"application/json": float("nan")}, metadata={})
    a_kernel.write("a", "text")
    assert [each["text"] for each in a_kernel.shown()] == ["text"]
    assert a_kernel.cell()["omitted_messages"] == 1


def test_what_comes_after_a_kernels_end_takes_no_room_of_the_others() -> None:
    budget = Budget(1 << 20, 1000, 300_000, seconds=60)
    outputs = CellOutputs(budget)
    kernel = Kernel()
    kernel.cells = outputs._kernels["ended"] = KernelCells(budget, outputs.fit)
    outputs.close("ended")
    kernel.write("a", "its last words")
    assert budget.used == 0


def test_all_kernels_together_have_one_bound(a_kernel: Kernel) -> None:
    budget = Budget(1 << 20, 1000, 300_000, seconds=60)
    outputs = CellOutputs(budget)
    kernels = [Kernel(), Kernel()]
    for number, kernel in enumerate(kernels):
        kernel.cells = outputs._kernels[str(number)] = KernelCells(budget, outputs.fit)
    kernels[0].ask("a")
    kernels[0].write("a", "small")
    kernels[1].ask("b")
    for _ in range(100):
        kernels[1].say("b", "display_data", data={"text/plain": "x" * 9_000}, metadata={})
    assert budget.used <= 300_000
    assert kernels[0].shown() == [{"name": "stdout", "text": "small"}], "who keeps the most gives the room"
    outputs.close("0")
    outputs.close("1")
    assert budget.used == 0


def test_a_cell_is_forgotten_some_time_after_its_end(a_kernel: Kernel) -> None:
    a_kernel.write("a", "text")
    a_kernel.now += 600
    assert a_kernel.shown(), "it still runs"
    a_kernel.finish("a")
    a_kernel.now += 61
    assert a_kernel.report()["cells"] == []
    assert a_kernel.budget.used == 0


def test_a_kernels_end_forgets_all(a_kernel: Kernel) -> None:
    a_kernel.write("a", "text")
    a_kernel.cells.clear()
    assert a_kernel.report() == {"is_own": True, "cells": [], "seen": {"ranges": {}, "ids": []}, "not_received": []}
    assert a_kernel.budget.used == 0


def test_of_one_cell_the_last_run_counts(a_kernel: Kernel) -> None:
    a_kernel.finish("a")
    a_kernel.ask("b")
    a_kernel.ask("silent", silent=True)
    assert [cell["msg_id"] for cell in a_kernel.report()["cells"]] == ["b"]


def test_a_cell_from_before_is_known_by_the_relays_word_and_whole_once_its_beginning_comes() -> None:
    kernel = Kernel()
    question = {"prompt": "name? ", "password": False}
    kernel.cells.knows([KnownCell("a", "cell", 999_000.0, True, question)], kernel.now)
    cell = kernel.cell()
    assert (cell["cell_id"], cell["is_open"], cell["input"], cell["omitted_messages"]) == ("cell", True, question, 1)
    kernel.cells.answered()
    kernel.say("a", "execute_input", code="x", execution_count=1)
    assert (kernel.cell()["input"], kernel.cell()["omitted_messages"]) == (None, 0)
    kernel.cells.knows([], kernel.now)
    assert not kernel.cell()["is_open"], "what the relay leaves out is over"


def test_a_cell_on_its_way_to_the_relay_is_not_over_because_another_asks_its_user(a_kernel: Kernel) -> None:
    a_kernel.ask("b", "next")
    a_kernel.cells.knows([KnownCell("a", "cell", 999_000.0, True, {"prompt": "", "password": False})], a_kernel.now)
    assert [cell["is_open"] for cell in a_kernel.report()["cells"]] == [True, True]
    a_kernel.cells.knows([KnownCell("b", "next", 999_000.0, True)], a_kernel.now)
    assert [cell["is_open"] for cell in a_kernel.report()["cells"]] == [False, True]


def test_a_cell_whose_end_nobody_fetched_is_over_when_the_kernel_rests(a_kernel: Kernel) -> None:
    assert a_kernel.report(idle_since=a_kernel.now - 1)["cells"][0]["is_open"], "it was asked for after that"
    assert not a_kernel.report(idle_since=a_kernel.now + 1)["cells"][0]["is_open"]


def test_all_ids_that_came_are_told_those_of_dropped_messages_too(a_kernel: Kernel) -> None:
    ids = [a_kernel.write("a", "text") for _ in range(5)]
    a_kernel.say("a", "clear_output", wait=False)
    assert ids[0] == "kernel_1_1"
    assert a_kernel.report()["seen"] == {"ranges": {"kernel_1_": [[1, 6]]}, "ids": []}


def test_seen_ids_stay_few_whatever_names_a_kernel_gives() -> None:
    seen = SeenMessages(100)
    for number in range(0, 4000, 2):
        seen.add(f"session_{number}")
        seen.add(f"{number:x}-hex")
    report = seen.report()
    assert len(report["ranges"]["session_"]) <= 64
    assert report["ranges"]["session_"][-1] == (3998, 3998)
    assert len(report["ids"]) == 100


def test_what_cannot_be_read_is_left_out_and_counted(a_kernel: Kernel) -> None:
    frames = SIGNER.message("display_data", {}, json.dumps({"msg_id": "a", "msg_type": "execute_request"}).encode())
    frames[5] = b"no JSON"
    a_kernel.cells.told(frames, a_kernel.now)
    a_kernel.cells.told(frames[:3], a_kernel.now)
    assert (a_kernel.shown(), a_kernel.cell()["omitted_messages"]) == ([], 1)
