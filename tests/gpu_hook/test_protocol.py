"""The Python twin agrees with the C header, by the compiler: every size, offset and constant."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gpu_hook.placement import placement
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import (
    ActivityPage,
    ActivityPageNotice,
    AgentPage,
    Credit,
    Hello,
    HelloDevice,
    HookPage,
    MessageType,
    Moved,
    MovedDevice,
    Role,
    Segment,
    Swap,
    Wake,
)

HEADER = Path(__file__).parents[2] / "gpu_hook" / "protocol" / "aliquot_protocol.h"
PAGES = HEADER.with_name("aliquot_pages.h")
ENUMS = {
    "aliquot_message_type": (protocol.MessageType, "ALIQUOT_"),
    "aliquot_role": (protocol.Role, "ALIQUOT_ROLE_"),
    "aliquot_request": (protocol.Request, "ALIQUOT_REQUEST_"),
    "aliquot_workload_class": (protocol.WorkloadClass, "ALIQUOT_"),
    "aliquot_refusal": (protocol.RefusalReason, "ALIQUOT_REFUSED_"),
    "aliquot_enforcer": (protocol.Enforcer, "ALIQUOT_ENFORCER_"),
    "aliquot_residency_mode": (protocol.ResidencyMode, "ALIQUOT_RESIDENCY_"),
    "aliquot_gate": (protocol.Gate, "ALIQUOT_GATE_"),
    "aliquot_pace": (protocol.Pace, "ALIQUOT_PACE_"),
    "aliquot_activity_page_kind": (protocol.ActivityPageKind, "ALIQUOT_ACTIVITY_PAGE_"),
    "aliquot_lease": (protocol.Lease, "ALIQUOT_LEASE_"),
    "aliquot_residency": (protocol.Residency, "ALIQUOT_"),
    "aliquot_move_outcome": (protocol.MoveOutcome, "ALIQUOT_MOVE_"),
    "aliquot_pin_reason": (protocol.PinReason, "ALIQUOT_PIN_"),
    "aliquot_self_check": (protocol.SelfCheck, "ALIQUOT_CHECK_"),
}
WANT_SIZES = {
    "struct aliquot_header": protocol.HEADER.size,
    "struct aliquot_hello": protocol.HELLO_BYTES,
    "struct aliquot_hello_device": protocol.HELLO_DEVICE.size,
    "struct aliquot_credit": protocol.CREDIT_BYTES,
    "struct aliquot_segment": protocol.SEGMENT_BYTES,
    "struct aliquot_swap": protocol.SWAP_BYTES,
    "struct aliquot_wake": protocol.WAKE_BYTES,
    "struct aliquot_moved": protocol.MOVED_BYTES,
    "struct aliquot_moved_device": protocol.MOVED_DEVICE.size,
    "struct aliquot_self_check_result": protocol.SELF_CHECK_BYTES,
    "struct aliquot_welcome": protocol.WELCOME_BYTES,
    "struct aliquot_refuse": protocol.REFUSE_BYTES,
    "struct aliquot_agent_page": AgentPage.BYTES,
    "struct aliquot_agent_device": AgentPage.DEVICE_BYTES,
    "struct aliquot_agent_process": AgentPage.PROCESS.size,
    "struct aliquot_hook_page": HookPage.BYTES,
    "struct aliquot_hook_device": HookPage.DEVICE_BYTES,
    "struct aliquot_hook_need": HookPage.NEED_BYTES,
    "struct aliquot_activity_page_notice": protocol.ACTIVITY_PAGE_NOTICE_BYTES,
    "struct aliquot_activity_page": ActivityPage.BYTES,
    "struct aliquot_activity_device": ActivityPage.DEVICE_BYTES,
    "struct aliquot_interval": ActivityPage.INTERVAL_BYTES,
}
WANT_OFFSETS = {
    "aliquot_hello.role": 16,
    "aliquot_hello.pid": 20,
    "aliquot_hello.start_time_ticks": 24,
    "aliquot_hello.device_count": 32,
    "aliquot_hello.name": 40,
    "aliquot_hello.devices": 16 + protocol.HELLO_FIXED.size,
    "aliquot_hello_device.charged_bytes": 16,
    "aliquot_hello_device.credit_bytes": 24,
    "aliquot_credit.device": 16,
    "aliquot_credit.deadline_milliseconds": 20,
    "aliquot_credit.bytes": 24,
    "aliquot_segment.number": 16,
    "aliquot_segment.bytes": 24,
    "aliquot_swap.drain_milliseconds": 16,
    "aliquot_swap.segment_count": 20,
    "aliquot_wake.waiting_calls": 16,
    "aliquot_moved.outcome": 16,
    "aliquot_moved.residency": 20,
    "aliquot_moved.pin_reasons": 24,
    "aliquot_moved.device_count": 28,
    "aliquot_moved.wanted_bytes": 32,
    "aliquot_moved.drain_nanoseconds": 40,
    "aliquot_moved.copy_nanoseconds": 48,
    "aliquot_moved.map_nanoseconds": 56,
    "aliquot_moved.devices": 16 + protocol.MOVED_FIXED.size,
    "aliquot_moved.text": protocol.MOVED_BYTES - protocol.TEXT_BYTES,
    "aliquot_moved_device.swapped_bytes": 0,
    "aliquot_moved_device.unswappable_bytes": 8,
    "aliquot_self_check_result.passed": 16,
    "aliquot_self_check_result.text": 24,
    **dict.fromkeys(("aliquot_welcome.device_count", "aliquot_refuse.reason"), 16),
    "aliquot_refuse.text": 24,
    "aliquot_agent_page.magic": AgentPage.MAGIC,
    "aliquot_agent_page.version": AgentPage.VERSION,
    "aliquot_agent_page.generation": AgentPage.GENERATION,
    "aliquot_agent_page.gate": AgentPage.GATE,
    "aliquot_agent_page.workload_class": AgentPage.WORKLOAD_CLASS,
    "aliquot_agent_page.device_count": AgentPage.DEVICE_COUNT,
    "aliquot_agent_page.host_quota_bytes": AgentPage.HOST_QUOTA,
    "aliquot_agent_page.host_charged_elsewhere_bytes": AgentPage.HOST_CHARGED_ELSEWHERE,
    "aliquot_agent_page.host_charged_bytes": AgentPage.HOST_CHARGED,
    "aliquot_agent_page.process_sequence": AgentPage.PROCESS_SEQUENCE,
    "aliquot_agent_page.process_count": AgentPage.PROCESS_COUNT,
    "aliquot_agent_page.lease": AgentPage.LEASE,
    "aliquot_agent_page.residency_mode": AgentPage.RESIDENCY_MODE,
    "aliquot_agent_page.least_swappable_bytes": AgentPage.LEAST_SWAPPABLE,
    "aliquot_agent_page.chunk_bytes": AgentPage.CHUNK,
    "aliquot_agent_page.ring_bytes": AgentPage.RING,
    "aliquot_agent_page.copy_threads": AgentPage.COPY_THREADS,
    "aliquot_agent_page.copy_streams": AgentPage.COPY_STREAMS,
    "aliquot_agent_page.interrupts": AgentPage.INTERRUPTS,
    "aliquot_agent_page.devices": AgentPage.DEVICES,
    "aliquot_agent_page.processes": AgentPage.PROCESSES,
    "aliquot_agent_device.uuid": AgentPage.UUID,
    "aliquot_agent_device.quota_bytes": AgentPage.QUOTA,
    "aliquot_agent_device.charged_elsewhere_bytes": AgentPage.CHARGED_ELSEWHERE,
    "aliquot_agent_device.charged_bytes": AgentPage.CHARGED,
    "aliquot_agent_device.share_hundredths": AgentPage.SHARE_HUNDREDTHS,
    "aliquot_agent_device.enforcer": AgentPage.ENFORCER,
    "aliquot_agent_device.busy_nanoseconds": AgentPage.BUSY_NANOSECONDS,
    "aliquot_agent_device.utilization_percent": AgentPage.UTILIZATION,
    "aliquot_agent_device.pace": AgentPage.PACE,
    "aliquot_agent_device.allowed": AgentPage.ALLOWED,
    "aliquot_agent_device.allowed_with_busy_peers": AgentPage.ALLOWED_WITH_BUSY_PEERS,
    "aliquot_agent_device.in_flight_cap": AgentPage.IN_FLIGHT_CAP,
    "aliquot_agent_device.batch_microseconds": AgentPage.BATCH,
    "aliquot_agent_device.idle_window_min": AgentPage.IDLE_WINDOW_MIN,
    "aliquot_agent_device.idle_window_max": AgentPage.IDLE_WINDOW_MAX,
    "aliquot_agent_device.idle_resume": AgentPage.IDLE_RESUME,
    "aliquot_agent_device.solo_window": AgentPage.SOLO_WINDOW,
    "aliquot_agent_device.is_sampled": AgentPage.IS_SAMPLED,
    "aliquot_agent_process.pid": 0,
    "aliquot_agent_process.own_pid": 4,
    "aliquot_agent_process.device": 8,
    "aliquot_agent_process.charged_bytes": 16,
    "aliquot_hook_page.magic": HookPage.MAGIC,
    "aliquot_hook_page.version": HookPage.VERSION,
    "aliquot_hook_page.last_call_nanoseconds": HookPage.LAST_CALL,
    "aliquot_hook_page.unknown_symbols": HookPage.UNKNOWN_SYMBOLS,
    "aliquot_hook_page.unaccounted_calls": HookPage.UNACCOUNTED_CALLS,
    "aliquot_hook_page.host_charged_bytes": HookPage.HOST_CHARGED,
    "aliquot_hook_page.host_refusals": HookPage.HOST_REFUSALS,
    "aliquot_hook_page.host_peak_bytes": HookPage.HOST_PEAK,
    "aliquot_hook_page.residency": HookPage.RESIDENCY,
    "aliquot_hook_page.pin_reasons": HookPage.PIN_REASONS,
    "aliquot_hook_page.waiting_calls": HookPage.WAITING_CALLS,
    "aliquot_hook_page.calls_inside": HookPage.CALLS_INSIDE,
    "aliquot_hook_page.copied_bytes": HookPage.COPIED_BYTES,
    "aliquot_hook_page.needs": HookPage.NEEDS,
    "aliquot_hook_page.unknown_function": HookPage.UNKNOWN_FUNCTION_LENGTH + 4,
    "aliquot_hook_need.needed_bytes": HookPage.NEEDED,
    "aliquot_hook_need.refused_needed_bytes": HookPage.REFUSED_NEEDED,
    "aliquot_hook_need.refused_at_nanoseconds": HookPage.REFUSED_AT,
    "aliquot_hook_page.devices": HookPage.DEVICES,
    "aliquot_hook_device.charged_bytes": HookPage.CHARGED,
    "aliquot_hook_device.peak_bytes": HookPage.PEAK,
    "aliquot_hook_device.credit_bytes": HookPage.CREDIT,
    "aliquot_hook_device.allocations": HookPage.ALLOCATIONS,
    "aliquot_hook_device.launches": HookPage.LAUNCHES,
    "aliquot_hook_device.refusals": HookPage.REFUSALS,
    "aliquot_hook_device.swappable_bytes": HookPage.SWAPPABLE,
    "aliquot_hook_device.swapped_bytes": HookPage.SWAPPED,
    "aliquot_hook_device.occupied_nanoseconds": HookPage.OCCUPIED,
    "aliquot_hook_device.throttled_nanoseconds": HookPage.THROTTLED,
    "aliquot_hook_device.in_flight": HookPage.IN_FLIGHT,
    "aliquot_hook_device.waiting_launches": HookPage.WAITING_LAUNCHES,
    "aliquot_hook_device.longest_nanoseconds": HookPage.LONGEST,
    "aliquot_hook_device.sampled_nanoseconds": HookPage.SAMPLED,
    "aliquot_hook_device.sampled_solo_nanoseconds": HookPage.SAMPLED_SOLO,
    "aliquot_hook_device.samples": HookPage.SAMPLES,
    "aliquot_hook_device.without_baseline": HookPage.WITHOUT_BASELINE,
    "aliquot_activity_page_notice.kind": 16,
    "aliquot_activity_page_notice.number": 20,
    "aliquot_activity_page_notice.device": 24,
    "aliquot_activity_page_notice.page_device": 28,
    "aliquot_activity_page.magic": ActivityPage.MAGIC,
    "aliquot_activity_page.version": ActivityPage.VERSION,
    "aliquot_activity_page.pid": ActivityPage.PID,
    "aliquot_activity_page.devices": ActivityPage.DEVICES,
    "aliquot_activity_device.is_active": ActivityPage.IS_ACTIVE,
    "aliquot_activity_device.since_nanoseconds": ActivityPage.SINCE,
    "aliquot_activity_device.interval_count": ActivityPage.INTERVAL_COUNT,
    "aliquot_activity_device.lost_nanoseconds": ActivityPage.LOST,
    "aliquot_activity_device.intervals": ActivityPage.INTERVALS,
    **{"aliquot_interval.start_nanoseconds": 0, "aliquot_interval.end_nanoseconds": 8},
}
WANT_CONSTANTS = {
    "ALIQUOT_PROTOCOL_VERSION": protocol.VERSION,
    "ALIQUOT_HOST_MEMORY": protocol.HOST_MEMORY,
    "ALIQUOT_HELLO_ENTRIES": protocol.HELLO_ENTRIES,
    "ALIQUOT_MAX_PROCESSES": protocol.MAX_PROCESSES,
    "ALIQUOT_MESSAGE_MAGIC": protocol.MESSAGE_MAGIC,
    "ALIQUOT_PAGE_MAGIC": protocol.PAGE_MAGIC,
    "ALIQUOT_PAGE_BYTES": protocol.PAGE_BYTES,
    "ALIQUOT_MAX_DEVICES": protocol.MAX_DEVICES,
    "ALIQUOT_TEXT_BYTES": protocol.TEXT_BYTES,
    "ALIQUOT_FUNCTION_BYTES": protocol.FUNCTION_BYTES,
    "ALIQUOT_ACTIVITY_PAGE_MAGIC": protocol.ACTIVITY_PAGE_MAGIC,
    "ALIQUOT_ACTIVITY_PAGE_BYTES": protocol.ACTIVITY_PAGE_BYTES,
    "ALIQUOT_ACTIVITY_INTERVALS": protocol.ACTIVITY_INTERVALS,
    "ALIQUOT_MAX_PEERS": protocol.MAX_PEERS,
    "ALIQUOT_CHECK_ALL": protocol.SelfCheck.ALL,
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Return the compiler's values of the header: expression → value."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here: the header cannot be asked")
    names = {name: f"sizeof({name})" for name in WANT_SIZES}
    names |= {name: "offsetof(struct {}, {})".format(*name.split(".")) for name in WANT_OFFSETS}
    names |= {name: name for name in WANT_CONSTANTS}
    names |= {name: name for members in header_enums().values() for name in members}
    prints = "".join(f'printf("%s %lld\\n", "{n.replace(" ", "_")}", (long long)({e}));' for n, e in names.items())
    folder = tmp_path_factory.mktemp("twin")
    source = folder / "ask.c"
    source.write_text(f'#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{ {prints} return 0; }}\n')
    subprocess.run([compiler, "-std=c11", "-Werror", source, "-o", folder / "ask"], check=True, timeout=60)
    lines = subprocess.run([folder / "ask"], check=True, capture_output=True, text=True, timeout=60).stdout
    return {name: int(value) for name, value in (line.split() for line in lines.splitlines())}


def header_enums() -> dict[str, list[str]]:
    """Return the members of each enum of the header, by name."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text() + PAGES.read_text(), flags=re.S)
    bodies = re.findall(r"enum (\w+) \{(.*?)\}", text, flags=re.S)
    return {name: re.findall(r"\b(ALIQUOT_\w+)", body) for name, body in bodies}


@pytest.mark.parametrize("name", WANT_SIZES)
def test_sizes_agree_with_the_header(compiled: dict[str, int], name: str) -> None:
    assert WANT_SIZES[name] == compiled[name.replace(" ", "_")]


def test_offsets_agree_with_the_header(compiled: dict[str, int]) -> None:
    assert {name: compiled[name] for name in WANT_OFFSETS} == WANT_OFFSETS


def test_constants_agree_with_the_header(compiled: dict[str, int]) -> None:
    assert {name: compiled[name] for name in WANT_CONSTANTS} == WANT_CONSTANTS
    assert protocol.MAX_DEVICES == placement.MAX_DEVICES
    assert f'"{protocol.SOCKET_NAME}"' in HEADER.read_text()


def test_enums_agree_with_the_header(compiled: dict[str, int]) -> None:
    enums = header_enums()
    assert set(enums) == set(ENUMS)
    for name, members in enums.items():
        twin, prefix = ENUMS[name]
        want = {member.removeprefix(prefix): compiled[member] for member in members}
        found = {member.name: member.value for member in twin if member.name != "ALL"}
        assert found == want


amounts = st.integers(0, protocol.MAX_AMOUNT)
texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=31)


@given(
    st.sampled_from([m for m in MessageType if m.name.startswith("CREDIT")]),
    st.integers(0, protocol.HOST_MEMORY),
    amounts,
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)
def test_credit_survives_the_wire(kind: MessageType, device: int, amount: int, sequence: int, deadline: int) -> None:
    want = Credit(kind, device, amount, sequence, deadline)
    assert protocol.unpack(protocol.pack(want)) == want


@given(
    st.sampled_from(Role),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**64 - 1),
    texts,
    st.dictionaries(st.binary(min_size=16, max_size=16), st.integers(0, 2**40), max_size=17),
)
def test_hello_survives_the_wire(role: Role, pid: int, ticks: int, name: str, table: dict[bytes, int]) -> None:
    entries = tuple(HelloDevice(uuid, amount, 7) for uuid, amount in table.items())
    want = Hello(role, pid, ticks, name, entries)
    assert protocol.unpack(protocol.pack(want)) == want


moved_devices = st.lists(st.builds(MovedDevice, st.integers(0, 2**60), st.integers(0, 2**60)), max_size=16)


@given(
    st.one_of(
        st.builds(Segment, st.integers(0, 2**32 - 1), amounts, st.integers(0, 2**32 - 1)),
        st.builds(Swap, st.sampled_from([MessageType.SWAP_OUT, MessageType.SWAP_IN]), st.integers(0, 9), st.just(7)),
        st.builds(Wake, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
        st.builds(
            Moved,
            st.sampled_from(protocol.MoveOutcome),
            st.sampled_from(protocol.Residency),
            moved_devices.map(tuple),
            st.sampled_from(protocol.PinReason),
            amounts,
            text=texts,
        ),
    )
)
def test_residency_survives_the_wire(want: Segment | Swap | Wake | Moved) -> None:
    assert protocol.unpack(protocol.pack(want)) == want


@given(st.sampled_from(protocol.ActivityPageKind), *[st.integers(0, limit) for limit in (31, 15, 15)])
def test_activity_page_notices_survive_the_wire(
    kind: protocol.ActivityPageKind, number: int, device: int, page_device: int
) -> None:
    want = ActivityPageNotice(kind, number, device, page_device)
    assert protocol.unpack(protocol.pack(want)) == want


@pytest.mark.parametrize("notice", [(7, 0, 0, 0), (1, 32, 0, 0), (1, 0, 16, 0), (1, 0, 0, 16)])
def test_an_activity_page_that_nobody_has_is_malformed(notice: tuple[int, int, int, int]) -> None:
    datagram = protocol.pack(ActivityPageNotice(protocol.ActivityPageKind.OWN))[
        :16
    ] + protocol.ACTIVITY_PAGE_NOTICE.pack(*notice)
    with pytest.raises(protocol.MalformedError):
        protocol.unpack(datagram)


@pytest.mark.parametrize("version", [0, protocol.VERSION - 1, protocol.VERSION + 1])
def test_another_version_is_refused(version: int) -> None:
    datagram = bytearray(protocol.pack(Credit(MessageType.CREDIT_REQUEST, 0, 1, 1)))
    datagram[4:6] = version.to_bytes(2, "little")
    with pytest.raises(protocol.MalformedError, match=f"got protocol version {version}") as refused:
        protocol.unpack(bytes(datagram))
    assert refused.value.reason is protocol.RefusalReason.VERSION


@given(st.binary(max_size=700))
def test_garbage_is_malformed_and_nothing_else(datagram: bytes) -> None:
    with pytest.raises(protocol.MalformedError):
        protocol.unpack(datagram)


@given(st.integers(0, 2000), st.binary(min_size=1, max_size=8), st.sampled_from(MessageType))
def test_damaged_messages_are_read_or_malformed(position: int, damage: bytes, kind: MessageType) -> None:
    message: protocol.Message = Hello(Role.PROCESS, 1, 2, "x")
    if kind.name.startswith("CREDIT"):
        message = Credit(kind, 0, 1, 1)
    datagram = bytearray(protocol.pack(message))
    start = position % len(datagram)
    datagram[start : start + len(damage)] = damage
    with contextlib.suppress(protocol.MalformedError):
        assert isinstance(protocol.unpack(bytes(datagram)), protocol.Message)


def test_long_texts_are_cut_between_characters() -> None:
    answer = protocol.unpack(protocol.pack(protocol.Refuse(protocol.RefusalReason.MESSAGE, "é" * 300)))
    assert isinstance(answer, protocol.Refuse)
    assert answer.text == "é" * 95
