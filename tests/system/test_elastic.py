"""Sizes that change and memory that leaves while a kernel runs.

REST, gateway, node agent, hook and kernel together.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
import warm_start
from memory_cells import CHECK, FILL, GPU, MIB


def patch(kernel: Any, **change: Any) -> Any:
    return kernel.server.call("PATCH", f"/aliquot/api/v1/kernels/{kernel.id}", change)


def post(kernel: Any, verb: str) -> Any:
    return kernel.server.call("POST", f"/aliquot/api/v1/kernels/{kernel.id}/{verb}", {})


def test_a_running_kernel_sees_its_new_size_and_loses_nothing(a_shared_server, eventually) -> None:
    kernel = a_shared_server.start("python3.gpu-0.25")
    assert kernel.run(GPU + "print(mebibytes())").text.split() == ["1024", "1024"]
    assert patch(kernel, gpus=0.5)["memory_limit_bytes"] == 2048 * MIB
    assert kernel.run("print(mebibytes())").text.split() == ["2048", "2048"]
    at = kernel.run(FILL.format(seed=1, mebibytes=768)).text.split()
    smaller = patch(kernel, gpus=0.1)
    eventually(lambda: kernel.on_node()["over_limit_bytes"] > 0)
    assert (smaller["gpus"], smaller["state"]) == (0.1, "on_gpu")
    refused = kernel.run("call(cu.cuMemAlloc(64 << 20))")
    assert "CUDA_ERROR_OUT_OF_MEMORY" in refused.error, refused
    assert kernel.run(CHECK).text.split() == [*at, "True"], "what it has it keeps"
    assert kernel.run("call(cu.cuMemFree(pointer)); print(mebibytes())").text.split()[1] == "408"
    kernel.server.call("POST", f"/api/kernels/{kernel.id}/restart", {})
    kernel.reconnect()
    assert kernel.run(GPU + "print(mebibytes())").text.split() == ["408", "408"], "a restart has the size of now"
    kernel.end()


def test_who_grows_waits_for_room_and_runs_on_meanwhile(a_shared_server, eventually) -> None:
    kernel, other = a_shared_server.start("python3.gpu-0.5"), a_shared_server.start("python3.gpu-0.5")
    for started in (kernel, other):
        eventually(lambda one=started: one.on_node() and one.on_node()["state"] == "on_gpu")
    waiting = patch(kernel, gpus=0.75)
    assert (waiting["gpus"], waiting["resize"]["position"]) == (0.5, 1)
    assert kernel.run(GPU + "print(mebibytes())").text.split() == ["2048", "2048"]
    other.end()
    eventually(lambda: kernel.on_node()["gpus"] == 0.75)
    assert kernel.run("print(mebibytes())").text.split() == ["3072", "3072"]
    with pytest.raises(a_shared_server.refusal, match=r"409: .*takes 2 devices"):
        patch(kernel, gpus=1.5)
    kernel.end()


def test_a_kernel_that_never_used_its_gpu_has_nothing_to_swap_out(a_shared_server) -> None:
    kernel = a_shared_server.start("python3.gpu-0.5")
    kernel.run("1")
    with pytest.raises(a_shared_server.refusal, match=r"409: .*has no GPU memory: there is nothing to swap out"):
        post(kernel, "swap-out")
    kernel.end()


def test_memory_leaves_when_asked_and_is_back_at_its_place_for_the_next_cell(a_shared_server, eventually) -> None:
    kernel = a_shared_server.start("python3.gpu-0.5")
    kernel.run(GPU)
    at = kernel.run(FILL.format(seed=2, mebibytes=256)).text.split()

    def is_asked() -> bool:
        with contextlib.suppress(a_shared_server.refusal):  # ended, but its relay may not have reported it
            return bool(post(kernel, "swap-out"))
        return False

    eventually(is_asked)
    report = eventually(lambda: kernel.on_node() if kernel.on_node()["state"] == "swapped_out" else None)
    assert report["residency"]["swapped_bytes"] == 256 * MIB
    assert a_shared_server.status()["node"]["host_copies"]["used_bytes"] >= 256 * MIB
    # Where copying back takes long, a line before it says so.
    assert kernel.run(CHECK).text.splitlines()[-1].split() == [*at, "True"]
    eventually(lambda: kernel.on_node()["state"] == "on_gpu")  # as the gateway sees it, a moment later
    post(kernel, "prefetch")
    kernel.end()


def test_the_command_line_asks_the_gateway(a_server, a_folder: Path, an_environment: dict[str, str]) -> None:
    kernel = a_server.start("python3.gpu-0.25")
    kernel.run("1")
    environment = {**an_environment, "JUPYTER_RUNTIME_DIR": str(a_folder / "jupyter-server")}

    def aliquot(*words: str) -> subprocess.CompletedProcess[str]:
        return warm_start.run(warm_start.SERVER, [*warm_start.ALIQUOT, *words], env=environment, timeout=90)

    grown = aliquot("resize", kernel.id[:8], "0.5")
    assert grown.stdout == f"{kernel.id[:8]} has 0.5 GPU, 2.0 GiB\n", grown.stderr
    refused = aliquot("resize", kernel.id, "2")
    assert (refused.returncode, "takes 2 devices" in refused.stderr) == (1, True)
    kernel.end()
    shown = aliquot("status")
    assert f"{kernel.id[:8]}" in shown.stdout.partition("ended")[2], shown.stdout
