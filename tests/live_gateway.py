"""A gateway of two users with its own node agent on the software GPU, for tests of programs that ask one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import warm_start
from ports import free_port

TOKEN = "alices-token-of-this-test"
START_SECONDS = 120.0
CONFIGURATION = f"""
c.AliquotIdentityProvider.users = {{"alice": {{"token": "{TOKEN}"}}, "bob": {{"token": "bobs"}}}}
c.Aliquot.driver = "softgpu"
c.Aliquot.agent_options = ["--softgpu-memory", "16GiB", "--overcommit", "1"]
c.Aliquot.keep_kernels = "never"
"""


@dataclass(frozen=True)
class LiveGateway:
    """A gateway that answers at ``url``, in a folder of its own."""

    folder: Path
    url: str


@contextlib.contextmanager
def a_live_gateway() -> Iterator[LiveGateway]:
    """Run the gateway until the context's end. It has its agent when it is yielded."""
    folder, port = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp")), free_port()
    url = f"http://127.0.0.1:{port}/"
    (folder / "gateway.py").write_text(CONFIGURATION)
    words = ["serve", f"--config={folder}/gateway.py", f"--port={port}", "--allow-root", "--ServerApp.port_retries=0"]
    cleared = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "ALIQUOT_RUN", "XDG_", "KERNEL_"))}
    with (folder / "log").open("wb") as log:
        process = warm_start.start(
            warm_start.SERVER,
            [*warm_start.ALIQUOT, *words],
            cwd=folder,
            env={**cleared, "HOME": str(folder), "ALIQUOT_RUNTIME_DIR": str(folder / "run")},
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _is_whole(url):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)  # between two looks: a port has no event
        yield LiveGateway(folder, url)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()
            shutil.rmtree(folder, ignore_errors=True)


def _is_whole(url: str) -> bool:
    """Tell whether the gateway answers, and has its node agent."""
    request = urllib.request.Request(f"{url}aliquot/api/v1/status", headers={"Authorization": f"token {TOKEN}"})
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
        return bool(json.load(answer)["node"]["agent"] == "ok")
    return False
