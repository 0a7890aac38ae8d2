"""Built-in kernels: their results, and the effect of a bad address."""

from __future__ import annotations

import random
import struct

import pytest

_MASK = (1 << 64) - 1


def hash_words(words: list[int]) -> int:
    """Compute the definition in builtins.ptx once more."""
    total = 0
    for index, word in enumerate(words):
        mix = ((index + 1) * 0x9E3779B97F4A7C15 + word) & _MASK
        mix = ((mix ^ mix >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        mix = ((mix ^ mix >> 27) * 0x94D049BB133111EB) & _MASK
        total += mix ^ mix >> 31
    return total & _MASK


def test_fill_copy_and_axpy_compute(a_machine):
    said = a_machine.run("""
        import struct
        start(); p = alloc(MIB)[1]; q = p + 4096; n = 100
        check(launch("aliquot_fill", u64(p), ctypes.c_uint32(0x3f800000), u64(n)))   # 1.0
        check(launch("aliquot_copy", u64(q), u64(p), u64(n)))
        check(launch("aliquot_axpy", u64(q), u64(p), ctypes.c_float(2.5), u64(n)))   # 2.5 * 1 + 1
        say(set(struct.unpack("100f", download(q, 400))), download(q + 400, 4).hex())
    """)
    assert said == "{3.5} 00000000"


def test_hash_follows_its_definition(a_machine):
    words = [random.Random(7).getrandbits(32) for _ in range(1000)]
    data = struct.pack("<1000I", *words).hex()
    said = a_machine.run(f"""
        start(); p = alloc(8192)[1]; result = alloc(8)[1]
        upload(p, bytes.fromhex("{data}")); upload(result, bytes(8))
        check(launch("aliquot_hash", u64(p), u64(1000), u64(result), grid=3, block=33))
        say(int.from_bytes(download(result, 8), "little"))
    """)
    assert int(said) == hash_words(words)


@pytest.mark.parametrize("rounds", [0, 1, 2, 1000, 12_345])
def test_work_does_all_its_rounds(a_machine, rounds):
    said = a_machine.run(f"""
        start(); result = alloc(8)[1]; first, last = event(), event()
        check(launch("aliquot_spin", u64(300_000_000))); check(cuda.cuEventRecord(first, None))
        check(launch("aliquot_work", u64({rounds}), u64(result))); check(cuda.cuEventRecord(last, None))
        say(int.from_bytes(download(result, 8), "little"), elapsed(first, last))
    """)
    want = 1
    for _ in range(rounds):
        want = (want * 0x5851F42D4C957F2D + 0x14057B7EF767814F) % 2**64
    want_milliseconds = (rounds * 10 or 5000) / 1e6
    assert int(said.split()[0]) == want
    assert abs(float(said.split()[1]) - want_milliseconds) < 0.001


def test_chase_follows_pointers_stored_on_the_device(a_machine):
    said = a_machine.run("""
        start(); nodes = [alloc(512)[1] for _ in range(5)]; result = alloc(8)[1]
        for here, there in zip(nodes, nodes[1:] + nodes[:1]): upload(here, there.to_bytes(8, "little"))
        check(launch("aliquot_chase", u64(nodes[0]), u64(8), u64(result)))
        say(int.from_bytes(download(result, 8), "little") == nodes[3])
    """)
    assert said == "True"


@pytest.mark.parametrize(
    "call",
    [
        'launch("aliquot_fill", u64(p), ctypes.c_uint32(1), u64(4096 // 4 + 1))',
        'launch("aliquot_fill", u64(p + 2), ctypes.c_uint32(1), u64(4))',
        'launch("aliquot_fill", u64(p), ctypes.c_uint32(1), u64(2**62 + 1))',
        'launch("aliquot_copy", u64(p), u64(16), u64(4))',
        'launch("aliquot_hash", u64(p), u64(4), u64(p + 4))',
        'launch("aliquot_fill", u64(p), ctypes.c_uint32(1), u64(1), block=2048)',
        'launch("aliquot_fill", u64(p), ctypes.c_uint32(1), u64(1), grid=0)',
    ],
)
def test_what_is_wrong_at_the_call_is_refused_there(a_machine, call):
    said = a_machine.run(f"""
        start(); p = alloc(4096)[1]; say({call}); check(cuda.cuCtxSynchronize()); say(alloc(512)[0])
    """)
    want_invalid_value = "1"
    assert said.split("\n") == [want_invalid_value, "0"]


def test_address_that_goes_bad_later_ends_the_context(a_machine):
    said = a_machine.run("""
        context = start(); head = alloc(512)[1]; result = alloc(8)[1]
        upload(head, (0xdead0000).to_bytes(8, "little"))
        say(launch("aliquot_chase", u64(head), u64(2), u64(result)), cuda.cuCtxSynchronize())
        say(alloc(512)[0], cuda.cuCtxSynchronize(), launch("aliquot_spin", u64(1)))
        check(cuda.cuDevicePrimaryCtxReset_v2(0)); start(); say(alloc(512)[0], free_bytes() == 64 * MIB - 512)
    """)
    want_sticky = "700 700 700"
    assert said.split("\n") == ["0 700", want_sticky, "0 True"]


def test_memory_freed_by_another_stream_is_an_illegal_address(a_machine):
    said = a_machine.run("""
        start(); a, b = vp(), vp(); p = u64()
        for s in (a, b): check(cuda.cuStreamCreate(ctypes.byref(s), 1))
        check(cuda.cuMemAllocAsync(ctypes.byref(p), ctypes.c_size_t(4096), a))
        check(launch("aliquot_spin", u64(500_000_000), stream=a))
        check(launch("aliquot_fill", p, ctypes.c_uint32(1), u64(4), stream=a))
        check(cuda.cuMemFreeAsync(p, b)); check(cuda.cuStreamSynchronize(b))
        say(cuda.cuStreamSynchronize(a))
    """)
    assert said == "700"


_USER_PTX = """
.version 7.0 // .entry not_this()
.target sm_52
.address_size 64
.visible .global .align 4 .b8 table[100];
/* .entry nor_this() */
.visible .entry scale(.param .u64 .ptr .global .align 8 data, .param .f32 a, .param .align 8 .b8 s[20], .param .u8 c)
{ .reg .b32 %r<2>; { mov.u32 %r1, 0; } ret; }
.entry bare { ret; }
"""


def test_user_code_is_timed_and_not_executed(a_machine, tmp_path):
    (tmp_path / "user.ptx").write_text(_USER_PTX)
    log = tmp_path / "log"
    said = a_machine.run(
        f"""
        start(); module, f = vp(), vp()
        check(cuda.cuModuleLoad(ctypes.byref(module), b"{tmp_path}/user.ptx"))
        check(cuda.cuModuleGetFunction(ctypes.byref(f), module, b"scale"))
        offset, size, layout = ctypes.c_size_t(), ctypes.c_size_t(), []
        while cuda.cuFuncGetParamInfo(f, ctypes.c_size_t(len(layout)), ctypes.byref(offset), ctypes.byref(size)) == 0:
            layout.append((offset.value, size.value))
        say(layout)
        buffer = ctypes.create_string_buffer(64)
        four = (vp * 4)(*[ctypes.addressof(buffer)] * 4)
        say(cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, four, None), cuda.cuCtxSynchronize())
        say(cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None))
        say(cuda.cuModuleGetFunction(ctypes.byref(f), module, b"not_this"))
        p = u64()
        check(cuda.cuModuleGetGlobal_v2(ctypes.byref(p), ctypes.byref(size), module, b"table")); say(size.value)
        check(cuda.cuModuleUnload(module)); say(free_bytes() == 64 * MIB)
        """,
        ALIQUOT_SOFTGPU_LOG=str(log),
    )
    want_layout = "[(0, 8), (8, 4), (16, 20), (36, 1)]"
    assert said.split("\n") == [want_layout, "0 0", "1", "500", "100", "True"]
    assert "compiled GPU code is timed, not executed" in log.read_text()


@pytest.mark.parametrize(
    ("image", "want"),
    [
        (b"garbage\0", 200),
        (b"   \0", 218),
        (b".entry x() {}\0", 218),
        (b".version 7.0 .entry x(.param .u64 p { ret; }\0", 218),
        (b"\x01\0\0\0", 200),
        (b"\x7fELF" + b"\0" * 60, 200),
    ],
)
def test_image_that_is_none_is_refused(a_machine, image, want):
    said = a_machine.run(f"start(); m = vp(); say(cuda.cuModuleLoadData(ctypes.byref(m), {image!r}))")
    assert said == str(want)


def an_elf(sections_at=64, section_count=1, machine=190):
    """Return the head of an ELF for a GPU: its class, and the places of its sections."""
    head = struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 0, sections_at, 0, 64, 56, 0, 64, section_count, 0)
    return b"\x7fELF\x02\x01\x01" + bytes(9) + head


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(b"", id="empty"),
        pytest.param(an_elf()[:30], id="half a head"),
        pytest.param(an_elf(), id="no sections"),
        pytest.param(an_elf(sections_at=1 << 40), id="sections far away"),
        pytest.param(an_elf() + struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 1 << 40, 9, 0, 0, 0, 0), id="names far away"),
        pytest.param(an_elf(machine=62) + bytes(64), id="a program of the host"),
        pytest.param(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 30), id="half a fat binary"),
        pytest.param(struct.pack("<IIQQ", 0x466243B1, 1, 4096, 0), id="an address"),
    ],
)
def test_a_damaged_file_is_no_image(a_machine, tmp_path, image):
    file = tmp_path / "image"
    file.write_bytes(image)
    assert a_machine.run(f"start(); m = vp(); say(cuda.cuModuleLoad(ctypes.byref(m), {bytes(file)!r}))") == "200"
