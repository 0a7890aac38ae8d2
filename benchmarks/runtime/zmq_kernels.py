"""Kernels as jupyter_client starts them, with or without a relay: round trip, output, memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from traitlets.config import Config

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.client.control import read_relay_records

ANSWER_SECONDS = 60.0
CHUNK = 250_000
OUTPUT_BYTES = 100_000_000
# One message for each chunk, as a library sends that shows many large results.
OUTPUT_CODE = (
    "from IPython.display import publish_display_data\n"
    f"for _ in range({OUTPUT_BYTES // CHUNK}):\n"
    f"    publish_display_data({{'text/plain': 'x' * {CHUNK}}})"
)


class LocalKernel:
    """One ipykernel and a client of it over its ZeroMQ sockets."""

    def __init__(self, has_relay: bool, runtime: RuntimeDir) -> None:
        factory = KernelProvisionerFactory.instance()
        factory.default_provisioner_name = "aliquot" if has_relay else "local-provisioner"
        config = Config({"AliquotProvisioner": {"relay": has_relay, "runtime_dir": str(runtime.path)}})
        self.manager = KernelManager(kernel_name="python3", config=config, transport="ipc")
        self.manager.start_kernel()
        client = self.manager.client()
        assert isinstance(client, BlockingKernelClient)
        self.client = client
        client.start_channels()
        client.wait_for_ready(timeout=ANSWER_SECONDS)

    def execute(self, code: str) -> int:
        """Run a cell until its reply and idle; return the bytes of text that came."""
        message_id = self.client.execute(code, store_history=False, allow_stdin=False)
        count, is_idle = 0, False
        while not is_idle:
            message = self.client.get_iopub_msg(timeout=ANSWER_SECONDS)
            if message["parent_header"].get("msg_id") != message_id:
                continue
            content = message["content"]
            count += len(content.get("data", {}).get("text/plain", ""))
            is_idle = message["msg_type"] == "status" and content["execution_state"] == "idle"
        while self.client.get_shell_msg(timeout=ANSWER_SECONDS)["parent_header"].get("msg_id") != message_id:
            pass
        return count

    def drain(self) -> None:
        """Read messages that came before, so that they are not timed."""
        try:
            while True:
                self.client.get_iopub_msg(timeout=0.05)
        except Empty:
            return

    def end(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@contextmanager
def a_kernel(has_relay: bool, runtime: RuntimeDir) -> Iterator[LocalKernel]:
    kernel = LocalKernel(has_relay, runtime)
    try:
        kernel.drain()
        yield kernel
    finally:
        kernel.end()


def seconds_of_a_round_trip(kernel: LocalKernel) -> float:
    begin = time.perf_counter()
    kernel.execute("pass")
    return time.perf_counter() - begin


def seconds_of_output(kernel: LocalKernel) -> float:
    """Return the seconds for 100 MB in messages of 250 kB.

    Raises AssertionError when a byte is missing.
    """
    begin = time.perf_counter()
    count = kernel.execute(OUTPUT_CODE)
    elapsed = time.perf_counter() - begin
    assert count == OUTPUT_BYTES + 0, f"Requested {OUTPUT_BYTES} bytes of output, but {count} came"
    return elapsed


def private_bytes_of_relays(runtime: RuntimeDir) -> list[int]:
    """Return the memory that each living relay shares with no other process."""
    return [_private_bytes(record.pid) for record in read_relay_records(runtime) if record.is_alive]


def _private_bytes(pid: int) -> int:
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            total += int(line.split()[1]) * 1024
    return total
