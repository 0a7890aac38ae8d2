"""Stops that keep kernels, in every program that can be our server; and two gateways together."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from quick_start import WITHOUT_PAGES, program

PLAIN = ("--no-browser",)  # plain Jupyter programs, with Aliquot enabled by its installation


@pytest.fixture
def is_left(a_machine: Any, eventually: Callable[..., Any]) -> Callable[[str], bool]:
    """Return a check whether the kernel goes on after its server's end: all of it, or nothing."""

    def look(kernel_id: str) -> bool:
        def found() -> set[bool]:
            return {kernel_id in there for there in (a_machine.relays(), a_machine.processes(), a_machine.records())}

        eventually(lambda: len(found()) == 1)
        return found() == {True}

    return look


def stopped_by_rest(gateway: Any) -> None:
    gateway.call("POST", "/api/shutdown")
    gateway.process.wait(90)


def stopped_by(number: int) -> Callable[[Any], None]:
    return lambda gateway: gateway.stop(number)


@pytest.mark.parametrize(
    ("options", "stop", "want"),
    [
        ((), stopped_by(signal.SIGINT), False),
        ((), stopped_by_rest, False),
        (("--Aliquot.keep_kernels=always",), stopped_by_rest, True),
        (("--Aliquot.keep_kernels=never",), stopped_by(signal.SIGTERM), False),
        (("--Aliquot.keep_kernels=never",), stopped_by(signal.SIGKILL), False),
    ],
    ids=["Ctrl-C", "POST /api/shutdown", "always and POST /api/shutdown", "never and SIGTERM", "never and SIGKILL"],
)
def test_the_stop_and_the_knob_decide(
    options: tuple[str, ...], stop: Callable[[Any], None], want: bool, a_machine: Any, open_tab: Any, is_left: Any
) -> None:
    if stop is stopped_by_rest:  # REST cannot stop `aliquot serve`
        gateway = a_machine.serve(*options, *PLAIN, WITHOUT_PAGES, program=program("jupyter_server")).wait_until_up()
    else:
        gateway = a_machine.serve(*options).wait_until_up()
    kernel_id = gateway.start_kernel()
    assert open_tab(gateway, kernel_id).run("print(1)") == "1"
    stop(gateway)
    assert is_left(kernel_id) is want


def test_plain_jupyterlab_keeps_kernels_at_sigterm(a_machine: Any, open_tab: Any, is_left: Any) -> None:
    start = program("jupyterlab", with_lab=True)
    gateway = a_machine.serve(*PLAIN, program=start).wait_until_up()
    kernel_id = gateway.start_kernel()
    tab = open_tab(gateway, kernel_id)
    assert tab.run("x = 5; print(x)") == "5"
    gateway.stop(signal.SIGTERM)
    assert is_left(kernel_id)
    after = a_machine.succeed(gateway, *PLAIN, program=start)
    assert tab.reconnect(after).run("print(x)") == "5"


def test_two_gateways_keep_their_kernels_apart(a_machine: Any, eventually: Callable[..., Any]) -> None:
    gateways = [a_machine.serve(name="").wait_until_up() for _ in range(2)]
    kernels = [gateway.start_kernel() for gateway in gateways]
    for gateway in gateways:
        gateway.stop(signal.SIGKILL)
    names = sorted(path.name for path in a_machine.folder.glob("data/aliquot/gateways/*"))
    assert len(names) == 2
    assert names[1] == f"{names[0]}-2"
    # In their order, each gets its own again.
    after = [a_machine.serve(name="", port=gateway.port).wait_until_up() for gateway in gateways]
    assert [gateway.kernel_ids() for gateway in after] == [{kernel_id} for kernel_id in kernels]


def test_a_name_that_is_taken_ends_the_second_server_with_the_reason(a_machine: Any) -> None:
    first = a_machine.serve().wait_until_up()
    second = a_machine.serve()
    assert second.process.wait(90) == 1
    assert f"in use by process {first.process.pid}" in second.log.read_text()


def test_a_successor_that_starts_while_the_old_one_stops_gets_its_kernels(a_machine: Any, open_tab: Any) -> None:
    gateway = a_machine.serve(name="").wait_until_up()
    kernel_id = gateway.start_kernel()
    tab = open_tab(gateway, kernel_id)
    assert tab.run("x = 5; print(x)") == "5"
    gateway.process.send_signal(signal.SIGTERM)
    after = a_machine.serve(name="").wait_until_up()
    assert tab.reconnect(after).run("print(x)") == "5"
    gateway.process.wait(90)


def test_damaged_state_is_set_aside_and_running_kernels_are_found_by_their_relays(
    a_machine: Any, open_tab: Any
) -> None:
    gateway = a_machine.serve().wait_until_up()
    body = {"path": "a.ipynb", "name": "a.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
    kernel_id = gateway.call("POST", "/api/sessions", body)["kernel"]["id"]
    tab = open_tab(gateway, kernel_id)
    assert tab.run("x = 5; print(x)") == "5"
    gateway.stop(signal.SIGKILL)
    state = a_machine.folder / "data" / "aliquot" / "gateways" / "test"
    (state / "kernels" / f"{kernel_id}.json").write_text("{")
    (state / "sessions.sqlite").write_bytes(b"no database" * 100)
    after = a_machine.succeed(gateway)
    assert tab.reconnect(after).run("print(x)") == "5"
    assert after.call("GET", "/api/sessions") == []
    log = after.log.read_text()
    assert "unreadable reason=" in log
    assert "sessions=unreadable" in log
    assert (state / "kernels" / "unreadable" / f"{kernel_id}.json").exists()
    with sqlite3.connect(state / "sessions.sqlite") as database:
        assert database.execute("PRAGMA quick_check").fetchone() == ("ok",)
    database.close()


def test_without_a_state_folder_kernels_end_with_their_server_which_says_so(a_machine: Any, is_left: Any) -> None:
    nowhere = a_machine.folder / "nowhere"
    nowhere.write_text("a file, where a folder is needed")
    gateway = a_machine.serve(f"--Aliquot.state_dir={nowhere}").wait_until_up()
    kernel_id = gateway.start_kernel()
    said = gateway.call("GET", "/aliquot/api/v1/status")["node"]["message"]
    assert "end with it, because it can keep no state" in said
    assert os.fspath(nowhere) in said
    gateway.stop(signal.SIGTERM)
    assert not is_left(kernel_id)


def test_a_relay_that_was_killed_meanwhile_is_replaced(a_machine: Any, open_tab: Any, eventually: Any) -> None:
    gateway = a_machine.serve().wait_until_up()
    kernel_id = gateway.start_kernel()
    tab = open_tab(gateway, kernel_id)
    assert tab.run("x = 5; print(x)") == "5"
    gateway.stop(signal.SIGKILL)
    a_machine.end_relay_host()
    relay = a_machine.relays()[kernel_id]
    os.kill(relay.pid, signal.SIGKILL)
    eventually(lambda: a_machine.relays() == {})
    after = a_machine.succeed(gateway)
    assert tab.reconnect(after).run("print(x)") == "5"
