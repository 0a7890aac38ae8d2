"""Measure the cost of containers, relays and adoption, in one run.

They are compared with the plain engine, no relay, and an empty gateway. Bounds, on medians:
container start to the end of the first cell ≤ 1.15 × the plain engine's; a relay adds ≤ 0.4 ms to a
round trip, lets through ≥ 90 % of plain throughput for 100 MB of output and has ≤ 15 MB of memory
of its own; 200 kernels are adopted in ≤ 5 s.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from report import Row, at_least, at_most, publish, read_arguments
from runtime import adoption, containers, output_over_websocket, zmq_kernels
from runtime.output_over_websocket import BrowserKernel
from runtime.zmq_kernels import OUTPUT_BYTES, LocalKernel, a_kernel

from gateway import STOCK, interleave, running_server
from jupyter_aliquot.gpu_hook.paths import RuntimeDir

MB = 1e6
NO_LIMIT = {"ZMQChannelsWebsocketConnection.limit_rate": "False"}


def measure_relay(folder: Path, trips: int, outputs: int) -> list[Row]:
    """Measure one kernel without and one with a relay, over ZeroMQ; 20 relays for their memory."""
    runtime = RuntimeDir(folder / "run")
    with a_kernel(False, runtime) as plain, a_kernel(True, runtime) as relayed:
        kernels = (plain, relayed)
        for kernel in kernels:
            for _ in range(20):
                kernel.execute("pass")
        took = interleave(lambda which: zmq_kernels.seconds_of_a_round_trip(kernels[which]), trips, "round trips")
        flow = interleave(lambda which: zmq_kernels.seconds_of_output(kernels[which]), outputs, "outputs")
    plain_trip, our_trip = (statistics.median(times) * 1e3 for times in took)
    return [
        Row("round trip over ZeroMQ without a relay (median)", plain_trip, "ms"),
        at_most("round trip over ZeroMQ, added by a relay", our_trip - plain_trip, "ms", 0.4),
        *_throughput("over ZeroMQ", flow),
    ]


def measure_memory(folder: Path, count: int) -> list[Row]:
    """Measure the private memory of relays whose kernels have worked."""
    runtime = RuntimeDir(folder / "run")
    with ExitStack() as stack:
        for number in range(count):
            kernel: LocalKernel = stack.enter_context(a_kernel(True, runtime))
            for _ in range(20):
                kernel.execute("print('x' * 1000)")
            print(f"relays: {number + 1} of {count}", flush=True)
        found = zmq_kernels.private_bytes_of_relays(runtime)
    return [at_most(f"private memory of a relay, the largest of {len(found)}", max(found) / MB, "MB", 15)]


def measure_websocket(folder: Path, outputs: int) -> list[Row]:
    """Send 100 MB through a plain Jupyter server and through ours, rate limits off in both."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running_server(folder, "plain", "python3", {**STOCK, **NO_LIMIT})),
            stack.enter_context(running_server(folder, "aliquot", "python3", NO_LIMIT)),
        ]
        kernels = [BrowserKernel(server) for server in servers]
        for kernel in kernels:
            kernel.execute("pass")
        flow = interleave(lambda which: output_over_websocket.seconds_of_output(kernels[which]), outputs, "websockets")
        for kernel in kernels:
            kernel.end()
    return _throughput("over a WebSocket", flow)


def _throughput(way: str, flow: tuple[list[float], list[float]]) -> list[Row]:
    plain, ours = (OUTPUT_BYTES / MB / statistics.median(times) for times in flow)
    return [
        Row(f"100 MB of output {way}, plain (median)", plain, "MB/s"),
        at_least(f"100 MB of output {way}, with a relay against plain", ours / plain, "×", 0.9),
    ]


def measure_adoption(folder: Path, count: int) -> list[Row]:
    found = adoption.measure_adoption(folder, count)
    return [
        Row(f"gateway's start to {count} kernels listed", found.listed_seconds, "s"),
        Row("start of an empty gateway", found.start_seconds, "s"),
        at_most(f"adoption of {count} kernels: the difference", found.seconds, "s", 5),
        Row("then, WebSocket and first cell of one of them", found.first_cell_seconds, "s"),
    ]


SMOKE = {"trips": 5, "outputs": 1, "relays": 1, "kernels": 3, "starts": 1}
PARTS = ("relay", "memory", "websocket", "adoption", "podman", "docker")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trips", type=int, default=400, help="round trips of each kernel")
    parser.add_argument("--outputs", type=int, default=15, help="outputs of 100 MB of each kernel")
    parser.add_argument("--relays", type=int, default=20, help="relays whose memory is read")
    parser.add_argument("--kernels", type=int, default=200, help="kernels to adopt")
    parser.add_argument("--starts", type=int, default=25, help="container starts of each kind")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS, help="only these")
    asked = read_arguments(parser, SMOKE)
    measures: dict[str, Callable[[Path], list[Row]]] = {
        "relay": lambda folder: measure_relay(folder, asked.trips, asked.outputs),
        "memory": lambda folder: measure_memory(folder, asked.relays),
        "websocket": lambda folder: measure_websocket(folder, asked.outputs),
        "adoption": lambda folder: measure_adoption(folder, asked.kernels),
        "podman": lambda folder: containers.measure(folder, "podman", asked.starts),
        "docker": lambda folder: containers.measure(folder, "docker", asked.starts),
    }
    rows: list[Row] = []
    for part in asked.parts:
        folder = Path(tempfile.mkdtemp(prefix="aqb-", dir="/tmp"))
        os.environ["ALIQUOT_RUNTIME_DIR"] = str(folder / "run")
        try:
            rows += measures[part](folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(0 if publish(asked, "runtime", "software GPU", rows) else 1)


if __name__ == "__main__":
    sys.exit(main())
