"""Terminations: each way in which a kernel of this server ends leaves its own reason."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.kernels import manager as kernel_manager
from jupyter_aliquot.gateway.kernels.services import KernelServices
from jupyter_aliquot.gateway.terminations.recorder import KernelEndings
from jupyter_aliquot.gateway.terminations.store import EndedKernel, Endings
from jupyter_aliquot.provisioner.terminations import EndingCode, asked_by_rule

from .conftest import write_spec

LABEL = "work/a.ipynb"


@pytest.fixture
def kernelspecs(kernelspecs: Path) -> Path:
    fault = "import os, sys; sys.stderr.write('about to fail\\n'); sys.stderr.flush(); os.kill(os.getpid(), 11)"
    write_spec(kernelspecs, "faulty.gpu-0.25", [sys.executable, "-c", fault, "{connection_file}"], "0.25")
    return kernelspecs


@pytest.fixture
def services(services: KernelServices) -> KernelServices:
    log = logging.getLogger("test")
    endings = KernelEndings(Endings(None, SystemClock(), log), SystemClock(), log, lambda _: LABEL)
    return replace(services, endings=endings)


@pytest.fixture
def remembered(a_gateway: Any, services: KernelServices, monkeypatch: pytest.MonkeyPatch) -> Endings:
    monkeypatch.setattr(kernel_manager, "current_user", lambda: User("alice", "user"))
    assert services.endings is not None
    return services.endings.remembered


@pytest.fixture
def start(a_gateway: Any) -> Callable[[str], Any]:
    async def start(name: str) -> str:
        return str(await a_gateway.kernels.start_kernel(kernel_name=name))

    return start


def only(endings: Endings) -> EndedKernel:
    [ended] = endings.listed()
    return ended


async def test_its_owner_ended_it(a_gateway: Any, remembered: Endings, start: Any) -> None:
    kernel_id = await start("light.gpu-0.25")
    await a_gateway.kernels.get_kernel(kernel_id).ready
    await a_gateway.kernels.shutdown_kernel(kernel_id, now=True)
    ended = only(remembered)
    assert (ended.id, ended.name, ended.owner, ended.label) == (kernel_id, "light.gpu-0.25", "alice", LABEL)
    assert ended.request is not None
    assert ended.request.gpus.hundredths == 25
    assert (ended.ending.code, ended.ending.by) == (EndingCode.USER, "alice")
    assert ended.ending.signal in (2, 9), "an interrupt comes before the end"
    assert ended.ending.message == "the kernel was ended by its owner alice"


async def test_an_administrator_ended_it(
    a_gateway: Any, remembered: Endings, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_id = await start("python3")
    monkeypatch.setattr(kernel_manager, "current_user", lambda: User("ada", "admin"))
    await a_gateway.kernels.shutdown_kernel(kernel_id)
    ended = only(remembered)
    assert (ended.owner, ended.request, ended.ending.by) == ("alice", None, "ada")
    assert ended.ending.message == "the kernel was ended by the administrator ada"


async def test_a_rule_ended_it_and_speaks_for_that_kernel_alone(
    a_gateway: Any, remembered: Endings, start: Any
) -> None:
    kernel_id = await start("light.gpu-0.25")
    await a_gateway.kernels.end_kernel(kernel_id, asked_by_rule(EndingCode.CULLED, "after 60 min idle"), now=True)
    assert only(remembered).ending.code is EndingCode.CULLED
    second = await start("light.gpu-0.25")
    await a_gateway.kernels.get_kernel(second).ready
    await a_gateway.kernels.shutdown_kernel(second, now=True)
    assert [kernel.ending.code.value for kernel in remembered.listed()] == ["user", "culled"]


async def test_a_kernel_that_waited_was_withdrawn(a_gateway: Any, remembered: Endings, start: Any, until: Any) -> None:
    await start("light.gpu-0.5")
    kernel_id = await start("python3.gpu-1")
    await until(lambda: a_gateway.kernels.kernel_state(kernel_id)[0] == "queued")
    await a_gateway.kernels.shutdown_kernel(kernel_id)
    ending = only(remembered).ending
    assert (ending.code, ending.by) == (EndingCode.WITHDRAWN, "alice")
    assert ending.message == "the kernel was ended by its owner alice while it waited"


async def test_a_start_that_failed_keeps_its_reason_until_it_is_tried_again(
    a_gateway: Any, remembered: Endings, start: Any, until: Any
) -> None:
    kernel_id = await start("broken.gpu-0.5")
    await until(lambda: remembered.of(kernel_id) is not None)
    ending = only(remembered).ending
    assert ending.code is EndingCode.START_FAILED
    assert ending.message.startswith(
        "the kernel could not be started: '/nonexistent/program' cannot be started: not found"
    )
    assert a_gateway.kernels.kernel_state(kernel_id) == ("ended", ending.message)
    # Until then the kernel still counts as pending, and a restart leaves it alone.
    await until(lambda: kernel_id not in a_gateway.kernels._pending_kernels)
    await a_gateway.kernels.restart_kernel(kernel_id)
    assert remembered.of(kernel_id) is None
    await until(lambda: remembered.of(kernel_id) is not None)
    await a_gateway.kernels.shutdown_kernel(kernel_id)
    assert only(remembered).ending.code is EndingCode.START_FAILED, "to clear it away is not why it ended"


async def test_a_plain_start_that_failed_is_remembered_too(a_gateway: Any, remembered: Endings, start: Any) -> None:
    with pytest.raises(Exception, match=r"No such file|not found"):
        await start("broken")
    assert only(remembered).ending.code is EndingCode.START_FAILED


@pytest.mark.parametrize(
    ("name", "want_code", "want_words"),
    [
        ("ending.gpu-0.5", EndingCode.EXITED, "the kernel exited by itself with code 3"),
        ("faulty.gpu-0.25", EndingCode.CRASH, "the kernel was ended by signal 11 (segmentation fault) in native code"),
    ],
)
async def test_a_kernel_that_keeps_dying_says_how_while_it_is_restarted_and_when_that_is_given_up(
    name: str, want_code: EndingCode, want_words: str, a_gateway: Any, remembered: Endings, start: Any, until: Any
) -> None:
    kernel_id = await start(name)
    kernel = a_gateway.kernels.get_kernel(kernel_id)
    await until(kernel.ready.done)
    await until(lambda: kernel_id not in a_gateway.kernels._pending_kernel_tasks)
    kernel._restarter.restart_limit, kernel._restarter.time_to_dead = 1, 0.2
    kernel._restarter.stop()
    kernel._restarter.start()
    await until(lambda: kernel.last_crash is not None)
    assert kernel.last_crash.code is want_code
    assert want_words in kernel.last_crash.message
    await until(lambda: kernel_id not in a_gateway.kernels, 90)
    ending = only(remembered).ending
    assert ending.code is want_code
    assert want_words in ending.message
    assert ending.message.endswith("; 1 restarts did not help")
    await until(lambda: a_gateway.held() == set())


async def test_a_server_that_stops_ends_its_kernels_with_itself(
    a_gateway: Any, remembered: Endings, start: Any, until: Any
) -> None:
    running, waiting = await start("light.gpu-0.5"), await start("python3.gpu-1")
    await a_gateway.kernels.get_kernel(running).ready
    await until(lambda: a_gateway.kernels.kernel_state(waiting)[0] == "queued")
    await a_gateway.kernels.shutdown_all(now=True)
    assert {kernel.id: kernel.ending.code.value for kernel in remembered.listed()} == {
        running: "stopped",
        waiting: "stopped",
    }


async def test_a_kernel_that_could_not_be_ended_has_no_ending(
    a_gateway: Any, remembered: Endings, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_id = await start("light.gpu-0.25")
    kernel = a_gateway.kernels.get_kernel(kernel_id)
    await kernel.ready

    async def refuse(**_: Any) -> None:
        raise OSError("it would not go")

    with monkeypatch.context() as patch:
        patch.setattr(kernel, "shutdown_kernel", refuse)
        with pytest.raises(Exception, match=r".+"):
            await a_gateway.kernels.shutdown_kernel(kernel_id, now=True)
    assert remembered.listed() == ()


async def test_a_restart_that_its_owner_asked_for_is_no_end(
    a_gateway: Any, remembered: Endings, start: Any, jp_fetch: Any
) -> None:
    kernel_id = await start("python3.gpu-0.25")
    kernel = a_gateway.kernels.get_kernel(kernel_id)
    await kernel.ready
    path = ("api", "kernels", kernel_id, "restart")
    answer = await jp_fetch(*path, method="POST", body=json.dumps({}), request_timeout=120)
    assert answer.code == 200
    assert remembered.listed() == ()
    assert kernel.last_crash is None
