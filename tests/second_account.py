"""Play another account of this machine, which only root can, and which needs no entry in /etc/passwd."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

import pytest

ANOTHER = 65534


def as_another(tell: Callable[[], str], uid: int = ANOTHER) -> str:
    """Return the result of *tell* in a forked process of the account *uid*.

    The fork keeps the modules that are loaded, since the other account may not be able to read this
    Python. Skips the test without root. A traceback of the process is its result.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can play another user")
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reading)
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            said = tell()
        except BaseException:
            said = traceback.format_exc()
        os.write(writing, said.encode()[:60_000])
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said
