"""A process that holds a context.

Without it, a driver without persistence mode starts its GPU anew for each program.
"""

from __future__ import annotations

import subprocess
import sys

import gpu_tests

_PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
context = ctypes.c_void_p()
code = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
sys.stdin.read()
"""


class Keeper:
    """A context on the machine's first GPU. It sets nothing, and ends when its input ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        driver = gpu_tests.load_paths().nvidia_driver()
        if self._process is None and driver is not None:
            command = [sys.executable, "-c", _PROGRAM, str(driver.cuda)]
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
            )

    def stop(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
