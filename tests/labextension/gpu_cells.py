"""What cells of the browser tests do on a GPU, as source text."""

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
    """Holds so much memory, not from a pool, which stays on the device; prints ``held!``, which the source has not."""
    return f"""{_OPEN}
held = checked(driver.cuMemAlloc({mib} << 20))
print("held" + "!")
"""


def work(mib: int, seconds: float) -> str:
    """Holds memory and writes it for a while; prints ``worked!``."""
    return f"""{hold(mib)}
import time
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    checked(driver.cuMemsetD8(held, 1, {mib} << 20))
    checked(driver.cuCtxSynchronize())
print("worked" + "!")
"""
