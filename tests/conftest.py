"""What tests of several folders share is imported from here; and which tests run in one process, one after another."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path
from typing import Any

import aliquot.gateway.commands.late_grammar  # noqa: F401 (a second of each worker's start)
import pytest

HERE = Path(__file__).parent
GROUPS = {
    "containers/": "engines",
    "gpu_hook/sanitized/": "sanitized",
    **{f"gpu_hook/hook/test_{name}.py": "hook programs" for name in ("board_notices", "copying", "sanitized")},
}
# Long ones, of which one worker has to run all, or each test: at the end the workers have short ones to share.
FIRST = ("containers/", "gpu_hook/sanitized/", "hub/", "labextension/", "system/")
sys.path.insert(0, str(HERE))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a shell's background job; what tests start would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Called by pytest, before it reads tests. How long an example takes says how busy the machine is, and no more."""
    if importlib.util.find_spec("hypothesis") is None:
        return
    from hypothesis import HealthCheck, settings

    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("patient", parent=patient)
    settings.load_profile("patient")


@pytest.hookimpl(optionalhook=True)  # a GPU machine has pytest alone
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Called by xdist. Tests of a file share fixtures; those of some folders share the engines, or what they build."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        """Not by xdist's own marks: it writes them into names of tests, which pytest 9.2 leaves as they are."""

        def _split_scope(self, nodeid: str) -> str:
            place = nodeid.split("::")[0].removeprefix(f"{HERE.name}/")
            return next((name for folder, name in GROUPS.items() if place.startswith(folder)), place)

    return ByGroup(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called by pytest. The order within a folder stays."""
    places = [item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else "" for item in items]
    items[:] = [
        item for _, item in sorted(zip(places, items, strict=True), key=lambda pair: not pair[0].startswith(FIRST))
    ]
