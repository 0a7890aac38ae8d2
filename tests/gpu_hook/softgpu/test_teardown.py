"""An ended process leaves its memory to a driver that takes its time, where a setting says so."""

from __future__ import annotations

import time
from typing import Any

HOLD = "start(); check(alloc(48 * MIB)[0]); say('held'); wait_for_go()"
ASK = """
import time
start()
since = time.monotonic()
while alloc(32 * MIB)[0]:
    time.sleep(0.01)
say(time.monotonic() - since)
"""


def test_memory_of_a_killed_process_is_in_use_until_its_teardown_is_over(make_machine: Any) -> None:
    machine = make_machine(TEARDOWN_MS="60000")
    holder = machine.popen(HOLD)
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate(timeout=30)
    for _ in range(2):
        assert machine.run("start(); say(free_bytes() // MIB, alloc(32 * MIB)[0])") == "16 2"


def test_it_takes_as_long_as_the_setting_says_from_the_first_look(make_machine: Any) -> None:
    machine = make_machine(TEARDOWN_MS="500")
    holder = machine.popen(HOLD)
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate(timeout=30)
    start = time.monotonic()
    assert float(machine.run(ASK)) >= 0.49
    assert time.monotonic() - start < 30


def test_without_it_memory_is_free_at_once(make_machine: Any) -> None:
    machine = make_machine()
    holder = machine.popen(HOLD)
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate(timeout=30)
    assert machine.run("start(); say(free_bytes() // MIB, alloc(64 * MIB)[0])") == "64 0"
