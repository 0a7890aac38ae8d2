"""Arguments beyond all bounds: each is an error, and memory next to them stays unchanged."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

_STATES = {
    "before init": "",
    "without a context": "check(cuda.cuInit(0))",
    "in a context": "start()",
    "after its context": "check(cuda.cuInit(0)); made = vp(); check(cuda.cuCtxCreate_v2(ctypes.byref(made), 0, 0)); "
    "check(cuda.cuCtxDestroy_v2(made)); check(cuda.cuCtxSetCurrent(vp()))",
}


def _exported_names(native: Path) -> list[str]:
    command = ["readelf", "-W", "--dyn-syms", str(native / "softgpu" / "libcuda.so.1")]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r" FUNC +GLOBAL +DEFAULT +\d+ (cu[A-Z]\w+)", listed)))


@pytest.mark.parametrize("state", _STATES)
def test_no_function_crashes_on_nulls(make_machine, native, state):
    names = _exported_names(native)
    said = make_machine(DEVICES="2").run(f"""
        nulls, succeeded = [vp()] * 20, []
        for name in {names}:
            {_STATES[state]}
            print(name, file=sys.stderr, flush=True)  # after a crash, the last line names it
            if getattr(cuda, name)(*nulls) == 0: succeeded.append(name)
        say(*succeeded)
    """)
    assert len(names) > 600
    if state == "before init":
        assert said == "cuInit"
    if state == "without a context":
        assert not re.findall(r"\bcu(?:Mem|Stream|Event|Func|Ctx(?!SetCurrent))\w*", said)


_COPY = """
    start(); (_, a), (_, b), (_, c) = alloc(4096), alloc(4096), alloc(4096)
    DEVICE, TOP = 2, 1 << 64
    upload(a, b"A" * 4096); upload(b, b"B" * 4096); upload(c, b"C" * 4096)
    def copy_2d(width, height, x=0, y=0, pitch=0, to_pitch=0):
        fields = [x, y, DEVICE, 0, a, 0, pitch, 0, 0, DEVICE, 0, c, 0, to_pitch, width, height]
        return cuda.cuMemcpy2D_v2((u64 * 16)(*(field % TOP for field in fields)))
    def copy_3d(width, height, depth, z=0, pitch=0, rows=0):
        end = lambda address: [0, 0, z, 0, DEVICE, 0, address, 0, 0, pitch, rows]
        return cuda.cuMemcpy3D_v2((u64 * 25)(*end(a), *end(c), width, height, depth))
"""


def test_copies_whose_extent_leaves_all_addresses_are_refused(a_machine):
    said = a_machine.run(
        _COPY
        + """
    say(copy_2d(16, (1 << 44) + 1, pitch=1 << 20, to_pitch=1 << 20), copy_2d(16, 1, x=-16), copy_2d(16, 1, x=-8),
        copy_2d(16, 1, y=TOP - 1, pitch=4096, to_pitch=4096), copy_2d(TOP - 16, 1, x=32))
    say(copy_3d(16, (1 << 44) + 1, 1, pitch=1 << 20, rows=1), copy_3d(16, 1, (1 << 43) + 1, pitch=1 << 20, rows=2),
        copy_3d(16, 1, 1, z=1 << 44, pitch=1 << 20, rows=1))
    say(download(c, 4096) == b"C" * 4096, copy_2d(64, 4, pitch=64, to_pitch=64), download(c, 257)[250:])
    """
    )
    assert said.split("\n") == ["1 1 1 1 1", "1 1 1", "True 0 b'AAAAAAC'"]


def test_fills_and_copies_end_with_their_managed_memory(a_machine):
    said = a_machine.run("""
        start(); p = u64(); check(cuda.cuMemAllocManaged(ctypes.byref(p), ctypes.c_size_t(MIB), 1))
        n = ctypes.c_size_t; q = alloc(8 * MIB)[1]
        say(cuda.cuMemsetD8_v2(p, 1, n(8 * MIB)), cuda.cuMemsetD8_v2(u64(p.value + MIB - 1), 1, n(2)),
            cuda.cuMemcpy(p, u64(q), n(8 * MIB)), cuda.cuMemcpy(u64(q), p, n(8 * MIB)),
            cuda.cuMemsetD2D8_v2(p, n(MIB), 1, n(16), n(2)), cuda.cuMemsetD8_v2(p, 1, n(MIB)))
    """)
    assert said == "1 1 1 1 1 0"


def test_a_registration_past_the_last_address_is_refused(a_machine):
    said = a_machine.run("""
        start(); own = ctypes.create_string_buffer(4096); register = cuda.cuMemHostRegister_v2
        size = ctypes.c_size_t
        say(register(own, size(-1), 0), register(own, size(4096), 0), cuda.cuMemHostUnregister(own))
    """)
    assert said == "1 0 0"


def test_a_context_that_a_full_stack_refuses_leaves_nothing(make_machine):
    said = make_machine(CONTEXT="512KiB").run("""
        check(cuda.cuInit(0)); made = vp(); create = cuda.cuCtxCreate_v2
        while create(ctypes.byref(made), 0, 0) == 0: last, left = made.value, free_bytes()
        say(made.value == last, free_bytes() == left)
    """)
    assert said == "True True"


@pytest.mark.parametrize("setting", ["CONTEXT", "LAUNCH_NS"])
def test_zero_can_be_said_where_zero_is_the_default(make_machine, setting):
    assert make_machine(**{setting: "0"}).run("say(cuda.cuInit(0))") == "0"
