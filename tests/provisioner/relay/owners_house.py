"""A relay host of root, with accounts of its own, and what a test looks up of its processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from made_accounts import GATEWAY, UIDS, MadeAccounts
from namespaced import can_enter
from relay_house import House

from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord

ADA, BOB = UIDS["ada"], UIDS["bob"]
SLEEP = (sys.executable, "-c", "import time; time.sleep(1000)")
ENV = {"PATH": "/usr/bin:/bin"}


class OwnersHouse(House):
    """A house whose host runs as root where the accounts are."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o711)
        super().__init__(folder / "run")
        self.accounts = MadeAccounts(folder)
        host = [sys.executable, "-m", "jupyter_aliquot.provisioner.relay", f"--account={GATEWAY}"]
        self.account_list = folder / "kernel-accounts"
        self._host = [*host, f"--spill-dir={folder / 'spill'}"]
        self._start_with()

    def _start_with(self, *options: str) -> None:
        command = self.accounts.command([*self._host, *options])
        self.settings = replace(self.settings, command=tuple(command))

    def run_host_below(self, *command: str) -> None:
        """Have this command run the host."""
        self._host = [*command, *self._host]
        self._start_with()

    def name_list(self, lines: str | None) -> None:
        """Name root's list of accounts to the host, and write it; without lines there is no file."""
        if lines is not None:
            self.account_list.write_text(lines)
        self._start_with(f"--kernel-accounts={self.account_list}")

    async def sleeper(self, account: str = "ada", cwd: str | None = None) -> RelayRecord:
        """Start a relay of the account, and a program below it."""
        record = await self.relay(account=account)
        await client.spawn(record, client.KernelLaunch(SLEEP, ENV, cwd))
        return client.read_relay_record(record.folder)


@contextmanager
def an_owners_house(megabytes: int = 0) -> Iterator[OwnersHouse]:
    """Yield a house, and end all that was started in it.

    *megabytes*: the size of its runtime folder's file system, which is memory as /run is; 0: that of
    /tmp.
    """
    if not can_enter():
        pytest.skip("only root can start programs as other accounts, in a mount namespace of their own")
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    if megabytes:
        (folder / "run").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", folder / "run"], check=True)
    house = OwnersHouse(folder)
    try:
        yield house
    finally:
        house.end()
        if megabytes:
            subprocess.run(["umount", "--lazy", folder / "run"], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def kernel_pid(record: RelayRecord) -> int:
    assert record.kernel is not None
    return record.kernel.pid


def status_of(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))
