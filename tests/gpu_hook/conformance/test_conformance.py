"""Every claim of the C suite, on the driver itself and through the hook: the answers are the same.

They are, whatever the hook does with the memory.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXIT_SKIPPED = 77
SECONDS = 60
WAYS = {
    "bare": "the driver itself",
    "hooked": "through the hook",
    "swappable": "where all linear memory is swappable",
    "swapped": "where all of it is taken out before every call",
    "paced": "where launches wait for their share of the device's time",
    "paged": "where all linear memory is unified memory, prefetched to the host before every call",
}
# Memory that is mapped by the virtual-memory API has no legacy IPC handle, on any driver: docs/reference/hook.md.
NEVER_SWAPPABLE = {"ipc_memory", "ipc_events-a_stream_waits_for_another_processs_record"}
# A swap waits for the device, so that nothing is under way after it; and what pools and graphs keep unused goes.
NEVER_SWAPPED = {
    "contention",
    "events-an_event_is_not_ready_before_its_stream_reaches_it",
    "events-time_needs_two_recorded_events_that_measure",
    "events-the_latest_record_is_the_one_that_counts",
    "ipc_events",
    "graph_memory",
    "pools-a_pool_keeps_what_its_threshold_allows",
    "pools-trimming_keeps_at_least_what_was_asked",
    "pools-memory_freed_earlier_in_the_stream_serves_again_without_waiting",
}
# Unified memory may be more than the device has, takes what its pages take, and can be advised: docs/explanation.
NEVER_PAGED = {
    "linear-more_than_the_device_is_out_of_memory",
    "swappable-a_strict_capture_refuses_and_a_relaxed_one_allows",
    "managed-prefetches_refuse_other_memory_and_other_places",
    "managed_advice-ranges_refuse_other_memory_and_odd_sizes",
    "managed_advice-memory_is_attached_as_a_whole_and_not_to_the_null_stream_alone",
}
# What a move could hurt most; the others are swapped in soak tests.
OFTEN_SWAPPED = {
    "swappable",
    "linear",
    "copies",
    "graphs",
    "vmm_handles",
    "vmm_mappings",
    "vmm_segments",
    "vmm_sharing",
    "contexts",
}
# Events around launches show how long these waited.
NEVER_PACED = {"contention", "green-what_fills_the_device_takes_two_waves_on_half_of_it"}
# What is measured or held where launches wait; the others do so in soak tests.
OFTEN_PACED = {"events", "graphs", "launch", "streams"}
SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))


def is_long(way: str, family: str) -> bool:
    """Return whether the test is for `make soak` alone."""
    often = {"swapped": OFTEN_SWAPPED, "paged": OFTEN_SWAPPED, "paced": OFTEN_PACED}
    return way in often and family not in often[way]


def is_claimed(way: str, family: str, name: str) -> bool:
    names = {family, f"{family}-{name}"}
    if way in ("swapped", "paged"):
        never = NEVER_SWAPPABLE | NEVER_SWAPPED | (NEVER_PAGED if way == "paged" else set())
        return not names & never and (SOAK > 1 or not is_long(way, family))
    if way == "paced":
        return not names & NEVER_PACED and (SOAK > 1 or not is_long(way, family))
    return way != "swappable" or not names & NEVER_SWAPPABLE


CLAIMS = [
    (source.stem, name)
    for source in sorted(HERE.glob("*.c"))
    for name in re.findall(r"^TEST\((\w+)\)", source.read_text(), re.MULTILINE)
]
RUNS = [(family, name, way) for family, name in CLAIMS for way in WAYS if is_claimed(way, family, name)]


CASES = [
    pytest.param(*run, id="-".join(run), marks=[pytest.mark.soak] if is_long(run[2], run[0]) else []) for run in RUNS
]


@pytest.mark.parametrize(("family", "name", "way"), CASES)
def test_driver_behaves_so(
    family: str, name: str, way: str, compile_program: Callable[[str], Path], request: pytest.FixtureRequest
) -> None:
    env = request.getfixturevalue(f"{way}_env")
    done = subprocess.run(
        [str(compile_program(family)), name], env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode == EXIT_SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}{done.stderr}"


def test_no_claim_is_named_twice() -> None:
    assert len(set(CLAIMS)) == len(CLAIMS) > 0
