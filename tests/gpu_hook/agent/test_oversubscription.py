"""Overcommit of a device: by class, within the host's capacity.

Memory that cannot leave is not overcommitted.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts, Ledger, LedgerError
from jupyter_aliquot.gpu_hook.agent.scheduling.leases import decide
from jupyter_aliquot.gpu_hook.agent.scheduling.views import DeviceView, Holding, KernelView, Policy, State, Want
from jupyter_aliquot.gpu_hook.placement.overcommit import MOST_RATIO, Oversubscription
from jupyter_aliquot.gpu_hook.placement.placement import GRAIN_BYTES, Part, Refusal, place, resize

GRAIN = GRAIN_BYTES
MEMORY = 100 * GRAIN
A, B = DeviceFacts("GPU-a", 0, "a", MEMORY), DeviceFacts("GPU-b", 1, "b", MEMORY)
CLASSES = ("production", "opportunistic")


class TestOversubscription:
    def a_ledger(self, **rule: float) -> Ledger:
        ledger = Ledger(oversubscription=Oversubscription(**rule))  # type: ignore[arg-type]
        ledger.set_devices([A, B])
        return ledger

    def test_a_device_may_be_reserved_as_often_as_its_ratio_says(self) -> None:
        ledger = self.a_ledger(production=2.0, opportunistic=2.0)
        for name in ("k", "l"):
            ledger.reserve(name, [Part("GPU-a", 0, 100, MEMORY)])
        with pytest.raises(LedgerError, match="does not fit"):
            ledger.reserve("m", [Part("GPU-a", 0, 1, GRAIN)])
        ledger.check()

    def test_opportunistic_kernels_keep_production_from_nothing(self) -> None:
        ledger = self.a_ledger(production=1.0, opportunistic=2.0)
        ledger.reserve("low", [Part("GPU-a", 0, 100, MEMORY)], is_production=False)
        ledger.reserve("high", [Part("GPU-a", 0, 100, MEMORY)])
        with pytest.raises(LedgerError, match="does not fit"):
            ledger.reserve("other", [Part("GPU-a", 0, 1, GRAIN)])

    def test_burstable_memory_is_not_reserved(self) -> None:
        ledger = self.a_ledger()
        for name in ("k", "l"):
            ledger.reserve(name, [Part("GPU-a", 0, 50, MEMORY, MEMORY // 2)])
        assert ledger.lend("k", 0, 1, MEMORY)
        ledger.check()

    def test_a_restored_kernel_keeps_its_place_when_the_ratio_was_lowered(self) -> None:
        ledger = self.a_ledger()
        for name in ("k", "l"):
            ledger.reserve(name, [Part("GPU-a", 0, 100, MEMORY)], is_restored=True)
        assert ledger.device_states()[0].free_bytes == 0
        with pytest.raises(LedgerError, match="does not fit"):
            ledger.reserve("forged", [Part("GPU-a", 0, 100, 100 * MEMORY)], is_restored=True)

    def test_what_devices_lack_has_to_fit_on_the_host(self) -> None:
        ledger = self.a_ledger(production=4.0, opportunistic=4.0, host_bytes=2 * MEMORY)
        for name in ("k", "l"):
            ledger.reserve(name, [Part("GPU-a", 0, 100, MEMORY)])
        host = ledger.host_room()
        assert host is not None
        assert host.left_bytes == 0  # one beyond, and room for another that has to leave first
        refusal = place(ledger.device_states(), 1, placement={"GPU-a": 1}, host=host)
        assert isinstance(refusal, Refusal)
        assert "host memory" in refusal.message

    def test_the_largest_kernel_counts_that_comes_last(self) -> None:
        ledger = self.a_ledger(production=4.0, opportunistic=4.0, host_bytes=MEMORY)
        ledger.reserve("small", [Part("GPU-a", 0, 1, GRAIN)])
        assert isinstance(
            place(ledger.device_states(), 100, placement={"GPU-a": 100}, host=ledger.host_room()), Refusal
        )

    def test_who_shrinks_is_not_refused_where_the_host_has_too_little_already(self) -> None:
        ledger = self.a_ledger(production=4.0, opportunistic=4.0, host_bytes=MEMORY)
        parts = (Part("GPU-a", 0, 80, 80 * GRAIN),)
        for name in ("k", "l", "m"):
            ledger.reserve(name, parts, is_restored=True)
        for hundredths, may in ((81, False), (80, True), (40, True)):
            states, host = ledger.device_states(without="k"), ledger.host_room(without="k")
            assert isinstance(resize(states, parts, hundredths, None, host=host), tuple) is may

    def test_who_shrinks_is_not_refused_where_the_ratio_was_lowered(self) -> None:
        ledger = self.a_ledger()
        parts = (Part("GPU-a", 0, 80, 80 * GRAIN),)
        for name in ("k", "l"):
            ledger.reserve(name, parts, is_restored=True)
        for hundredths, may in ((81, False), (40, True)):
            found = resize(ledger.device_states(without="k"), parts, hundredths, None)
            assert isinstance(found, tuple) is may
            if isinstance(found, tuple):
                ledger.resize("k", found, None, is_production=True)
        assert isinstance(resize(ledger.device_states("opportunistic", without="l"), parts, 80, None), Refusal)

    def test_parts_go_where_the_device_itself_has_the_room(self) -> None:
        ledger = self.a_ledger(production=4.0, opportunistic=4.0)
        ledger.reserve("k", [Part("GPU-a", 0, 80, 80 * GRAIN)])
        parts = place(ledger.device_states(), 50)
        assert not isinstance(parts, Refusal)
        assert [part.uuid for part in parts] == ["GPU-b"]

    def test_whole_devices_are_shared_only_when_no_other_is_left(self) -> None:
        ledger = self.a_ledger(production=2.0, opportunistic=2.0)
        for name, want in (("k", "GPU-a"), ("l", "GPU-b"), ("m", "GPU-a"), ("n", "GPU-b")):
            parts = place(ledger.device_states(), 100)
            assert not isinstance(parts, Refusal)
            ledger.reserve(name, parts)
            assert [part.uuid for part in parts] == [want]
        refusal = place(ledger.device_states(), 100)
        assert isinstance(refusal, Refusal)
        assert refusal.code == "no_room"


@given(
    ratios=st.tuples(st.floats(1, MOST_RATIO), st.floats(1, MOST_RATIO)),
    steps=st.lists(
        st.tuples(
            st.sampled_from(("reserve", "release", "resize")),
            st.sampled_from("abcdef"),
            st.integers(1, 250),
            st.none() | st.integers(GRAIN * 3, 2 * MEMORY),
            st.sampled_from(CLASSES),
            st.sampled_from(("vmm", "managed", "off")),
        ),
        max_size=30,
    ),
)
@settings(max_examples=100, deadline=None)
def test_what_placement_answers_the_ledger_can_hold(ratios: tuple[float, float], steps: list[tuple]) -> None:  # type: ignore[type-arg]
    ledger = Ledger(oversubscription=Oversubscription(*ratios))
    ledger.set_devices([A, B])
    held: dict[str, tuple[Part, ...]] = {}
    for what, name, hundredths, limit, workload_class, residency in steps:
        is_production = workload_class == "production"
        if what == "release":
            assert ledger.release(name) == (held.pop(name, None) is not None)
        elif what == "reserve" and name not in held:
            parts = place(ledger.device_states(workload_class), hundredths, limit, residency=residency)
            if not isinstance(parts, Refusal):
                ledger.reserve(name, parts, is_production=is_production)
                held[name] = parts
        elif what == "resize" and name in held:
            states = ledger.device_states(workload_class, without=name)
            parts = resize(states, held[name], hundredths, limit, residency=residency)
            if not isinstance(parts, Refusal):
                ledger.resize(name, parts, None, is_production=is_production)
                assert [part.uuid for part in parts] == [part.uuid for part in held[name]]
                assert sum(part.hundredths for part in parts) == hundredths
                held[name] = parts
        ledger.check()
    for name in held:
        ledger.release(name)
    assert all(ledger.reserved(device.uuid).bytes == 0 for device in (A, B))


@given(
    sizes=st.lists(st.integers(1, 100), min_size=2, max_size=8),
    host_grains=st.integers(0, 400),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=200, deadline=None)
def test_whoever_is_admitted_finds_host_memory_for_whom_it_displaces(
    sizes: list[int], host_grains: int, order: Random
) -> None:
    ledger = Ledger(oversubscription=Oversubscription(8.0, 8.0, host_grains * GRAIN))
    ledger.set_devices([A])
    admitted: dict[str, int] = {}
    for number, size in enumerate(sizes):
        parts = place(ledger.device_states(), size, host=ledger.host_room())
        if not isinstance(parts, Refusal):
            ledger.reserve(f"k{number}", parts)
            admitted[f"k{number}"] = parts[0].reserved_bytes
    names = sorted(admitted)
    order.shuffle(names)
    room, out = MEMORY, []
    for name in names:
        if admitted[name] <= room:
            room -= admitted[name]
        else:
            out.append(name)
    views = [a_view(name, admitted[name], name in out, name in out[:1]) for name in admitted]
    left = host_grains * GRAIN - sum(admitted[name] for name in out)
    assert left >= 0
    decision = decide([DeviceView("GPU-a", MEMORY)], views, 1000.0, Policy(), left)
    assert len(decision.outs) == len(out[:1])


def a_view(name: str, amount: int, is_out: bool, is_wanted: bool) -> KernelView:
    """Return a kernel that uses its whole reservation, and is idle, or swapped."""
    held, away = (0, amount) if is_out else (amount, 0)
    return KernelView(
        name,
        (Holding("GPU-a", held, held, away, guarantee_bytes=amount),),
        State.SWAPPED if is_out else State.RESIDENT,
        want=Want.CALL if is_wanted else Want.NONE,
        idle_since=0.0,
    )
