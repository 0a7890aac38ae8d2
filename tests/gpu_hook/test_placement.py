"""The placement of requests, and refusals.

The tests are a table of sentences, and properties of random nodes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gpu_hook.placement.host_memory import HostRoom
from jupyter_aliquot.gpu_hook.placement.placement import GRAIN_BYTES, WHOLE, DeviceState, Part, Refusal, place, resize

GIB = 1 << 30


def a_device(index: int, free: int = 100, memory: int = 16 * GIB, free_bytes: int | None = None) -> DeviceState:
    room = memory * free // 100 if free_bytes is None else free_bytes
    return DeviceState(f"GPU-{index}", index, memory, free, room)


def placed(parts: tuple[Part, ...] | Refusal) -> list[tuple[int, int]]:
    assert not isinstance(parts, Refusal), parts
    return [(part.index, part.hundredths) for part in parts]


@pytest.mark.parametrize(
    ("devices", "hundredths", "want"),
    [
        pytest.param([a_device(0)], 25, [(0, 25)], id="a part of an empty device"),
        pytest.param([a_device(0), a_device(1, 30)], 25, [(1, 25)], id="the least free part that holds it"),
        pytest.param([a_device(0), a_device(1, 20)], 25, [(0, 25)], id="a part that is too small is passed over"),
        pytest.param([a_device(0, 99), a_device(1)], 100, [(1, 100)], id="a touched device is not whole"),
        pytest.param([a_device(0), a_device(1, 50), a_device(2)], 250, [(0, 100), (2, 100), (1, 50)], id="2.5"),
        pytest.param([a_device(i) for i in range(3)], 250, [(0, 100), (1, 100), (2, 50)], id="2.5 of empty ones"),
        pytest.param([a_device(0, memory=32 * GIB), a_device(1)], 100, [(1, 100)], id="the smaller whole device"),
    ],
)
def test_requests_go_where_they_fit_best(
    devices: list[DeviceState], hundredths: int, want: list[tuple[int, int]]
) -> None:
    assert placed(place(devices, hundredths)) == want


@pytest.mark.parametrize(
    ("devices", "hundredths", "limit", "want_code", "want_text"),
    [
        pytest.param([a_device(0)], 0, None, "bad_request", "Requested 0 GPU", id="nothing"),
        pytest.param([a_device(0)], -25, None, "bad_request", "Requested -0.25 GPU", id="negative"),
        pytest.param([a_device(0)], 101, None, "never_fits", "this node has 1 GPU (16.0 GiB)", id="over the node"),
        pytest.param([], 25, None, "never_fits", "this node has no GPU", id="no device"),
        pytest.param([a_device(i) for i in range(20)], 1601, None, "never_fits", "at most 16", id="over the protocol"),
        pytest.param(
            [a_device(0)], 25, 17 * GIB, "never_fits", "Requested 0.25 GPU (17.0 GiB)", id="limit over device"
        ),
        pytest.param([a_device(0)], 25, 1, "bad_request", "at least 2 MiB", id="limit below a grain"),
        pytest.param([a_device(0)], 25, -1, "bad_request", "memory limit", id="negative limit"),
        pytest.param(
            [a_device(0, 25)],
            50,
            None,
            "no_room",
            "Requested 0.5 GPU (8.0 GiB), but the largest free part is 0.25 on gpu0. Queued",
            id="no part is large enough",
        ),
        pytest.param([a_device(0, 75, free_bytes=GIB)], 50, None, "no_room", "with 1.0 GiB free", id="memory is gone"),
        pytest.param(
            [a_device(0), a_device(1, 99)], 200, None, "no_room", "1 whole device(s) are free", id="not whole"
        ),
        pytest.param([replace(a_device(0), lost=True)], 25, None, "never_fits", "gpu0 lost", id="lost"),
    ],
)
def test_refusals_say_what_was_asked_and_found(
    devices: list[DeviceState], hundredths: int, limit: int | None, want_code: str, want_text: str
) -> None:
    refusal = place(devices, hundredths, limit)
    assert isinstance(refusal, Refusal)
    assert refusal.code == want_code
    assert want_text in refusal.message


@pytest.mark.parametrize(
    ("placement", "want_code"),
    [
        pytest.param({"GPU-9": 50}, "device_lost", id="an unknown device"),
        pytest.param({"GPU-2": 50}, "device_lost", id="a lost device"),
        pytest.param({"GPU-0": 25}, "bad_request", id="parts that do not add up"),
        pytest.param({"GPU-0": 0, "GPU-1": 50}, "bad_request", id="an empty part"),
        pytest.param({}, "bad_request", id="no part"),
        pytest.param({"GPU-1": 50}, "no_room", id="a full device"),
    ],
)
def test_a_plan_that_no_longer_holds_is_refused(placement: dict[str, int], want_code: str) -> None:
    devices = [a_device(0), a_device(1, 25), replace(a_device(2), lost=True)]
    refusal = place(devices, 50, placement=placement)
    assert isinstance(refusal, Refusal)
    assert refusal.code == want_code


def test_a_plan_is_followed_where_best_fit_would_differ() -> None:
    assert placed(place([a_device(0), a_device(1, 50)], 50, placement={"GPU-0": 50})) == [(0, 50)]


def test_a_limit_above_the_device_is_for_memory_that_the_driver_pages() -> None:
    parts = place([a_device(0)], 50, 40 * GIB, residency="managed", host=HostRoom(64 * GIB))
    assert not isinstance(parts, Refusal), parts
    assert [(part.quota_bytes, part.guarantee_bytes) for part in parts] == [(40 * GIB, 8 * GIB)]
    for residency in ("", "vmm", "off"):
        refusal = place([a_device(0)], 50, 40 * GIB, residency=residency)
        assert isinstance(refusal, Refusal)
        assert refusal.code == "never_fits"


def test_pages_beyond_the_devices_have_to_fit_on_the_host() -> None:
    host = HostRoom(20 * GIB)
    assert not isinstance(place([a_device(0)], 100, 36 * GIB, residency="managed", host=host), Refusal)
    refusal = place([a_device(0)], 100, 37 * GIB, residency="managed", host=host)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "never_fits"
    assert "37.0 GiB, of which the devices lack 21.0 GiB, but 20.0 GiB of host memory" in refusal.message


def test_a_paging_kernel_grows_above_its_device_and_may_shrink_whatever_the_host_has() -> None:
    [part] = placed_parts(place([a_device(0)], 100, residency="managed"))
    grown = resize([a_device(0)], [part], 100, 30 * GIB, residency="managed", host=HostRoom(20 * GIB))
    [part] = placed_parts(grown)
    assert part.quota_bytes == 30 * GIB
    shrunk = resize([a_device(0)], [part], 100, 20 * GIB, residency="managed", host=HostRoom(GIB))
    assert [part.quota_bytes for part in placed_parts(shrunk)] == [20 * GIB]


def placed_parts(parts: tuple[Part, ...] | Refusal) -> tuple[Part, ...]:
    assert not isinstance(parts, Refusal), parts
    return parts


def test_a_memory_limit_is_split_by_share_and_rounded_down() -> None:
    parts = place([a_device(0), a_device(1)], 150, 10 * GIB + 1)
    assert not isinstance(parts, Refusal)
    want_whole = (10 * GIB + 1) * 100 // 150 // GRAIN_BYTES * GRAIN_BYTES
    assert [part.quota_bytes for part in parts] == [want_whole, (10 * GIB + 1) // 3 // GRAIN_BYTES * GRAIN_BYTES]


nodes = st.lists(
    st.tuples(st.integers(0, 100), st.integers(1, 64), st.booleans(), st.integers(0, 100)), min_size=1, max_size=6
).map(
    lambda rows: [
        DeviceState(f"GPU-{i}", i, gib * GIB, free, gib * GIB * (room if free < 100 else 100) // 100, lost)
        for i, (free, gib, lost, room) in enumerate(rows)
    ]
)
limits = st.none() | st.integers(GRAIN_BYTES, 200 * GIB)


@given(nodes, st.integers(-10, 800), limits)
def test_a_placement_always_fits(devices: list[DeviceState], hundredths: int, limit: int | None) -> None:
    result = place(devices, hundredths, limit)
    if isinstance(result, Refusal):
        assert result.message
        return
    states = {device.uuid: device for device in devices}
    assert sum(part.hundredths for part in result) == hundredths
    assert len({part.uuid for part in result}) == len(result)
    assert sum(part.hundredths < WHOLE for part in result) <= 1
    for part in result:
        state = states[part.uuid]
        assert not state.lost
        assert part.hundredths <= state.free_hundredths
        assert GRAIN_BYTES <= part.reserved_bytes <= min(part.quota_bytes, state.free_bytes)
        assert part.quota_bytes <= state.memory_bytes
        assert part.quota_bytes % GRAIN_BYTES == 0
    assert place(devices, hundredths, limit, {part.uuid: part.hundredths for part in result}) == result


@given(nodes, st.integers(1, 600), limits)
def test_never_fits_is_said_just_when_an_empty_node_refuses(
    devices: list[DeviceState], hundredths: int, limit: int | None
) -> None:
    refusal = place(devices, hundredths, limit)
    if isinstance(refusal, Refusal) and refusal.code in ("never_fits", "no_room"):
        empty = [replace(d, free_hundredths=WHOLE, free_bytes=d.memory_bytes) for d in devices]
        assert isinstance(place(empty, hundredths, limit), Refusal) is (refusal.code == "never_fits")


def test_a_node_that_lost_its_devices_does_not_advise_to_ask_for_less() -> None:
    refusal = place([replace(a_device(0), lost=True)], 25)
    assert isinstance(refusal, Refusal)
    assert (
        refusal.message == "Requested 0.25 GPU, but this node has no GPU; gpu0 lost. See nvidia-smi and aliquot doctor"
    )
