"""Freed memory: it returns to the system, also from below an object that lives on."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

_PROGRAM = """
import ctypes, os, re, resource, tempfile, threading
from pathlib import Path
from jupyter_aliquot.gateway.serverapp.freed_memory import give_back, keep_little

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

def left_of(pieces, size):
    begin = resident_mib()
    held = [b"x" * size for _ in range(pieces)]
    del held[:-1]
    return resident_mib() - begin, held

def heaps():
    libc = ctypes.CDLL(None)
    libc.fopen.restype, libc.fclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
    with tempfile.NamedTemporaryFile() as told:
        file = libc.fopen(told.name.encode(), b"w")
        libc.malloc_info(0, file)
        libc.fclose(file)
        return len(re.findall("<heap nr", Path(told.name).read_text()))

keep_little(os.environ)
del (large := [b"x" * (16 << 20)])[:]
mebibytes, one = left_of(64, 1 << 20)
before = resident_mib()
small, another = left_of(5_000, 20_000)
give_back()
after = resident_mib() - before
together = threading.Barrier(7)

def work():
    kept = bytes(10_000)
    together.wait()
    together.wait()

threads = [threading.Thread(target=work, daemon=True) for _ in range(6)]
for thread in threads:
    thread.start()
together.wait()
print(mebibytes, small, after, heaps())
together.wait()
"""
_OWN = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_ARENA_MAX": "5"}


def measured(**variables: str) -> list[float]:
    """Run the program; return three amounts of kept memory in MiB, and a number of heaps.

    The amounts are for freed pieces of 1 MiB, for freed small pieces, and for the small pieces
    after they were given back. The heaps are those of seven threads.
    """
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


@pytest.fixture(autouse=True)
def _needs_glibc() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("the C library gives nothing back on request: this needs glibc")


def test_large_pieces_go_back_at_once_and_small_ones_on_request_and_threads_have_few_heaps() -> None:
    mebibytes, small, after, heaps = measured()
    assert mebibytes < 16
    assert small > 50, "by itself it keeps what lies before the last piece, or this shows nothing"
    assert after < 10
    assert heaps <= 2


def test_what_the_environment_says_of_memory_is_left_as_it_is() -> None:
    mebibytes, _, _, heaps = measured(**_OWN)
    assert mebibytes > 50
    assert heaps == 5
