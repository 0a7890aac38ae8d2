"""A runtime folder without room: kernels restart and end as ever, and a start explains the lack."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from relay_house import Gateway, House, ipykernel, kill_and_wait, lives, until

from jupyter_aliquot.provisioner.errors import RelayRefusedError
from jupyter_aliquot.provisioner.relay.client import control as client


@pytest.fixture
def a_small_house() -> Iterator[House]:
    """A house whose runtime folder is a file system of 1 MiB, because /run may be nearly full."""
    folder = Path(tempfile.mkdtemp(prefix="aliquot-r-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True)
    if mounted.returncode:
        folder.rmdir()
        pytest.skip(f"no mounts here: {mounted.stderr.decode().strip()}")
    house = House(folder)
    try:
        yield house
    finally:
        house.end()
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def files(output: Path) -> list[Path]:
    """Return what kernels wrote below a folder, from which others remove folders at any time."""
    found = [Path(folder) / name for folder, _, names in os.walk(output) for name in names]
    return [path for path in found if len(path.relative_to(output).parts) == 3]


def fill(folder: Path) -> None:
    with open(folder / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def room(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def test_kernels_restart_and_end_and_only_starts_fail_and_say_why(a_small_house: House) -> None:
    async def scene() -> None:
        folder = a_small_house.runtime.path
        record = await a_small_house.kernel()
        gateway = await Gateway(record).connect()
        await gateway.idle(gateway.execute("x = 7"))
        fill(folder)
        assert room(folder) == 0
        cell = gateway.execute("print(x)")
        await gateway.idle(cell)
        assert gateway.outputs(cell) == "7\n"
        assert record.kernel is not None
        for code in ("y = 1", "y = 2", "y = 3"):
            os.killpg((client.read_relay_record(record.folder).kernel or record.kernel).pid, signal.SIGKILL)
            await gateway.until(lambda event: getattr(event, "state", "") == "ended")
            fill(folder)  # the room that it freed
            process = await client.spawn(record, ipykernel(record))
            assert process.pid != record.kernel.pid
            await gateway.until(lambda event: getattr(event, "state", "") == "started")
            await gateway.idle(gateway.execute(code))
        with pytest.raises(RelayRefusedError, match=f"the runtime folder {folder} is full; make room in it"):
            await a_small_house.relay()
        assert lives(record), "no kernel ended for it"
        (folder / "filler").unlink()
        await until(lambda: (client.read_relay_record(record.folder).kernel or record.kernel).pid == process.pid)
        await a_small_house.relay()
        await client.stop_relay(record)
        await until(lambda: not lives(record))

    asyncio.run(scene())


def test_a_flood_that_no_client_takes_leaves_the_runtime_folder_its_room(
    a_small_house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALIQUOT_SPILL_DIR", str(tmp_path / "output"))

    async def scene() -> None:
        record = await a_small_house.kernel(memory_bytes=1 << 20, user="mallory", user_store_bytes=16 << 20)
        other = await a_small_house.relay(user="alice")
        gateway = await Gateway(record).connect()
        cell = gateway.execute("for i in range(400): print('x' * 100_000, flush=True)\nprint('the end')")
        gateway.link.close()
        await until(lambda: any(files(tmp_path / "output")))
        again = await Gateway(record, "later").connect(attach=False)
        await again.until(lambda event: isinstance(event, client.Activity) and event.open == 0)
        assert room(a_small_house.runtime.path) > 0, "starts need it"
        assert sum(path.stat().st_size for path in files(tmp_path / "output")) <= 16 << 20
        await client.spawn(other, ipykernel(other))
        again.link.attach("later")
        await again.idle(cell)
        output = again.outputs(cell)
        assert output.endswith("the end\n")
        assert "c.Limits.unsent_output_bytes_per_user" in output, "its owner is told which bound was met"
        a_small_house.kill_host()
        kill_and_wait(record.pid)
        assert record.kernel is not None
        os.killpg(record.kernel.pid, signal.SIGKILL)
        await a_small_house.start()
        await until(lambda: not any(files(tmp_path / "output")))

    asyncio.run(scene())
