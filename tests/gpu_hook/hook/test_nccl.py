"""Memory that NCCL made for a communicator stays on its device, and is told as NCCL's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, Moved, MoveOutcome, PinReason, ResidencyMode

MIB = 1 << 20
SOURCE = Path(__file__).with_name("as_nccl.c")


@pytest.fixture
def make_library(a_folder: Path, include_dir: Path) -> Callable[..., Path]:
    """Compile a library that behaves as NCCL, under any name."""

    def make(name: str, *flags: str) -> Path:
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler, "a C compiler is needed: install gcc"
        made = a_folder / name
        command = [compiler, "-std=gnu11", "-shared", "-fPIC", "-w", f"-I{include_dir}", str(SOURCE), *flags]
        subprocess.run([*command, "-o", str(made), "-ldl"], check=True)
        return made

    return make


class Kernel:
    """One process in mode `vmm`, and its swapping agent."""

    def __init__(self, node: Any, make_orders: Callable[..., Any], stack: ExitStack) -> None:
        node.agent.residency_mode, node.agent.host_quota = ResidencyMode.VMM, 1 << 40
        self.program = node.program()
        self.program("init()")
        self.agent = node.grant((self.program("uuid()"), 128 * MIB))
        assert self.program("use()") == 0
        assert self.program(f"alloc({4 * MIB})")[0] == 0
        self.process = self.agent.process(self.program.pid)
        self.orders = stack.enter_context(make_orders(self.agent, self.process, [64 * MIB]))

    def load(self, library: Path) -> None:
        self.program(f"globals().update(library=ctypes.CDLL({str(library)!r}))")

    def cycle(self) -> Moved:
        moved: Moved = self.orders.swap_out()
        assert moved.outcome is MoveOutcome.DONE, moved
        assert self.orders.swap_in().outcome is MoveOutcome.DONE
        return moved


@pytest.fixture
def a_kernel(make_node: Callable[..., Any], make_orders: Callable[..., Any]) -> Iterator[Kernel]:
    with ExitStack() as stack:
        yield Kernel(make_node(devices=1, memory="256MiB"), make_orders, stack)


@pytest.mark.parametrize("name", ["libnccl.so.2", "libcollective.so"])
def test_a_communicators_memory_is_told_until_it_ends(
    name: str, a_kernel: Kernel, make_library: Callable[..., Path]
) -> None:
    a_kernel.load(make_library(name))
    assert a_kernel.cycle().pin_reasons == 0
    assert a_kernel.program(f"library.ncclCommInitRank({6 * MIB})") == 0
    moved = a_kernel.cycle()
    assert moved.pin_reasons == PinReason.NCCL
    assert (moved.devices[0].swapped_bytes, moved.devices[0].unswappable_bytes) == (4 * MIB, 6 * MIB)
    assert a_kernel.program("library.ncclCommDestroy()") == 0
    assert a_kernel.cycle().pin_reasons == 0
    assert a_kernel.process.word(0, HookPage.CHARGED) == 4 * MIB


def test_a_library_that_only_needs_nccl_is_not_taken_for_it(
    a_kernel: Kernel, make_library: Callable[..., Path]
) -> None:
    """PyTorch is such a library, and allocates in the same way for itself."""
    nccl = make_library("libnccl.so.2", "-Wl,-soname,libnccl.so.2")
    folder = str(nccl.parent)
    needing = ["-DNOT_NCCL", "-Wl,--no-as-needed", f"-L{folder}", "-l:libnccl.so.2", f"-Wl,-rpath,{folder}"]
    a_kernel.load(make_library("libframework.so", *needing))
    assert a_kernel.program("library.ncclCommInitRank is not None")
    assert a_kernel.program(f"library.otherCommInitRank({6 * MIB})") == 0
    moved = a_kernel.cycle()
    assert (moved.pin_reasons, moved.devices[0].swapped_bytes) == (0, 10 * MIB)


def test_nccls_plain_buffers_can_be_shared_by_legacy_ipc(a_kernel: Kernel, make_library: Callable[..., Path]) -> None:
    a_kernel.load(make_library("libnccl.so.2"))
    assert a_kernel.program(f"library.ncclSharePlain({6 * MIB})") == 0
    moved = a_kernel.cycle()
    assert moved.pin_reasons == PinReason.NCCL | PinReason.IPC
    assert moved.devices[0].unswappable_bytes == 6 * MIB
