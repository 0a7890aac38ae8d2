"""A start that fails by the infrastructure's fault is tried again, a few times; any other is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.kernels.kernel import ManagedKernel
from jupyter_aliquot.provisioner.errors import AliquotError, InterceptionError, LaunchError, RelayUnavailableError


class Faults:
    """Launches after which an error comes, one after the other; then none does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: AliquotError) -> None:
        self._left, launch = list(errors), ManagedKernel._async_launch_kernel
        self.pids: list[int] = []
        monkeypatch.setattr(ManagedKernel, "retry_pauses", (0.0, 0.0))

        async def failing(kernel: ManagedKernel, command: list[str], **arguments: Any) -> None:
            await launch(kernel, command, **arguments)
            self.pids.append(kernel.provisioner.pid)
            if self._left:
                raise self._left.pop(0)

        monkeypatch.setattr(ManagedKernel, "_async_launch_kernel", failing)


async def started(a_gateway: Any, jp_fetch: Any, until: Any) -> tuple[str, str, str]:
    """Return a kernel's id, and its state and reason once its start is over."""
    answer = await jp_fetch("api", "kernels", method="POST", body=json.dumps({"name": "python3.gpu-0.5"}))
    kernel_id = json.loads(answer.body)["id"]
    await until(lambda: a_gateway.kernels.kernel_state(kernel_id)[0] in ("on_gpu", "ended"), 30)
    return (kernel_id, *a_gateway.kernels.kernel_state(kernel_id))


async def test_a_start_that_fails_twice_by_the_relays_fault_runs_the_third_time(
    a_gateway: Any, jp_fetch: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch, RelayUnavailableError("one"), RelayUnavailableError("two"))
    kernel_id, state, _ = await started(a_gateway, jp_fetch, until)
    assert (state, len(faults.pids)) == ("on_gpu", 3)
    assert a_gateway.held() == {kernel_id}
    for pid in faults.pids[:2]:
        await until(lambda pid=pid: not Path(f"/proc/{pid}").exists())
    assert a_gateway.node.kernels()[kernel_id]["hundredths"] == 50, "it has one grant"
    assert a_gateway.admission.snapshot().counts["granted"] == 3, "each try asked for a GPU"


async def test_the_tries_are_bounded_and_the_last_reason_is_told(
    a_gateway: Any, jp_fetch: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch, *(RelayUnavailableError(f"fault {at}") for at in range(1, 9)))
    _, state, reason = await started(a_gateway, jp_fetch, until)
    assert (state, len(faults.pids)) == ("ended", 3)
    assert "fault 3" in reason
    assert a_gateway.held() == set()


@pytest.mark.parametrize("error", [LaunchError("no such program"), InterceptionError("not the hook's libcuda")])
async def test_another_failure_is_not_tried_again(
    a_gateway: Any, jp_fetch: Any, until: Any, monkeypatch: pytest.MonkeyPatch, error: AliquotError
) -> None:
    faults = Faults(monkeypatch, error)
    _, state, reason = await started(a_gateway, jp_fetch, until)
    assert (state, len(faults.pids)) == ("ended", 1)
    assert str(error) in reason
