"""The class of a kernel's failure, and a node that is cordoned because kernels cannot start there."""

from __future__ import annotations

import asyncio
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.nodes.cordons import Cordons
from jupyter_aliquot.gateway.terminations.failures import Failure, failure_of_end, failure_of_start, is_of_node
from jupyter_aliquot.gateway.terminations.node_failures import MOST_FAILURES, WINDOW_SECONDS, NodeFailures
from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.containers.plan import Pull
from jupyter_aliquot.provisioner.engine.client import ContainerEngine
from jupyter_aliquot.provisioner.terminations import Ending, EndingCode

LOG = logging.getLogger(__name__)
ASKED_OR_CALM = {EndingCode.USER, EndingCode.CULLED, EndingCode.STOPPED, EndingCode.WITHDRAWN}


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (errors.WithdrawnError("gone"), None),
        (errors.LimitError("too much"), None),
        (errors.QueueTimeoutError("too long"), None),
        (errors.NeverFitsError("too large"), Failure.USER),
        (errors.DeviceLostError("gpu0"), Failure.DRIVER),
        (errors.InterceptionError("the hook does not hold"), Failure.DRIVER),
        (errors.FolderError("no folder"), Failure.STORAGE),
        (errors.AgentUnavailableError("away"), Failure.NODE),
        (errors.EngineError("the engine answered 500"), Failure.NODE),
        (errors.LaunchError("No module named ipykernel"), Failure.USER),
        (errors.LaunchError("write: No space left on device"), Failure.STORAGE),
        (OSError(28, "No space left on device"), Failure.STORAGE),
        (FileNotFoundError(2, "No such file or directory", "/no/python"), Failure.USER),
        (MemoryError(), Failure.OUT_OF_MEMORY),
    ],
)
def test_a_failed_start_has_a_class(error: BaseException, want: Failure | None) -> None:
    assert failure_of_start(error) is want


@pytest.mark.parametrize("code", EndingCode)
def test_each_end_by_itself_has_a_class_and_no_end_that_was_asked_for(code: EndingCode) -> None:
    found = failure_of_end(Ending(code, "why", 0.0))
    assert (found is None) == (code in ASKED_OR_CALM or code is EndingCode.START_FAILED)
    assert failure_of_end(Ending(code, "why", 0.0), is_for_quota=True) is Failure.EVICTION


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ("OSError: [Errno 28] No space left on device", Failure.STORAGE),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", Failure.DRIVER),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", Failure.OUT_OF_MEMORY),
        ("ZeroDivisionError: division by zero", Failure.USER),
    ],
)
def test_the_last_words_of_a_process_tell_more_than_its_exit_code(words: str, want: Failure) -> None:
    assert failure_of_end(Ending(EndingCode.EXITED, f"the kernel exited by itself with code 1: {words}", 0.0)) is want
    assert failure_of_end(Ending(EndingCode.OOM, words, 0.0)) is Failure.OUT_OF_MEMORY


def test_errors_of_a_users_own_code_and_parts_that_are_away_speak_not_against_the_node() -> None:
    mine = [errors.LaunchError("No space left on device"), errors.InterceptionError("x"), errors.FolderError("x")]
    mine += [errors.RequestError("x"), OSError(28, "No space left on device"), errors.RelayRefusedError("x")]
    mine += [errors.EngineError("no such image")]
    away = [errors.AgentUnavailableError("x"), errors.RelayUnavailableError("x"), errors.DeviceLostError("x")]
    assert not any(is_of_node(one) for one in (*mine, *away))
    assert all(
        is_of_node(one) for one in (errors.EngineUnavailableError("x"), errors.RelayError("x"), errors.AgentError("x"))
    )


class AnEngine(BaseHTTPRequestHandler):
    """An engine that answers, and refuses each image."""

    def do_GET(self) -> None:
        is_version = self.path == "/version"
        body = b'{"ApiVersion": "1.44"}' if is_version else b'{"message": "exec: \\"python\\": not found in $PATH"}'
        self.send_response(200 if is_version else 400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Write nothing. Called by http.server."""


def test_an_engine_that_refuses_an_image_speaks_not_against_the_node_and_one_that_is_away_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), AnEngine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    engine = ContainerEngine(f"tcp://127.0.0.1:{server.server_port}")
    try:
        with pytest.raises(errors.EngineError, match=r"refused.*python") as refused:
            asyncio.run(engine.image("broken", Pull.MISSING, lambda _: None))
    finally:
        engine.close()
        server.shutdown()
        thread.join()
        server.server_close()
    assert not is_of_node(refused.value)
    away = ContainerEngine(f"unix://{tmp_path}/engine.sock")
    try:
        with pytest.raises(errors.EngineError, match="does not answer") as silent:
            asyncio.run(away.facts())
    finally:
        away.close()
    assert is_of_node(silent.value)


class Clock:
    """A clock that a test sets."""

    seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    wall = now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
    # A cordon is written in a thread; without a file there is nothing to write, but the thread is.
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        await task


@pytest.fixture
def node() -> Any:
    clock = Clock()
    cordons = Cordons(None, clock, LOG)
    return clock, cordons, NodeFailures(cordons, lambda: "n1", clock, LOG)


async def test_a_node_on_which_several_kernels_cannot_start_is_cordoned_with_the_reason(node: Any) -> None:
    _, cordons, failures = node
    for number in range(MOST_FAILURES - 1):
        failures.note(f"k{number}", Failure.NODE)
    for _ in range(9):
        failures.note("k0", Failure.NODE)
    await settle()
    assert cordons.of("n1") is None, "one kernel counts once, however often it is started"
    failures.note("another", Failure.DRIVER)
    await settle()
    cordon = cordons.of("n1")
    assert (cordon.by, cordon.reason) == ("", "3 kernels could not start there within 10 min (driver, node)")
    assert cordon.clause("n1").startswith("the gateway has cordoned the node n1")
    await cordons.uncordon("n1", "ada")
    failures.note("one more", Failure.NODE)
    await settle()
    assert cordons.of("n1") is None, "the count begins anew"


async def test_failures_that_are_far_apart_cordon_no_node(node: Any) -> None:
    clock, cordons, failures = node
    for number in range(3 * MOST_FAILURES):
        failures.note(f"k{number}", Failure.NODE)
        clock.seconds += WINDOW_SECONDS / (MOST_FAILURES - 1) + 1
    await settle()
    assert cordons.of("n1") is None


async def test_a_drain_of_an_administrator_is_not_replaced(node: Any) -> None:
    _, cordons, failures = node
    await cordons.cordon("n1", "ada", "fan", is_draining=True)
    for number in range(MOST_FAILURES):
        failures.note(f"k{number}", Failure.NODE)
    await settle()
    assert cordons.of("n1").by == "ada"
