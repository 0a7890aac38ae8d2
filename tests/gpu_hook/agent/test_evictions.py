"""Evicted kernels: swapped out, their parts free for others, and not back before they are readmitted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from swapping_node import a_swapping_node

from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts, Ledger, LedgerError
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.gpu_hook.placement.placement import Part

HERE = Path(__file__).parent


@pytest.fixture
def a_ring(an_idle_node: Any) -> Iterator[Any]:
    """A node on the software GPU without overcommit, with a ``start_agent`` of its own."""
    with a_swapping_node(an_idle_node, "--overcommit", "1") as node:
        yield node


@pytest.fixture
def a_program(a_ring: Any, open_holder: Callable[[], Any]) -> subprocess.Popen[str]:
    """A kernel "k" of a whole GPU whose program has memory there."""
    return start(a_ring, open_holder)


def start(a_ring: Any, open_holder: Callable[[], Any], **fields: str) -> subprocess.Popen[str]:
    env = {**os.environ, **open_holder().reserve(hundredths=100, **fields)["grant"]["env"]}
    env["LD_LIBRARY_PATH"] = env.pop("LD_LIBRARY_PATH_PREPEND")
    command = [sys.executable, str(HERE / "swap_program.py"), "2"]
    program = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    a_ring.helpers.append(program)
    assert read(program) == "ready"
    assert ask(program, "work") == "True"
    assert ask(program, "pause") == "True"
    return program


def tell(program: subprocess.Popen[str], word: str) -> None:
    assert program.stdin is not None
    program.stdin.write(word + "\n")
    program.stdin.flush()


def read(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def ask(program: subprocess.Popen[str], word: str) -> str:
    tell(program, word)
    return read(program)


def is_out(node: Any) -> bool:
    status = node.status()
    return bool(status["evicted"] == ["k"] and status["devices"][0]["reserved_hundredths"] == 0)


def test_an_evicted_kernel_leaves_its_parts_and_gets_them_and_its_memory_again(
    a_ring: Any, a_program: subprocess.Popen[str], open_holder: Callable[[], Any]
) -> None:
    holder, other = open_holder(), open_holder()
    assert holder.ask("evict", kernel_id="k")["ok"]
    a_ring.until(lambda: is_out(a_ring), 60)
    residency = a_ring.kernel()["residency"]
    assert (residency["swapped_bytes"] > 0, residency["left_for"]) == (True, "evicted")
    assert other.reserve("other", hundredths=100)["grant"]
    tell(a_program, "verify")  # its calls wait
    a_ring.until(lambda: a_ring.kernel()["residency"]["waits"], 60)
    assert "it was evicted from its GPU" in a_ring.kernel()["residency"]["waits"]["reason"]
    refused = holder.ask("readmit", kernel_id="k")
    assert refused["code"] == "no_room", refused
    assert a_ring.status()["evicted"] == ["k"]
    assert other.ask("release", kernel_id="other")["ok"]
    assert holder.ask("readmit", kernel_id="k")["ok"]
    assert int(read(a_program)) > 0, "every byte is where it was"
    status = a_ring.status()
    assert (status["evicted"], status["devices"][0]["reserved_hundredths"]) == ([], 100)


def test_contexts_of_an_evicted_kernel_leave_a_vacated_device_and_come_back(
    a_ring: Any, a_program: subprocess.Popen[str], open_holder: Callable[[], Any]
) -> None:
    holder, uuid = open_holder(), a_ring.status()["devices"][0]["uuid"]

    def left() -> Any:
        return holder.ask("vacate", devices=[uuid])["devices"]

    assert holder.ask("vacate", devices="all")["code"] == "bad_request"
    assert left() == {uuid: {"k": ""}}, "the gateway has not evicted it"
    assert a_ring.kernel()["residency"]["state"] == "resident"
    assert holder.ask("evict", kernel_id="k")["ok"]
    a_ring.until(lambda: left() == {uuid: {}}, 60)
    assert is_out(a_ring)
    assert a_ring.kernel()["residency"]["state"] == "checkpointed"
    assert a_ring.status()["devices"][0]["used_bytes"] == 0
    assert holder.ask("vacate", devices=[])["devices"] == {}
    assert holder.ask("readmit", kernel_id="k")["ok"]
    assert holder.ask("wake", kernel_id="k")["ok"]  # as a cell does
    assert int(ask(a_program, "verify")) > 0, "every byte is where it was"


def test_a_context_that_cannot_leave_a_vacated_device_is_told_with_the_reason(
    a_ring: Any, open_holder: Callable[[], Any]
) -> None:
    start(a_ring, open_holder, residency="managed")
    holder, uuid = open_holder(), a_ring.status()["devices"][0]["uuid"]
    assert holder.ask("evict", kernel_id="k")["ok"]
    told = a_ring.until(lambda: holder.ask("vacate", devices=[uuid])["devices"][uuid].get("k"), 60)
    assert told == "its residency mode is managed"
    a_ring.until(lambda: is_out(a_ring), 60)


def test_an_evicted_kernel_stays_evicted_over_the_agents_end(
    a_ring: Any, a_program: subprocess.Popen[str], open_holder: Callable[[], Any]
) -> None:
    assert open_holder().ask("evict", kernel_id="k")["ok"]
    a_ring.until(lambda: is_out(a_ring), 60)
    a_ring.end(signal.SIGKILL)
    a_ring.start_agent()
    a_ring.until(lambda: is_out(a_ring), 60)
    assert open_holder().ask("readmit", kernel_id="k")["ok"]
    assert int(ask(a_program, "verify")) > 0


def test_a_kernel_that_was_told_to_leave_keeps_its_parts_over_the_agents_end_until_its_memory_is_out(
    a_ring: Any, a_program: subprocess.Popen[str], open_holder: Callable[[], Any]
) -> None:
    a_program.send_signal(signal.SIGSTOP)  # its memory cannot leave
    assert open_holder().ask("evict", kernel_id="k")["ok"]
    # Its order to leave waits at the stopped process, which carries it out later.
    a_ring.until(lambda: a_ring.kernel()["residency"]["silent_pids"], 60)
    a_ring.end(signal.SIGKILL)
    a_ring.start_agent()
    status = a_ring.status()
    assert (status["evicted"], status["devices"][0]["reserved_hundredths"]) == ([], 100)
    a_program.send_signal(signal.SIGCONT)
    a_ring.until(lambda: is_out(a_ring), 60)
    assert a_ring.kernel()["residency"]["swapped_bytes"] > 0
    assert open_holder().ask("readmit", kernel_id="k")["ok"]
    assert int(ask(a_program, "verify")) > 0


def test_a_kernel_leaves_though_the_agent_was_killed_between_the_record_of_its_move_and_the_order(
    a_ring: Any, a_program: subprocess.Popen[str], open_holder: Callable[[], Any]
) -> None:
    a_ring.end(signal.SIGKILL)
    record = RuntimeDir(a_ring.folder).kernel("k") / "grant.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "is_evicted": True, "is_swapped": True}))
    a_ring.start_agent()
    a_ring.until(lambda: is_out(a_ring), 60)
    residency = a_ring.kernel()["residency"]
    assert (residency["swapped_bytes"] > 0, residency["left_for"]) == (True, "evicted")
    assert open_holder().ask("readmit", kernel_id="k")["ok"]
    assert int(ask(a_program, "verify")) > 0, "every byte is where it was"


def test_the_status_says_why_a_kernel_that_was_told_to_leave_has_not_left(
    a_ring: Any, a_program: subprocess.Popen[str], open_holder: Callable[[], Any]
) -> None:
    a_program.send_signal(signal.SIGSTOP)  # its memory cannot leave
    holder = open_holder()
    assert holder.ask("evict", kernel_id="k")["ok"]
    a_ring.until(lambda: [one["refusal"] for one in a_ring.status()["leaving"]] == ["the process did not answer"], 60)
    (leaving,) = a_ring.status()["leaving"]
    assert (leaving["kernel_id"], leaving["stays_because"]) == ("k", "")
    assert holder.ask("readmit", kernel_id="k")["ok"]
    assert a_ring.status()["leaving"] == []
    a_program.send_signal(signal.SIGCONT)
    assert int(ask(a_program, "verify")) > 0


def test_a_process_that_starts_while_others_have_its_parts_waits_for_them(
    a_ring: Any, open_holder: Callable[[], Any]
) -> None:
    holder, other = open_holder(), open_holder()
    env = {**os.environ, **holder.reserve(hundredths=100)["grant"]["env"]}
    env["LD_LIBRARY_PATH"] = env.pop("LD_LIBRARY_PATH_PREPEND")
    assert holder.ask("evict", kernel_id="k")["is_out"], "it has no process yet"
    assert other.reserve("other", hundredths=100)["grant"]
    command = [sys.executable, str(HERE / "swap_program.py"), "1"]
    program = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    a_ring.helpers.append(program)
    a_ring.until(lambda: a_ring.kernel()["residency"]["waits"], 60)
    kernel = a_ring.kernel()
    assert (kernel["residency"]["state"], kernel["residency"]["lease"]) == ("swapped", "ended")
    assert [device["charged_bytes"] for device in kernel["devices"]] == [0], "it has allocated nothing"
    assert other.ask("release", kernel_id="other")["ok"]
    assert holder.ask("readmit", kernel_id="k")["ok"]
    assert read(program) == "ready"
    assert ask(program, "work") == "True"


def test_a_kernel_whose_copy_the_host_has_no_memory_for_is_not_evicted(
    a_ring: Any, open_holder: Callable[[], Any]
) -> None:
    holder = open_holder()
    assert holder.reserve(hundredths=100)["ok"]
    assert holder.ask("evict", kernel_id="k")["is_out"]
    assert holder.reserve("other", hundredths=100)["ok"]
    refused = holder.ask("evict", kernel_id="other")
    assert (refused["code"], a_ring.status()["evicted"]) == ("no_room", ["k"])
    assert "1.0 GiB of host memory, and 512 MiB is set aside" in refused["message"]


def test_a_kernel_that_keeps_its_memory_cannot_be_evicted(a_ring: Any, open_holder: Callable[[], Any]) -> None:
    holder = open_holder()
    assert holder.reserve(hundredths=100, residency="off")["ok"]
    refused = holder.ask("evict", kernel_id="k")
    assert refused["code"] == "conflict", refused
    assert a_ring.status()["evicted"] == []


def test_parts_that_were_set_aside_are_put_back_only_where_they_fit() -> None:
    ledger = Ledger()
    ledger.set_devices([DeviceFacts("GPU-0", 0, "Stub", 1000)])
    part = Part("GPU-0", 0, 60, 600)
    ledger.reserve("a", [part])
    ledger.set_aside("a")
    ledger.set_aside("a")
    ledger.reserve("b", [part])
    with pytest.raises(LedgerError, match="does not fit"):
        ledger.put_back("a")
    ledger.check()
    assert (ledger.aside, ledger.reserved("GPU-0").hundredths) == (["a"], 60)
    ledger.release("b")
    ledger.put_back("a")
    ledger.check()
    assert (ledger.aside, ledger.reserved("GPU-0").hundredths) == ([], 60)
    ledger.set_aside("a")
    assert ledger.release("a")
    ledger.check()
    assert (ledger.aside, ledger.reserved("GPU-0").hundredths) == ([], 0)
