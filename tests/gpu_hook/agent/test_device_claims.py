"""One device has the agent of one account: another account's agent ends, and says whose the first is."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_fake_agent import FakeSource
from second_account import ANOTHER, as_another

from jupyter_aliquot.gpu_hook.agent.devices.claims import DeviceClaimedError, DeviceClaims
from jupyter_aliquot.gpu_hook.agent.main import run_agent
from jupyter_aliquot.gpu_hook.agent.settings import read_arguments
from jupyter_aliquot.gpu_hook.paths import Driver

FIRST_DEVICE = "GPU-00000000-0000-0000-0000-0000000000a0"


@pytest.fixture
def a_second_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def agent_of_another_account(folder: Path) -> str:
    """Run an agent over the same device in a folder of its own; return its exit code and its log."""
    file, log = folder / "devices", folder / "log"
    file.write_text(json.dumps({"count": 1}))
    if os.geteuid() == 0:
        os.chown(folder, ANOTHER, ANOTHER)
        file.chmod(0o644)
    driver = Driver("nvidia", Path("/nowhere/libcuda.so.1"), Path("/nowhere/libnvidia-ml.so.1"))

    def run() -> str:
        # If it is not refused, it ends by itself.
        options = ["--runtime-dir", str(folder), "--log-file", str(log), "--exit-when-idle", "0.1"]
        code = run_agent(read_arguments(options), lambda _: FakeSource(file), find_driver=lambda _: driver)
        return f"{code} {log.read_text()}"

    return as_another(run)


def test_the_agent_of_another_account_ends_and_says_whose_the_first_is(a_node: Any, a_second_folder: Path) -> None:
    said = agent_of_another_account(a_second_folder)
    assert said.startswith("1 "), said
    assert f"the device {FIRST_DEVICE} is handed out by the node agent of the account root (pid " in said
    assert a_node.answers()


def test_agents_of_one_account_may_share_a_device(a_node: Any, a_second_folder: Path) -> None:
    second = type(a_node)(a_second_folder)
    try:
        second.start()
        assert a_node.answers()
    finally:
        second.close()


def claimed(machine: str, device: str) -> Callable[[], str]:
    async def claim() -> str:
        claims = DeviceClaims(machine)
        try:
            claims.claim([device])
        except DeviceClaimedError as error:
            return str(error)
        claims.close()
        return "claimed"

    return lambda: asyncio.run(claim())


def test_a_software_gpu_is_one_state_file_whatever_its_devices_are_called() -> None:
    device = f"GPU-{uuid.uuid4()}"

    async def ask_all() -> list[str]:
        claims = DeviceClaims("/dev/shm/aliquot-0-11112222/machine/state")
        claims.claim([device])
        said = [
            as_another(claimed("/dev/shm/aliquot-0-11112222/machine/state", device)),
            as_another(claimed("/dev/shm/aliquot-65534-33334444/machine/state", device)),
            as_another(claimed("", device)),
        ]
        claims.close()
        return [*said, as_another(claimed("/dev/shm/aliquot-0-11112222/machine/state", device))]

    refused, *others = asyncio.run(ask_all())
    assert "handed out by the node agent of the account root" in refused
    assert others == ["claimed"] * 3


def test_many_askers_do_not_fill_the_claim_and_one_of_them_has_it_next() -> None:
    device = f"GPU-{uuid.uuid4()}"

    async def ask_often() -> list[Any]:
        claims = DeviceClaims()
        claims.claim([device])
        others = [DeviceClaims() for _ in range(500)]
        for other in others:
            other.claim([device])
            await asyncio.sleep(0)
        claims.close()
        others[0].claim([device])
        said = as_another(claimed("", device))
        others[0].close()
        return [said]

    (said,) = asyncio.run(ask_often())
    assert "the account root" in said


def holding(device: str, *, listens: bool) -> socket.socket:
    held = socket.socket(socket.AF_UNIX)
    held.bind(f"\0aliquot-agent//{device}")
    if listens:
        held.listen(1)
    return held


def test_a_name_that_is_bound_and_does_not_listen_is_no_free_device() -> None:
    device = f"GPU-{uuid.uuid4()}"
    with holding(device, listens=False):
        assert "it does not listen" in claimed("", device)()
    assert claimed("", device)() == "claimed"


def test_an_agent_with_kernels_on_a_device_ends_over_no_later_claim_of_it() -> None:
    device, other = f"GPU-{uuid.uuid4()}", f"GPU-{uuid.uuid4()}"

    async def look_often() -> None:
        claims = DeviceClaims()
        with holding(device, listens=True):  # of the same account, and stopped
            for _ in range(4):
                claims.claim([device])
        with pytest.raises(DeviceClaimedError), holding(other, listens=False):
            claims.claim([device, other])
        claims.close()

    asyncio.run(look_often())
