"""What tests of several folders share is imported from here; and which tests run in one process, one after another."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GROUPS = {
    "containers/": "engines",
    "gpu_hook/sanitized/": "sanitized",
    **{f"gpu_hook/hook/test_{name}.py": "hook programs" for name in ("board_notices", "copying", "sanitized")},
}
sys.path.insert(0, str(HERE))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Called by pytest. Tests of a file share fixtures; those of some folders share the engines, or what they build."""
    if not config.pluginmanager.hasplugin("xdist"):  # as on a GPU machine, which has pytest alone
        return
    for item in items:
        place = item.path.relative_to(HERE) if item.path.is_relative_to(HERE) else item.path
        group = next((name for folder, name in GROUPS.items() if str(place).startswith(folder)), str(place))
        item.add_marker(pytest.mark.xdist_group(group))
