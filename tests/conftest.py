"""Import the fixtures that tests of several folders share.

Also choose the tests that run in one process, one after another.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("jupyter_aliquot.gateway") is not None:  # a GPU machine has the hook and the agent alone
    import jupyter_aliquot.gateway.serverapp.lazy_rfc3987  # noqa: F401 (a second of each worker's start)

sys.path.insert(0, str(Path(__file__).parent))
import left_out_table

HERE = Path(__file__).parent
GROUPS = {
    "containers/": "engines",
    "gpu_hook/sanitized/": "sanitized",
    **{f"gpu_hook/hook/test_{name}.py": "hook programs" for name in ("activity_notices", "copying", "sanitized")},
    **{f"gpu_hook/test_gpu_{name}.py": "build/gpu" for name in ("first", "rehearsal")},
}
# In this order: groups that one worker runs for minutes, then files with long tests. Other files
# are short, and are shared at the end: a worker takes a next file when two tests of its own are
# left, and keeps it if these are long.
FIRST = (
    *("containers/", "gpu_hook/sanitized/"),
    *(f"gpu_hook/hook/test_{name}.py" for name in ("activity_notices", "copying", "sanitized")),
    *("gpu_hook/test_gpu_first.py", "gpu_hook/test_gpu_rehearsal.py"),
    *("gpu_hook/agent/test_sharing.py", "gpu_hook/agent/test_swap_cycles.py", "gateway/kernels/"),
    *("hub/", "labextension/", "system/", "provisioner/", "gateway/rest/", "gateway/remote/", "gateway/link/"),
    *("gpu_hook/clients/", "gpu_hook/fuzz/", "gpu_hook/hook/", "gpu_hook/softgpu/", "gpu_hook/agent/"),
)
SHOWN_GROUPS = 12
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # ignored in a shell's background job
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Prepare the run. Called by pytest, before it reads tests.

    The time of a hypothesis example shows how busy the machine is, and no more. Contexts of the
    software GPU cost nothing unless a test says otherwise: many tests count bytes of limits and of
    devices. gRPC's handlers of forks end children of a process in which its threads run.
    """
    os.environ.setdefault("ALIQUOT_SOFTGPU_CONTEXT", "0")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    if importlib.util.find_spec("hypothesis") is None:
        return
    from hypothesis import HealthCheck, settings

    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("patient", parent=patient)
    settings.load_profile("patient")


@pytest.hookimpl(optionalhook=True)  # a GPU machine has pytest alone
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler of groups. Called by xdist.

    Tests of a file share fixtures; those of some folders share the engines, or their builds.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        """Schedules groups of files.

        xdist's own marks do not serve: xdist writes them into names of tests, which pytest 9.2
        leaves as they are.
        """

        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


def group_of(nodeid: str) -> str:
    """Return the group that one worker runs in one piece: a file, or several."""
    place = nodeid.split("::")[0].removeprefix(f"{HERE.name}/")
    return next((name for folder, name in GROUPS.items() if place.startswith(folder)), place)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the groups; the order within a folder stays. Called by pytest.

    Leave out what `make soak` alone runs: ``@pytest.mark.soak(alone=REASON)``.
    """
    for item in items:
        reason = next((mark.kwargs["alone"] for mark in item.iter_markers("soak") if "alone" in mark.kwargs), None)
        if reason is not None and "ALIQUOT_SOAK" not in os.environ:
            item.add_marker(pytest.mark.skip(reason=f"{reason}: make soak"))

    @functools.cache
    def rank(path: Path) -> int:
        place = path.relative_to(HERE).as_posix() if path.is_relative_to(HERE) else ""
        return next((number for number, first in enumerate(FIRST) if place.startswith(first)), len(FIRST))

    items.sort(key=lambda item: rank(item.path))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the tables of left-out parts and workers. Called by pytest, before its own last lines."""
    show_workers(terminalreporter)
    for line in left_out_table.lines(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)


def show_workers(terminalreporter: Any) -> None:
    """Show which groups keep one of several workers busy, for FIRST, and whether all workers were."""
    groups: Counter[str] = Counter()
    workers: Counter[str] = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if isinstance(report, pytest.TestReport) and hasattr(report, "node"):
            groups[group_of(report.nodeid)] += report.duration
            workers[report.node.gateway.id] += report.duration
    if workers:
        busy = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in sorted(workers.items()))
        longest = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in groups.most_common(SHOWN_GROUPS))
        terminalreporter.write_line(f"workers in tests: {busy}\nthe longest groups: {longest}")
