"""What was freed goes back to the system, also where something that lives on lies behind it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import ctypes, sys
from pathlib import Path
from aliquot.gateway.freed_memory import give_back, keep_little

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

if not hasattr(ctypes.CDLL(None), "malloc_trim"):
    sys.exit("no glibc")
keep_little()
begin = resident_mib()
large = bytes(100 << 20)
del large
pieces = [bytes(20_000) for _ in range(5_000)]
del pieces[:-1]
kept = resident_mib() - begin
give_back()
print(kept, resident_mib() - begin)
"""


def test_holes_before_what_lives_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    if "no glibc" in done.stderr:
        pytest.skip("the C library gives nothing back on request: this needs glibc")
    assert done.returncode == 0, done.stderr
    kept, left = map(float, done.stdout.split())
    assert kept > 50, "by itself it keeps what lies before the last piece, or this shows nothing"
    assert left < 10
