"""Source text of cells that browser tests run on a GPU."""

from __future__ import annotations

_OPEN = """
from cuda.bindings import driver
def checked(answer):
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer[0].name
    return answer[-1]
checked(driver.cuInit(0))
checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(0))))))
"""


def hold(mib: int) -> str:
    """Return a cell that holds so much memory on the device, not from a pool.

    It prints ``held!``, which its source does not contain.
    """
    return f"""{_OPEN}
held = checked(driver.cuMemAlloc({mib} << 20))
print("held" + "!")
"""


def work(mib: int, seconds: float) -> str:
    """Return a cell that holds memory and writes it for a while; it prints ``worked!``."""
    return f"""{hold(mib)}
import time
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    checked(driver.cuMemsetD8(held, 1, {mib} << 20))
    checked(driver.cuCtxSynchronize())
print("worked" + "!")
"""
