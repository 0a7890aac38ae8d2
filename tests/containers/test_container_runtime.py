"""Kernels in containers on real engines: start, interrupt, end, adoption, and messages of failures."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyter_aliquot.provisioner.engine.runtime import ContainerRuntime
from jupyter_aliquot.provisioner.engine.settings import ContainerSettings
from jupyter_aliquot.provisioner.errors import EngineError, InterceptionError, LaunchError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, KernelProcess, Quota, Request
from jupyter_aliquot.provisioner.runtime.base import exit_status

if TYPE_CHECKING:
    from tests.containers.container_engines import Engine
    from tests.containers.kernels import ContainerKernels, a_plan
else:
    from container_engines import Engine
    from kernels import ContainerKernels, a_plan

SLEEPER = ("/usr/bin/sleep", "600")


def test_a_kernel_executes_is_interrupted_and_ends_on_request(kernels: ContainerKernels) -> None:
    kernel = kernels.run()
    assert kernel.execute("print(6 * 7)") == "42"
    cell = kernel.send("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    kernel.wait_for_text("begun")
    kernels.do(kernels.runtime.signal(kernel.process, signal.SIGINT))
    assert kernel.reply(cell)["ename"] == "KeyboardInterrupt"
    assert kernel.execute("print('lives')") == "lives"
    assert kernels.do(kernels.runtime.poll(kernel.process)) is None
    kernel.client.shutdown()  # type: ignore[union-attr]
    assert kernels.ending(kernel).exit_code == 0


def test_a_second_container_takes_the_place_of_an_ended_one(kernels: ContainerKernels) -> None:
    """The container takes the place as in a restart: the same kernel, the same folder."""
    launch = kernels.launch(a_plan(kernels.engine))
    first = kernels.start(launch)
    kernels.do(kernels.runtime.signal(first.process, signal.SIGKILL))
    assert kernels.ending(first).signal == signal.SIGKILL
    second = kernels.start(launch)
    assert second.process != first.process
    assert second.execute("print('again')") == "again"


def test_a_running_container_of_the_same_kernel_is_never_replaced(kernels: ContainerKernels) -> None:
    launch = kernels.launch(a_plan(kernels.engine), SLEEPER)
    first = kernels.start(launch)
    with pytest.raises(LaunchError, match="still runs"):
        kernels.start(launch)
    assert kernels.do(kernels.runtime.poll(first.process)) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_signal_that_ended_a_kernel_is_known(kernels: ContainerKernels, number: signal.Signals) -> None:
    kernel = kernels.start(kernels.launch(a_plan(kernels.engine), SLEEPER))
    kernels.do(kernels.runtime.signal(kernel.process, number))
    end = kernels.ending(kernel)
    assert (end.signal, end.exit_code, end.is_out_of_memory) == (number, None, False)
    kernels.do(kernels.runtime.signal(kernel.process, number))  # nothing after its end
    kernels.do(kernels.runtime.remove(kernel.process))
    assert kernels.do(kernels.runtime.ending(kernel.process)) == end
    assert kernels.containers() == set()


def test_the_exit_code_and_last_words_of_a_kernel_are_known(kernels: ContainerKernels) -> None:
    words = ("/usr/bin/sh", "-c", "sleep 0.3; echo no licence left >&2; exit 7")
    kernel = kernels.start(kernels.launch(a_plan(kernels.engine), words))
    end = kernels.ending(kernel)
    assert (end.exit_code, end.signal) == (7, None)
    assert "no licence left" in end.last_words
    assert end.at is not None
    assert abs(end.at - time.time()) < 60


def test_another_runtime_finds_the_kernels_by_their_labels(kernels: ContainerKernels) -> None:
    facts = {"gateway": "lab", "owner": "alice", "kernelspec": "pytorch.gpu-0.25"}
    plan = a_plan(kernels.engine)
    running = kernels.start(kernels.launch(plan, SLEEPER, facts=facts))
    ended = kernels.start(kernels.launch(plan, SLEEPER, facts={"gateway": "other"}))
    kernels.do(kernels.runtime.signal(ended.process, signal.SIGKILL))
    kernels.ending(ended)
    another = ContainerRuntime(ContainerSettings(kernels.engine.url))
    try:
        assert kernels.do(another.list()) == (running.process,)
        (found,) = kernels.do(another.find({"aliquot.dev/gateway": "lab"}))
        (gone,) = kernels.do(another.find({"aliquot.dev/gateway": "other"}))
        assert kernels.do(another.poll(running.process)) is None
        assert kernels.do(another.poll(ended.process)) == -signal.SIGKILL
    finally:
        another.close()
    assert (found.process, found.is_running, gone.is_running) == (running.process, True, False)
    assert found.labels["aliquot.dev/owner"] == "alice"
    assert found.labels["aliquot.dev/kernelspec"] == "pytorch.gpu-0.25"
    assert found.labels["aliquot.dev/runtime-dir"] == str(kernels.folder / "run")


def test_kernels_that_the_process_table_does_not_show_share_one_listing(kernels: ContainerKernels) -> None:
    plan = a_plan(kernels.engine)
    shown = [kernels.start(kernels.launch(plan, SLEEPER)).process for _ in range(3)]
    hidden = [KernelProcess(p.kernel_id, p.pid, 0, p.process_group, p.container) for p in shown]
    now, asked = 0.0, 0
    runtime = ContainerRuntime(ContainerSettings(kernels.engine.url), monotonic=lambda: now)
    call = runtime._engine.call

    async def counted(function: object) -> object:
        nonlocal asked
        asked += 1
        return await call(function)  # type: ignore[arg-type]

    runtime._engine.call = counted  # type: ignore[assignment, method-assign]
    try:
        assert [kernels.do(runtime.poll(process)) for process in hidden] == [None] * 3
        assert asked == 1
        kernels.do(kernels.runtime.signal(shown[0], signal.SIGKILL))
        kernels.do(kernels.runtime.wait(shown[0]))
        now = 1.0
        assert [kernels.do(runtime.poll(process)) for process in hidden] == [-signal.SIGKILL, None, None]
    finally:
        runtime.close()


@pytest.mark.parametrize(
    ("changes", "argv", "want_words"),
    [
        ({"image": "aliquot-test/none"}, SLEEPER, "Load it on the node"),
        ({}, ("/no/such/program",), "/no/such/program"),
        ({"network": "nowhere"}, SLEEPER, "nowhere"),
        ({}, ("/usr/bin/sh", "-c", "echo no module named ipykernel >&2; exit 1"), "no module named"),
    ],
    ids=["no image", "no program", "no network", "ends at once"],
)
def test_a_start_that_fails_says_why_and_leaves_no_container(
    kernels: ContainerKernels, changes: dict[str, str], argv: tuple[str, ...], want_words: str
) -> None:
    try:
        kernel = kernels.start(kernels.launch(a_plan(kernels.engine, **changes), argv))
    except LaunchError as error:
        said = str(error)
    else:
        # An engine may answer the start before the program's end: then its ending has the message.
        said = kernels.ending(kernel).last_words
        kernels.do(kernels.runtime.remove(kernel.process))
    assert want_words in said
    assert kernels.containers() == set()


def test_a_start_that_is_given_up_leaves_no_container(kernels: ContainerKernels) -> None:
    async def scene() -> None:
        plan = a_plan(kernels.engine)
        starting = asyncio.ensure_future(kernels.runtime.create(kernels.launch(plan, SLEEPER)))
        while not kernels.containers():  # noqa: ASYNC110 (no event announces it)
            await asyncio.sleep(0.005)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    kernels.do(scene())
    assert kernels.containers() == set()


def test_a_mount_whose_source_is_missing_is_refused_and_not_made(kernels: ContainerKernels, tmp_path: Path) -> None:
    from jupyter_aliquot.provisioner.containers.plan import Mount

    missing = tmp_path / "missing"
    plan = a_plan(kernels.engine, more_mounts=(Mount(str(missing), "/data"),))
    with pytest.raises(LaunchError, match="missing"):
        kernels.start(kernels.launch(plan, SLEEPER))
    assert not missing.exists()
    assert kernels.containers() == set()


def test_an_engine_that_is_not_there_is_said(tmp_path: Path) -> None:
    runtime = ContainerRuntime(ContainerSettings(f"unix://{tmp_path}/engine.sock"))
    process = KernelProcess("k", 1, 0, 1, "c" * 64)
    try:
        with pytest.raises(EngineError, match="Check that it runs"):
            asyncio.run(runtime.list())
        assert asyncio.run(runtime.poll(process)) is None, "its silence says nothing about its kernels"
    finally:
        runtime.close()


def test_a_kernel_that_was_removed_behind_our_back_is_gone(kernels: ContainerKernels, an_engine: Engine) -> None:
    kernel = kernels.start(kernels.launch(a_plan(kernels.engine), SLEEPER))
    an_engine.client().containers.get(kernel.process.container).remove(force=True)
    end = kernels.ending(kernel)
    assert (end.exit_code, end.signal) == (None, None)
    assert exit_status(end) == 255
    kernels.do(kernels.runtime.remove(kernel.process))


@pytest.fixture
def a_grant(tmp_path: Path) -> Grant:
    """A grant of the software GPU, with libraries in a folder that no test's container has mounted."""
    for folder in ("libraries/bin", "libraries/shim", "kernels/k"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "libraries/bin/aliquot-kernel-start").touch(0o755)
    env = (
        ("ALIQUOT_SOFTGPU_STATE", str(tmp_path / "state")),
        ("LD_LIBRARY_PATH_PREPEND", str(tmp_path / "libraries/shim")),
    )
    quota = Quota("GPU-0", 0, GpuShare(25), Bytes(1 << 30))
    return Grant("k", "alice", Request(GpuShare(25)), "n", (quota,), str(tmp_path / "kernels/k"), env)


@pytest.mark.parametrize(
    ("devices", "want_error", "want_words"),
    [
        ("cdi", InterceptionError, "Set c.KernelContainers.devices to 'mounts'"),
        ("auto", LaunchError, "Start the node agent with --cdi-dir"),
    ],
)
def test_an_engine_that_drops_devices_in_silence_starts_no_kernel_without_its_hook(
    a_podman: Engine, a_grant: Grant, tmp_path: Path, devices: str, want_error: type[Exception], want_words: str
) -> None:
    settings = ContainerSettings(a_podman.url, devices=devices, cdi_dirs=(str(tmp_path),))
    kernels = ContainerKernels(a_podman, settings=settings)
    try:
        with pytest.raises(want_error, match=want_words):
            kernels.start(kernels.launch(a_plan(a_podman), SLEEPER, grant=a_grant))
        assert kernels.containers() == set()
    finally:
        kernels.close()
