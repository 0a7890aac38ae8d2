"""Record two processes on one device: their steps alone and next to each other.

The trace includes the raw activity that the hook reported to the agent, and NVML's samples. The
model of how processes share a device uses it (tests/benchmarks/test_plant.py).
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .context import Context
from .steps import KERNEL_BYTES

LENGTHS_US = (50, 1000, 20000)
LAUNCHES_US = 20000  # launches of a step are together at least this long
WINDOW_SECONDS = {"nvidia": 2.5, "softgpu": 0.4}
SETTLE_SECONDS = {"nvidia": 0.5, "softgpu": 0.1}
SAMPLE_SECONDS = 0.05
MOST_STEPS = 400  # of one window, in the trace


def run(context: Context) -> None:
    """Measure every length alone, then every pair of different lengths."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    try:
        _record(context, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _record(context: Context, folder: Path) -> None:
    context.paths()
    from compute_gpu import base_environment, compile_load
    from gpu_loads.node import a_node
    from gpu_loads.workers import Worker

    driver = context.driver()
    program = compile_load(folder, driver.cuda)
    lengths = LENGTHS_US[1:] if context.is_soft else LENGTHS_US
    kernels = {f"spin-{length}": "production" for length in lengths}
    base = base_environment(driver, folder / "node")
    with a_node(folder / "node", context.gpu, "measured", kernels, KERNEL_BYTES, base) as node:
        workers = {
            name: Worker(name, _command(program, int(name.partition("-")[2])), node.environments[name],
                         context.file(f"{name}.log"), can_repeat=False)
            for name in kernels
        }  # fmt: skip
        windows = [(name,) for name in workers]
        windows += [(one, other) for one in workers for other in workers if one < other]
        os.environ.update({name: base[name] for name in base if name.startswith("ALIQUOT_SOFTGPU_")})  # for NVML
        recorder = _Recorder(context, folder / "node", _Nvml(driver.nvml))
        try:
            for names in windows:
                _run_window(context, recorder, [workers[name] for name in names])
        finally:
            for worker in workers.values():
                worker.close()


def _command(program: Path, length: int) -> list[str]:
    return [str(program), f"length_us={length}", f"launches={max(1, LAUNCHES_US // length)}"]


def _run_window(context: Context, recorder: _Recorder, workers: Sequence[Any]) -> None:
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.await_ready()
    for worker in workers:
        worker.begin()
    names = [worker.name for worker in workers]
    recorder.record(names, SETTLE_SECONDS[context.gpu] + WINDOW_SECONDS[context.gpu])
    steps = {worker.name: worker.end() for worker in workers}
    kept = {name: [(round(step.begin, 1), round(step.length, 1)) for step in some] for name, some in steps.items()}
    recorder.write({"window": names, "steps": {name: some[-MOST_STEPS:] for name, some in kept.items()}})
    medians = {name: statistics.median(step.length for step in some) if some else None for name, some in steps.items()}
    context.tell(window=names, step_us=medians, steps={name: len(some) for name, some in steps.items()})
    if not all(steps.values()):
        context.fail(f"{' beside '.join(names)}: a program ended no step")


class _Nvml:
    """NVML's own samples of all devices, by process: the agent computes its figures from them."""

    def __init__(self, library: Path) -> None:
        """Load the library first: pynvml then finds this one under the name that it requests."""
        ctypes.CDLL(os.fspath(library), mode=ctypes.RTLD_GLOBAL)
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        self._seen = [0] * len(self._devices)  # newest sample of each, microseconds since the epoch

    def read(self) -> list[dict[str, Any]]:
        """Return the samples since the last call.

        ``samples``: process, microseconds since the epoch, percent of the SMs.
        """
        return [self._read_device(number) for number in range(len(self._devices))]

    def _read_device(self, number: int) -> dict[str, Any]:
        device = self._devices[number]
        found = self._ask(self._nvml.nvmlDeviceGetProcessUtilization, device, self._seen[number]) or []
        samples = [[int(one.pid), int(one.timeStamp), int(one.smUtil)] for one in found]
        self._seen[number] = max([self._seen[number], *(when for _, when, _ in samples)])
        rates = self._ask(self._nvml.nvmlDeviceGetUtilizationRates, device)
        return {"device": number, "percent": None if rates is None else int(rates.gpu), "samples": samples}

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """Query NVML; return None if the device has no answer or nothing new."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


class _Recorder:
    """Writes trace.jsonl: the agent's status, the activity pages and NVML's samples, every SAMPLE_SECONDS."""

    def __init__(self, context: Context, runtime: Path, nvml: _Nvml) -> None:
        self._path, self._runtime, self._nvml = context.work / "trace.jsonl", runtime, nvml
        from jupyter_aliquot.gpu_hook.client import client
        from jupyter_aliquot.gpu_hook.protocol import codec as protocol

        self._client, self._protocol = client, protocol

    def write(self, record: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def record(self, names: list[str], seconds: float) -> None:
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            status = self._client.query("status", runtime_dir=self._runtime)
            kernels = [one for one in status["kernels"] if one["kernel_id"] in names]
            devices = {one["kernel_id"]: one["devices"] for one in kernels}
            pids = {one["kernel_id"]: one["pids"] for one in kernels}
            told = {
                "kernels": devices,
                "pids": pids,
                "activity_pages": list(self._activity_pages()),
                "nvml": self._nvml.read(),
            }
            self.write({"at": now, "window": names, **told})
            time.sleep(max(0.0, SAMPLE_SECONDS - (time.monotonic() - now)))  # the rate of the samples

    def _activity_pages(self) -> Iterator[dict[str, Any]]:
        """Return the activity pages that the agent holds, read through its own descriptors."""
        activity_page = self._protocol.ActivityPage
        pid = int(json.loads((self._runtime / "agent.json").read_text())["pid"])
        seen: set[int] = set()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if "aliquot-activity-page" not in os.readlink(entry) or (inode := entry.stat().st_ino) in seen:
                    continue
                with entry.open("rb") as file:
                    seen.add(inode)
                    page = mmap.mmap(file.fileno(), self._protocol.ACTIVITY_PAGE_BYTES, prot=mmap.PROT_READ)
            except OSError:  # closed in the meantime, or not readable for us
                continue
            words = memoryview(page).cast("Q")[activity_page.DEVICES // 8 :].tolist()
            yield {"activity_page": inode, "words": words[:4], "intervals": words[4 : 4 + 64]}
