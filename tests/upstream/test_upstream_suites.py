from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from .conftest import PLAIN, RELAYS, Below, Suite

SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
SHORT = Suite("jupyter_kernel_test", ("test_ipykernel.py",), 300)
SERVER = Suite("jupyter_server", ("tests/services/kernels", "tests/services/sessions"), 1500)
LONG = (
    Suite("nbclient", ("tests/test_client.py",), 900),
    SERVER,
)
# They want a start to fail whose kernelspec names no program. The container of a pod starts, and ends by itself.
WITHOUT_PROGRAM = (
    "test_create_bad",
    "test_create_bad_pending",
    "test_cull_dead",
    "test_kernel_handler_startup_error",
    "test_kernel_handler_startup_error_pending",
)


@pytest.mark.soak(alone="runs the test suites of Jupyter")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suite", [SHORT, *(LONG if SOAK > 1 else ())], ids=lambda suite: suite.package)
def test_what_passes_plain_passes_on_relays(suite: Suite, upstream: Any) -> None:
    assert broken(suite, upstream, RELAYS) == set()
    # Tests of nbclient leave kernels that only the end of their process ends; their relays end a
    # moment after it.
    assert upstream.relays_left() == []


@pytest.mark.soak(alone="runs a test suite of Jupyter")
@pytest.mark.timeout(3600)
def test_what_passes_plain_passes_as_pods(upstream: Any, pods: Any) -> None:
    found = broken(SERVER, upstream, pods)
    others = {name for name in found if name.partition("::")[2].partition("[")[0] not in WITHOUT_PROGRAM}
    assert not others, "\n".join(sorted(others))
    assert upstream.relays_left() == []


def broken(suite: Suite, upstream: Any, below: Below) -> set[str]:
    """Return the tests that fail on what is below, and pass plain."""
    plain = upstream.run(suite, PLAIN)
    ours = upstream.run(suite, below)
    print(suite.package, Counter(plain.values()), Counter(ours.values()))
    assert plain.keys() == ours.keys()
    assert "passed" in plain.values()
    found = {name for name, outcome in ours.items() if outcome == "failed" and plain[name] != "failed"}
    # Some of these tests fail now and then without us, too: a test that failed once has to fail
    # twice.
    again = upstream.run(suite, below) if found else {}
    return {name for name in found if again[name] == "failed"}
