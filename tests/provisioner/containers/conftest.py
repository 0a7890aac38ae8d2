"""A container engine whose answers a test chooses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lame_engine import LameEngine


@pytest.fixture
def a_lame_engine() -> Iterator[LameEngine]:
    engine = LameEngine()
    yield engine
    engine.close()
