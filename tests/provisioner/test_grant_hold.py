"""The remains of a grant's hold when its process goes."""

from __future__ import annotations

import subprocess
import sys

_A_PROCESS = """
import asyncio, logging
from pathlib import Path
from jupyter_aliquot.provisioner.grants.reservation import GrantHold, Names
from jupyter_aliquot.provisioner.resources import Grant, GpuShare, Request, WorkloadClass

class Held:
    async def lost(self): await asyncio.Event().wait()
    async def close(self, ending=None): print("closed")

async def begin():
    request = Request(gpus=GpuShare(25), memory_limit=None, workload_class=WorkloadClass.PRODUCTION)
    grant = Grant("k-1", "ada", request, "a-node", (), "", ())
    hold = GrantHold(grant, Names("", "python3"), Held(), Path("."), logging.getLogger())
    await asyncio.sleep(0)
    return hold

loop = asyncio.new_event_loop()
hold = loop.run_until_complete(begin())
"""


def test_a_process_that_stops_its_loop_and_exits_closes_the_hold_and_complains_of_no_task() -> None:
    done = subprocess.run([sys.executable, "-c", _A_PROCESS], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("closed\n", "")
