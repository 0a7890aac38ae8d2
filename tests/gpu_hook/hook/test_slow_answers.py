"""Driver calls that take long in one thread: no lock of the hook holds up calls of other threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, ResidencyMode

MIB = 1 << 20
PATIENCE = 10  # seconds: an answer takes milliseconds, a held lock for ever
POINTER_ATTRIBUTE_MEMORY_TYPE = 2
MEMORY_TYPE_DEVICE = 2
ASK = "(lambda kind: [call('cuPointerGetAttribute', ctypes.byref(kind), {attribute}, U64({address})), kind.value])"


class Held:
    """A kernel of whose calls one waits inside the driver until it is let go."""

    def __init__(self, make_kernel: Callable[..., Any], folder: Path, function: str, mode: ResidencyMode) -> None:
        self._hold, self._log, self._function = folder / "hold", folder / "softgpu.log", function
        self.kernel = make_kernel(held=0, mode=mode, log=self._log, faults=f"{function}=hold", hold=self._hold)
        self.program = self.kernel.program

    def begin(self, work: str) -> None:
        """Begin work in another thread, and return once its call is held."""
        self._hold.touch()
        assert self.program(f"globals().update(end=in_background(lambda: use(0) or {work})) or 0") == 0
        self.kernel.agent.wait_for(lambda: f"event=fault function={self._function}" in self._log.read_text())

    def ask(self, work: str) -> Any:
        self.program.ask(work)
        assert self.program.has_answer(PATIENCE), "the call waits for another thread's"
        return self.program.answer()

    def let_go(self) -> Any:
        self._hold.unlink()
        return self.program("end()")


@pytest.fixture
def hold(make_kernel: Callable[..., Any], tmp_path: Path) -> Callable[..., Held]:
    return lambda function, mode: Held(make_kernel, tmp_path, function, mode)


def charged(held: Held) -> int:
    return int(held.kernel.process.word(0, HookPage.CHARGED))


def test_memory_is_freed_while_the_driver_is_asked_what_went_with_a_context(hold: Callable[..., Held]) -> None:
    """The hook asks about this very memory, which belongs to another context, and refunds it once."""
    held = hold("cuPointerGetAttribute", ResidencyMode.OFF)
    primary = charged(held)
    assert held.program("globals().update(context=new_context()[1]) or 0") == 0
    code, pointer = held.program(f"alloc({4 * MIB})")
    assert code == 0
    assert charged(held) - primary >= 4 * MIB
    held.begin("call('cuDevicePrimaryCtxReset_v2', 0)")
    assert held.ask(f"free({pointer})") == 0
    assert held.let_go() == 0
    assert charged(held) == 0
    assert held.program(f"set_current(context) or alloc({2 * MIB})[0]") == 0
    assert charged(held) == 2 * MIB


def test_memory_that_comes_at_a_freed_address_keeps_its_charge(hold: Callable[..., Held]) -> None:
    held = hold("cuPointerGetAttribute", ResidencyMode.OFF)
    assert held.program("globals().update(context=new_context()[1]) or 0") == 0
    _, pointer = held.program(f"alloc({4 * MIB})")
    held.begin("call('cuDevicePrimaryCtxReset_v2', 0)")
    assert held.ask(f"free({pointer})") == 0
    assert held.ask(f"alloc({4 * MIB})") == [0, pointer]
    assert held.let_go() == 0
    assert charged(held) == 4 * MIB


def test_addresses_are_asked_about_while_others_are_unmapped(hold: Callable[..., Held]) -> None:
    held = hold("cuMemUnmap", ResidencyMode.VMM)
    addresses = []
    for _ in range(2):
        code, handle = held.program(f"create({2 * MIB})")
        assert code == 0
        code, address = held.program(f"reserve({2 * MIB})")
        assert code == 0
        assert held.program(f"map_at({address}, {2 * MIB}, {handle}) or open_to({address}, {2 * MIB}, 0)") == 0
        addresses.append(address)
    held.begin(f"unmap({addresses[0]}, {2 * MIB})")
    question = ASK.format(attribute=POINTER_ATTRIBUTE_MEMORY_TYPE, address=addresses[1])
    assert held.ask(f"{question}(ctypes.c_int())") == [0, MEMORY_TYPE_DEVICE]
    assert held.let_go() == 0
