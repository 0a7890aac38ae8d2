"""Every way in which a notebook makes processes and threads.

All of a kernel share one limit, and the hook hurts none.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

MIB = 1 << 20
QUOTA = 2048 * MIB
PRELUDE = '''
import ctypes, json, multiprocessing, os, subprocess, sys, threading
MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")

def begin():
    context = ctypes.c_void_p()
    return (cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
            or cuda.cuCtxSetCurrent(context))

def alloc(amount):
    """The error, and the address."""
    pointer = ctypes.c_uint64()
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(amount)), pointer.value

def free(pointer):
    return cuda.cuMemFree_v2(ctypes.c_uint64(pointer))

def room():
    """Bytes that cuMemGetInfo calls free, and all."""
    free_bytes, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free_bytes), ctypes.byref(total)) == 0
    return free_bytes.value, total.value

def fill(amount):
    """How many pieces of that size there is room for."""
    count = 0
    while alloc(amount)[0] == 0:
        count += 1
    return count

def in_child(work):
    """What a forked child answers."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    answer = os.read(reader, 4096)
    os.close(reader)
    os.waitpid(child, 0)
    return json.loads(answer)

def say(value):
    print(json.dumps(value), flush=True)
'''


@pytest.fixture
def run(a_granted_kernel: Any, a_folder: Any) -> Callable[..., Any]:
    """Return a function that runs a program of the kernel and returns its last line.

    The program is a file, since spawned children import it.
    """

    def run_one(code: str) -> Any:
        program = a_folder / "program.py"
        program.write_text(PRELUDE + textwrap.dedent(code))
        process = a_granted_kernel.start(sys.executable, str(program))
        output, _ = process.communicate(timeout=180)
        assert process.returncode == 0, output
        return json.loads(output.splitlines()[-1])

    return run_one


def test_children_forked_before_cuda_starts_share_the_quota(run: Callable[..., Any]) -> None:
    found = run(
        """
        def child():
            begin()
            return [alloc(1024 * MIB)[0], fill(128 * MIB)]
        first = in_child(child)
        begin()
        kept = alloc(1024 * MIB)[0]
        say([first, kept, in_child(lambda: cuda.cuInit(0)), fill(128 * MIB)])
        """
    )
    first, kept, forked_after, rest = found
    assert first == [0, 8]
    assert kept == 0
    assert forked_after == 3, "as with CUDA, a child forked after cuInit cannot use the driver"
    assert rest == 8


def test_a_child_forked_after_cuda_started_disturbs_nothing(run: Callable[..., Any]) -> None:
    found = run(
        """
        begin()
        before = alloc(512 * MIB)
        errors = in_child(lambda: [alloc(MIB)[0], free(before[1]), cuda.cuCtxSynchronize()])
        say([errors, room()[0], free(before[1]), room()[0]])
        """
    )
    errors, during, freed, after = found
    assert all(errors), "the driver refuses a forked child"
    assert [during, freed, after] == [QUOTA - 512 * MIB, 0, QUOTA]


def test_spawned_workers_and_subprocesses_share_the_quota(run: Callable[..., Any]) -> None:
    found = run(
        """
        def work(amount, queue, done):
            begin()
            queue.put(alloc(amount)[0])
            done.wait(120)

        if __name__ == "__main__":
            begin()
            spawn = multiprocessing.get_context("spawn")
            queue, done = spawn.Queue(), spawn.Event()
            workers = [spawn.Process(target=work, args=(500 * MIB, queue, done)) for _ in range(4)]
            for worker in workers:
                worker.start()
            taken = sorted(queue.get(timeout=90) for _ in workers)
            other = open(__file__).read().split("def work")[0] + "begin(); say(alloc(100 * MIB)[0])"
            done_there = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True)
            sub = json.loads(done_there.stdout)
            left = room()[0]
            done.set()
            for worker in workers:
                worker.join(30)
            say([taken, sub, left])
        """
    )
    taken, sub, left = found
    assert taken == [0, 0, 0, 0]
    assert sub == 2
    assert left == QUOTA - 4 * 500 * MIB


def test_exec_keeps_the_hook_and_gives_back_what_the_old_program_held(run: Callable[..., Any]) -> None:
    found = run(
        """
        if len(sys.argv) == 1:
            begin()
            assert alloc(1900 * MIB)[0] == 0
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        begin()
        say([room()[1], alloc(1900 * MIB)[0], alloc(1900 * MIB)[0]])
        """
    )
    assert found == [QUOTA, 0, 2]


def test_sixty_four_threads_take_the_quota_to_the_byte(run: Callable[..., Any]) -> None:
    found = run(
        """
        begin()
        context = ctypes.c_void_p()
        cuda.cuCtxGetCurrent(ctypes.byref(context))
        counts, gate = [0] * 64, threading.Barrier(64)

        def work(index):
            cuda.cuCtxSetCurrent(context)
            gate.wait()
            held = []
            for _ in range(50):
                error, pointer = alloc(2 * MIB)
                if error == 0:
                    held.append(pointer)
                if len(held) > 8:
                    assert free(held.pop()) == 0
            counts[index] = len(held)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        held = sum(counts)
        say([held, room()[0], fill(2 * MIB)])
        """
    )
    held, left, more = found
    assert held > 64
    assert left == QUOTA - held * 2 * MIB
    assert held + more == QUOTA // (2 * MIB)


def test_a_program_ends_while_daemon_threads_use_the_gpu(run: Callable[..., Any], a_granted_kernel: Any) -> None:
    found = run(
        """
        begin()
        context = ctypes.c_void_p()
        cuda.cuCtxGetCurrent(ctypes.byref(context))
        begun = threading.Semaphore(0)

        def churn():
            cuda.cuCtxSetCurrent(context)
            begun.release()
            while True:
                error, pointer = alloc(MIB)
                free(pointer)

        for _ in range(4):
            threading.Thread(target=churn, daemon=True).start()
        for _ in range(4):
            begun.acquire()
        say("on")
        """
    )
    assert found == "on"


def test_every_byte_is_back_when_the_processes_have_ended(
    run: Callable[..., Any], a_granted_kernel: Any, eventually: Callable[..., Any]
) -> None:
    run("begin(); alloc(700 * MIB); in_child(lambda: 1); say(0)")
    eventually(lambda: a_granted_kernel.lent_bytes() == a_granted_kernel.used_bytes() == 0)
