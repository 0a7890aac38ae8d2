"""The part of `make bench-runtime` that needs container engines runs.

It takes seconds and judges nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from container_engines import Engine
from smoke import smoke_rows


def test_the_benchmark_of_containers_has_a_smoke_run(an_engine: Engine, tmp_path: Path) -> None:
    rows = smoke_rows("runtime", tmp_path, "--parts", an_engine.name)
    assert f"container start on {an_engine.name}, ratio of medians" in rows
