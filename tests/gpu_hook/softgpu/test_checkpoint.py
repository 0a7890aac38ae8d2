"""Checkpoints of processes on the software GPU: which process may act on which, and the effect on the devices."""

from __future__ import annotations

import subprocess

RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)
OUT_OF_MEMORY, NOT_SUPPORTED, ILLEGAL_STATE, NOT_READY, INVALID_VALUE = 2, 801, 401, 600, 1

_TARGET = """
    import hashlib
    start(); p = alloc(16 * MIB)[1]; data = os.urandom(16 * MIB); upload(p, data)
    {more}
    say(os.getpid())
    for line in sys.stdin:
        say(download(p, 16 * MIB) == data, free_bytes() // MIB)
"""
_KEEPER = """
    check(cuda.cuInit(0)); say("up")
    def state(pid):
        found = ctypes.c_int(-1); error = cuda.cuCheckpointProcessGetState(pid, ctypes.byref(found))
        return error or found.value
    class Lock(ctypes.Structure):
        _fields_ = [("timeout", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", u64 * 7)]
    for line in sys.stdin:
        verb, pid, *rest = line.split(); pid = int(pid)
        if verb == "state": say(state(pid))
        elif verb == "lock": say(cuda.cuCheckpointProcessLock(pid, ctypes.byref(Lock(int(rest[0]), 0))), state(pid))
        elif verb == "free":
            start() if not hasattr(start, "made") else None; start.made = True; say(free_bytes() // MIB)
        elif verb == "take": say(alloc(int(rest[0]) * MIB)[0])
        else: say(getattr(cuda, "cuCheckpointProcess" + verb)(pid, None), state(pid))
"""


def _ask(client: subprocess.Popen[str], line: str) -> str:
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(line + "\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


def _start(a_machine, more: str = "pass"):
    keeper = a_machine.popen(_KEEPER)
    assert keeper.stdout.readline() == "up\n"  # before the target's work begins, which does not last for ever
    target = a_machine.popen(_TARGET.format(more=more))
    return target, keeper, int(target.stdout.readline())


def test_a_checkpointed_process_leaves_the_devices_and_comes_back_whole(a_machine):
    target, keeper, pid = _start(a_machine)
    before = int(_ask(keeper, "free 0"))
    assert _ask(keeper, f"lock {pid} 1000") == f"0 {LOCKED}"
    assert _ask(keeper, f"Checkpoint {pid}") == f"0 {CHECKPOINTED}"
    assert int(_ask(keeper, "free 0")) >= before + 16
    target.stdin.write("look\n")  # its call waits
    target.stdin.flush()
    assert _ask(keeper, f"Restore {pid}") == f"0 {LOCKED}"
    assert int(_ask(keeper, "free 0")) == before
    assert _ask(keeper, f"Unlock {pid}") == f"0 {RUNNING}"
    assert target.stdout.readline().startswith("True ")


def test_only_the_order_lock_checkpoint_restore_unlock_is_taken(a_machine):
    _, keeper, pid = _start(a_machine)
    for verb in ("Checkpoint", "Restore", "Unlock"):
        assert _ask(keeper, f"{verb} {pid}") == f"{ILLEGAL_STATE} {RUNNING}"
    assert _ask(keeper, f"lock {pid} 0") == f"0 {LOCKED}"
    assert _ask(keeper, f"lock {pid} 0") == f"{ILLEGAL_STATE} {LOCKED}"
    assert _ask(keeper, f"Restore {pid}") == f"{ILLEGAL_STATE} {LOCKED}"
    assert _ask(keeper, f"Unlock {pid}") == f"0 {RUNNING}"
    assert _ask(keeper, "state 1") == str(INVALID_VALUE)


def test_a_lock_gives_up_while_work_keeps_the_device(a_machine):
    spin = 'check(launch("aliquot_spin", u64(3_000_000_000), grid=1, block=1))'
    _, keeper, pid = _start(a_machine, spin)
    assert _ask(keeper, f"lock {pid} 50") == f"{NOT_READY} {RUNNING}"
    assert _ask(keeper, f"lock {pid} 0") == f"0 {LOCKED}"


def test_a_restore_without_room_leaves_the_process_stuck(a_machine):
    _, keeper, pid = _start(a_machine)
    _ask(keeper, f"lock {pid} 0")
    _ask(keeper, f"Checkpoint {pid}")
    free = int(_ask(keeper, "free 0"))
    assert _ask(keeper, f"take 0 {free - 8}") == "0"
    assert _ask(keeper, f"Restore {pid}") == f"{OUT_OF_MEMORY} {FAILED}"
    assert _ask(keeper, f"Restore {pid}") == f"{ILLEGAL_STATE} {FAILED}"


def test_managed_memory_and_ipc_refuse_a_checkpoint(a_machine):
    managed = "m = u64(); check(cuda.cuMemAllocManaged(ctypes.byref(m), ctypes.c_size_t(MIB), 1))"
    handle = "h = (ctypes.c_ubyte * 64)(); check(cuda.cuIpcGetMemHandle(h, u64(p)))"
    for more in (managed, handle):
        target, keeper, pid = _start(a_machine, more)
        assert _ask(keeper, f"lock {pid} 0") == f"0 {LOCKED}"
        assert _ask(keeper, f"Checkpoint {pid}") == f"{NOT_SUPPORTED} {LOCKED}"
        assert _ask(keeper, f"Unlock {pid}") == f"0 {RUNNING}"
        assert _ask(target, "look").startswith("True ")


def test_a_process_that_ends_while_checkpointed_leaves_nothing(a_machine):
    target, keeper, pid = _start(a_machine)
    _ask(keeper, f"lock {pid} 0")
    _ask(keeper, f"Checkpoint {pid}")
    free = _ask(keeper, "free 0")
    target.kill()
    target.wait(timeout=20)
    assert _ask(keeper, f"Restore {pid}") in (f"{INVALID_VALUE} {INVALID_VALUE}", f"0 {LOCKED}")
    assert _ask(keeper, "free 0") == free
