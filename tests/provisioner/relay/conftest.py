"""A relay host of the test's own."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from relay_house import House


@pytest.fixture
def a_house() -> Iterator[House]:
    house = House(Path(tempfile.mkdtemp(prefix="aliquot-r-")))
    yield house
    house.end()
    shutil.rmtree(house.runtime.path, ignore_errors=True)


@pytest.fixture
def a_bare_user() -> int:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    return 65534
