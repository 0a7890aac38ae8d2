"""Legacy IPC of the software GPU where CUDA says "undefined": deaths, frees, and leftovers."""

from __future__ import annotations

import os

_IPC = """
    class Handle(ctypes.Structure): _fields_ = [("reserved", ctypes.c_ubyte * 64)]
    cuda.cuIpcOpenMemHandle_v2.argtypes = [vp, Handle, ctypes.c_uint]
    def export(pointer):
        handle = Handle(); check(cuda.cuIpcGetMemHandle(ctypes.byref(handle), u64(pointer))); return bytes(handle).hex()
    def open_handle(text):
        pointer = u64(); error = cuda.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), Handle.from_buffer_copy(
            bytes.fromhex(text)), 1)
        return error, pointer.value
    def close_handle(pointer): return cuda.cuIpcCloseMemHandle(u64(pointer))
    def fill(pointer, count, value=7): return cuda.cuMemsetD32_v2(u64(pointer), value, ctypes.c_size_t(count))
"""
_EXPORT = (
    _IPC
    + """
    start(); p = alloc({size})[1]; check(fill(p, {size} // 4)); say(export(p))
    for line in sys.stdin:
        check(cuda.cuMemFree_v2(u64(p))); q = alloc({size})[1]; check(fill(q, 4, 9)); say("freed", q == p)
"""
)
LARGE = 8 << 20


def _import(machine, text: str):
    importer = machine.popen(
        _IPC
        + f"""
    start(); error, p = open_handle("{text}"); say(error)
    while wait_for_go(): say(download(p, 4).hex(), free_bytes() // MIB)
    say(close_handle(p), close_handle(p))
    """
    )
    assert importer.stdout.readline() == "0\n"
    return importer


def _ask(client, line: str) -> str:
    client.stdin.write(line + "\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


def test_opened_memory_outlives_a_killed_exporter_uncharged(a_machine):
    exporter = a_machine.popen(_EXPORT.format(size=LARGE))
    importer = _import(a_machine, exporter.stdout.readline().strip())
    assert _ask(importer, "read") == "07000000 56"
    exporter.kill()
    exporter.communicate()
    assert _ask(importer, "read") == "07000000 64"
    assert importer.communicate("\n", timeout=20)[0] == "0 1\n"


def test_memory_freed_under_an_importer_is_not_the_next_allocations(a_machine):
    exporter = a_machine.popen(_EXPORT.format(size=LARGE))
    importer = _import(a_machine, exporter.stdout.readline().strip())
    assert _ask(exporter, "free") == "freed True"
    assert _ask(importer, "read") == "07000000 56"
    importer.communicate("\n", timeout=20)
    exporter.communicate()


def test_handle_of_memory_that_is_gone_is_an_invalid_value(a_machine):
    exporter = a_machine.popen(_EXPORT.format(size=LARGE))
    handle = exporter.stdout.readline().strip()
    assert _ask(exporter, "free") == "freed True"
    ask = _IPC + f'\n    start(); say(open_handle("{handle}")[0])'
    want_invalid_value = "1"
    assert a_machine.run(ask) == want_invalid_value
    exporter.kill()
    exporter.communicate()
    assert a_machine.run(ask) == want_invalid_value


def test_nothing_but_the_state_file_is_left_in_the_file_system(a_machine):
    exporter = a_machine.popen(_EXPORT.format(size=4096))
    importer = _import(a_machine, exporter.stdout.readline().strip())
    for client in exporter, importer:
        client.kill()
        client.communicate()
    assert os.listdir(a_machine.state.parent) == [a_machine.state.name]
    assert a_machine.run("start(); say(free_bytes() // MIB)") == "64"


def test_sharing_moves_no_bytes_of_work_under_way(make_machine):
    machine = make_machine(MEMORY="1GiB")
    said = machine.run(
        _IPC
        + """
    start(); stream = vp(); check(cuda.cuStreamCreate(ctypes.byref(stream), 1)); size = 64 * MIB; words = size // 4
    for value in range(1, 9):
        p = alloc(size)[1]
        check(launch("aliquot_fill", u64(p), ctypes.c_uint32(value), u64(words), stream=stream)); export(p)
        check(cuda.cuStreamSynchronize(stream))
        data = download(p, size); assert data == bytes([value, 0, 0, 0]) * words, value
        check(cuda.cuMemFree_v2(u64(p)))
    say(free_bytes() >> 20)
    """
    )
    assert said == "1024"


def test_sharing_keeps_a_sparse_allocation_sparse(make_machine):
    machine = make_machine(MEMORY="32GiB")
    said = machine.run(
        _IPC
        + """
    start(); p = alloc(16 << 30)[1]; check(fill(p + (8 << 30), 4)); export(p); say(download(p + (8 << 30), 4).hex())
    resident = int(open("/proc/self/statm").read().split()[1]) * 4096; say(resident < 200 * MIB)
    """
    )
    assert said.split("\n") == ["07000000", "True"]


def test_record_of_a_killed_process_holds_up_nobody(a_machine):
    recorder = a_machine.popen(
        _IPC
        + """
    start(); made = vp(); check(cuda.cuEventCreate(ctypes.byref(made), 6)); handle = Handle()
    check(cuda.cuIpcGetEventHandle(ctypes.byref(handle), made)); check(launch("aliquot_spin", u64(3600 * 10**9)))
    check(cuda.cuEventRecord(made, None)); say(bytes(handle).hex()); signal.pause()
    """
    )
    handle = recorder.stdout.readline().strip()
    waiter = a_machine.popen(
        _IPC
        + f"""
    start(); cuda.cuIpcOpenEventHandle.argtypes = [vp, Handle]; made = vp()
    check(cuda.cuIpcOpenEventHandle(ctypes.byref(made), Handle.from_buffer_copy(bytes.fromhex("{handle}"))))
    check(cuda.cuStreamWaitEvent(None, made, 0)); say(cuda.cuEventQuery(made), cuda.cuStreamQuery(None))
    check(cuda.cuCtxSynchronize()); say("on")
    """
    )
    want_not_ready = "600 600\n"
    assert waiter.stdout.readline() == want_not_ready
    recorder.kill()
    recorder.communicate()
    assert waiter.communicate(timeout=20)[0] == "on\n"
