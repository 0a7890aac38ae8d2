"""A gateway's queue and local socket without its HTTP server, for accounts that the machine does not have.

``python -m load.door_gateway FOLDER FIRST_UID ACCOUNTS``: the accounts from FIRST_UID on are entries of a
table in this process, in the place of the machine's list; root's list of accounts is a file in FOLDER.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import sys
from pathlib import Path

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.kernels.account_users import AccountUsers
from jupyter_aliquot.gateway.node.callers import Callers
from jupyter_aliquot.gateway.node.connection import AgentLink
from jupyter_aliquot.gateway.node.grant_server import LocalSocket
from jupyter_aliquot.gateway.scheduling.admission import Admission, AdmissionSettings
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.resources import GpuShare

LOG = logging.getLogger("door")


def make_accounts(first: int, count: int) -> None:
    """Answer the system's questions about these accounts."""
    entries = {
        f"user{number:03d}": pwd.struct_passwd(
            (f"user{number:03d}", "x", first + number, first + number, "", f"/home/user{number:03d}", "/bin/sh")
        )
        for number in range(count)
    }
    by_uid = {entry.pw_uid: entry for entry in entries.values()}
    pwd.getpwnam = entries.__getitem__  # the machine keeps its own list
    pwd.getpwuid = by_uid.__getitem__


async def main(folder: Path, first: int, count: int) -> None:
    runtime = RuntimeDir(folder / "run")
    if os.geteuid() == 0:
        make_accounts(first, count)
        listed = folder / "kernel-accounts"
        listed.write_text(f"{first}-{first + count}\n")
        users = AccountUsers({}, {}, listed)
    clock = SystemClock()
    link = AgentLink(runtime.path, clock, None, LOG)
    caps = GpuCaps(each_user=GpuShare(100))
    admission = Admission(link, clock, AdmissionSettings(caps=caps), LOG)
    callers = Callers(users.of if os.geteuid() == 0 else None)
    local = LocalSocket(runtime, admission, LOG, lambda owner: frozenset({"users"}), callers)
    await link.start()
    await admission.start()
    await local.start()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await local.stop()
    await admission.stop()
    await link.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
