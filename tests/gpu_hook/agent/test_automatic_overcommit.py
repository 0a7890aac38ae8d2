"""The overcommit of an agent to which no number was given: as far as host memory carries it.

A device whose memory cannot leave is not overcommitted, and status says why.
"""

from __future__ import annotations

import ctypes
import json
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from jupyter_aliquot.gateway.node.agent_calls import read_node
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.devices.host_memory import available_memory_bytes, machine_memory_bytes
from jupyter_aliquot.gpu_hook.agent.devices.mover_check import MoveError, check_move
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import SoftGpuSettings, remove as remove_state
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts, Ledger
from jupyter_aliquot.gpu_hook.agent.scheduling.overcommit import OvercommitKeeper, affordable_bytes
from jupyter_aliquot.gpu_hook.agent.scheduling.settings import HostBudget, LeaseSettings
from jupyter_aliquot.gpu_hook.agent.server.status import describe_devices, describe_oversubscription
from jupyter_aliquot.gpu_hook.agent.settings import read_arguments
from jupyter_aliquot.gpu_hook.client.reports import read_status
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path
from jupyter_aliquot.gpu_hook.placement.automatic import AUTO_MOST, Asked, DeviceNeeds, find_overcommit
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription, Reserved, device_state
from jupyter_aliquot.gpu_hook.placement.placement import GRAIN_BYTES, Part, Refusal, place
from jupyter_aliquot.provisioner.resources import WorkloadClass

GRAIN = GRAIN_BYTES
GIB = 1 << 30
AUTO = Asked()


def a_device(name: str, memory: int, context: int = 0, obstacle: str = "") -> DeviceNeeds:
    return DeviceNeeds(name, memory, context, obstacle)


def ratios(devices: list[DeviceNeeds], host_bytes: int | None, asked: Asked = AUTO) -> list[float]:
    rule = find_overcommit(asked, devices, host_bytes).rule
    return [rule.most_of(device.uuid) for device in devices]


@pytest.mark.parametrize(
    ("host", "want"),
    [
        pytest.param(None, 4.0, id="no limit"),
        pytest.param(1000 * GIB, 4.0, id="plenty, never above 4"),
        pytest.param(40 * GIB, 2.5, id="copies of two and a half"),
        pytest.param(32 * GIB, 2.0, id="both copies of two whole kernels"),
        pytest.param(12 * GIB, 1.0, id="less RAM than GPU memory"),
        pytest.param(0, 1.0, id="none"),
    ],
)
def test_host_memory_decides_how_far_one_device_is_overcommitted(host: int | None, want: float) -> None:
    assert ratios([a_device("a", 16 * GIB)], host) == [want]


def test_many_devices_need_less_host_memory_for_each() -> None:
    """Of eight devices only the second kernel's copies are out at once, and two more that change places."""
    devices = [a_device(str(number), 16 * GIB) for number in range(8)]
    assert ratios(devices, 160 * GIB) == [2.0] * 8


def test_contexts_of_swapped_out_kernels_leave_a_device_most_of_its_memory() -> None:
    small, large = a_device("small", 4 * GIB, GIB // 2), a_device("large", 80 * GIB, GIB // 2)
    found = find_overcommit(AUTO, [small, large], None)
    assert [found.rule.most_of(one.uuid) for one in (small, large)] == [3.0, 4.0]
    assert found.reasons == {"small": "each context takes 512 MiB of its 4.0 GiB, also while its kernel is swapped out"}


def test_the_contexts_of_many_small_kernels_end_overcommit_of_their_device() -> None:
    ledger = Ledger(oversubscription=Oversubscription(4.0, 4.0))
    ledger.set_devices([DeviceFacts("a", 0, "", 16 * GIB)])
    ledger.contexts.note_measured({"a": GIB // 2})
    admitted = 0
    while not isinstance(parts := place(ledger.device_states(), 25), Refusal):
        ledger.reserve(str(admitted), parts)
        admitted += 1
    assert admitted == 9, "eight contexts take a quarter of it; the ninth kernel is the last beyond the device"
    ledger.contexts.note_measured({"a": GIB // 100})
    assert not isinstance(place(ledger.device_states(), 25), Refusal)


def test_a_device_without_memory_stops_no_agent() -> None:
    assert ratios([a_device("a", 0)], 4 * GIB) == [4.0]


def test_a_ratio_counts_whole_hundredths() -> None:
    rule = Oversubscription(1.15, 1.15)
    assert device_state("a", 0, GIB, Reserved(hundredths=100), rule).free_hundredths == 15


@pytest.mark.parametrize("asked", [AUTO, Asked(3.0), Asked(1.0, 8.0)])
def test_a_device_whose_memory_cannot_leave_is_not_overcommitted_whatever_was_asked(asked: Asked) -> None:
    devices = [a_device("a", GIB, obstacle="it fails"), a_device("b", GIB)]
    found = find_overcommit(asked, devices, None)
    assert found.rule.most_of("a") == 1.0
    assert found.rule.most_of("b") > 1.0
    assert found.reasons == {"a": "it fails"}


def test_a_number_is_in_force_as_it_was_given() -> None:
    found = find_overcommit(Asked(1.5, 8.0), [a_device("a", 16 * GIB)], GIB)
    assert (found.rule.ratio("production", "a"), found.rule.ratio("opportunistic", "a")) == (1.5, 8.0)
    assert found.reasons == {}


@given(
    memories=st.lists(st.integers(1, 200), min_size=1, max_size=5),
    contexts=st.lists(st.integers(0, 50), min_size=5, max_size=5),
    host=st.integers(0, 4000),
    blocked=st.sets(st.integers(0, 4)),
)
@settings(max_examples=150, deadline=None)
def test_as_many_whole_kernels_start_as_the_ratio_says_and_never_more(
    memories: list[int], contexts: list[int], host: int, blocked: set[int]
) -> None:
    devices = [
        a_device(str(n), memory * GRAIN, contexts[n] * GRAIN, "blocked" if n in blocked else "")
        for n, memory in enumerate(memories)
    ]
    found = find_overcommit(AUTO, devices, host * GRAIN)
    ledger = Ledger(oversubscription=found.rule)
    ledger.set_devices([DeviceFacts(one.uuid, n, "", one.memory_bytes) for n, one in enumerate(devices)])
    for device in devices:
        ratio = found.rule.most_of(device.uuid)
        assert 1.0 <= ratio <= AUTO_MOST
        assert (ratio < AUTO_MOST) == (device.uuid in found.reasons)
        assert not device.obstacle or ratio == 1.0
    free = {device.uuid: math.floor(found.rule.most_of(device.uuid)) for device in devices}
    # The smallest ratio leaves host memory for that many of each; others may take it first.
    each = min((count for uuid, count in free.items() if not devices[int(uuid)].obstacle), default=1)
    for turn in range(each):
        for device in devices:
            if device.obstacle and turn:
                continue
            parts = place(ledger.device_states(), 100, placement={device.uuid: 100}, host=ledger.host_room())
            assert not isinstance(parts, Refusal), (turn, device, parts)
            ledger.reserve(f"{device.uuid}-{turn}", parts)
    ledger.check()
    for device in devices:
        state = next(state for state in ledger.device_states() if state.uuid == device.uuid)
        assert state.free_hundredths <= round(100 * found.rule.most_of(device.uuid)) - 100


@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 150), st.booleans(), st.sampled_from(("vmm", "managed", "off"))), max_size=8
    ),
    host=st.integers(0, 600),
    failures=st.sets(st.sampled_from("ab")),
    low=st.none() | st.floats(1, 8),
    context=st.integers(0, 20),
)
@settings(max_examples=100, deadline=None)
def test_agent_and_gateway_come_to_the_same_answer(
    sizes: list[tuple[int, bool, str]], host: int, failures: set[str], low: float | None, context: int
) -> None:
    ledger = Ledger()
    ledger.contexts.note_measured({f"GPU-{name}": context * GRAIN for name in "ab"})
    facts = [DeviceFacts(f"GPU-{name}", n, name, (60 + 40 * n) * GRAIN) for n, name in enumerate("ab")]
    ledger.set_devices(facts)
    options = LeaseSettings(low_ratio=low, host=HostBudget(amount=host * GRAIN))
    keeper = OvercommitKeeper(ledger, options, Copies(), lambda: None)
    keeper.note_checks({one.uuid: "it fails" if one.name in failures else "" for one in facts})
    for number, (hundredths, is_production, residency) in enumerate(sizes):
        states = ledger.device_states("production" if is_production else "opportunistic")
        parts = place(states, hundredths, residency=residency, host=ledger.host_room())
        if not isinstance(parts, Refusal):
            ledger.reserve(str(number), parts, is_production=is_production)
    capacity = LedgerSnapshot(node=read_node(read_status(a_status(ledger, keeper)))).capacity()
    for workload in WorkloadClass:
        assert tuple(capacity.states(workload)) == ledger.device_states(workload.value)
    [node] = capacity.nodes
    assert capacity._host(node) == ledger.host_room()


def a_status(ledger: Ledger, keeper: OvercommitKeeper) -> dict[str, Any]:
    """The parts of the agent's status by which a gateway plans, as they come over its socket."""
    compute = cast(Any, SimpleNamespace(describe_device=lambda uuid: None))
    readings = [DeviceReading(one) for one in ledger.devices]
    devices = describe_devices(ledger, readings, None, compute, keeper.reasons)
    told = {
        "node": "n",
        "driver": "softgpu",
        "enforcer": "hook",
        "connections": 1,
        "kernels": [],
        "devices": devices,
        "oversubscription_rule": describe_oversubscription(ledger),
    }
    status: dict[str, Any] = json.loads(json.dumps(told))
    return status


@dataclass
class Copies:
    """The host copies, as the keeper sees them."""

    held_bytes: int = 0
    warm_bytes: int = 0
    budgets: list[int] = field(default_factory=list)

    def limit_budget(self, memory_bytes: int) -> None:
        self.budgets.append(memory_bytes)


class TestKept:
    """Memory that never leaves its device is not overcommitted."""

    RULE = Oversubscription(4.0, 4.0)

    def free(self, reserved: Reserved, *, residency: str, hundredths: int) -> bool:
        state = device_state("GPU-a", 0, 100 * GRAIN, reserved, self.RULE)
        return not isinstance(place([state], hundredths, residency=residency), Refusal)

    def test_nothing_that_needs_its_room_is_promised_beside_it(self) -> None:
        kept = Reserved().plus(Part("GPU-a", 0, 75, 75 * GRAIN, is_kept=True), is_production=True)
        assert self.free(kept, residency="vmm", hundredths=25)
        assert not self.free(kept, residency="vmm", hundredths=26), "it would never be on the GPU"

    def test_the_rest_of_the_device_is_overcommitted(self) -> None:
        reserved = Reserved().plus(Part("GPU-a", 0, 50, 50 * GRAIN, is_kept=True), is_production=True)
        for _ in range(4):
            assert self.free(reserved, residency="vmm", hundredths=50)
            reserved = reserved.plus(Part("GPU-a", 0, 50, 50 * GRAIN), is_production=True)
        assert not self.free(reserved, residency="vmm", hundredths=1)

    def test_it_gets_only_what_no_other_kernel_was_promised(self) -> None:
        reserved = Reserved().plus(Part("GPU-a", 0, 60, 60 * GRAIN), is_production=True)
        assert self.free(reserved, residency="off", hundredths=40)
        assert not self.free(reserved, residency="off", hundredths=41)


@pytest.mark.parametrize(
    ("held", "warm", "available", "promised", "want"),
    [
        pytest.param(0, 0, 20 * GIB, 0, 8 * GIB, id="all that is set aside"),
        pytest.param(0, 0, None, 0, 8 * GIB, id="a machine that does not tell"),
        pytest.param(0, 0, 5 * GIB, 0, 4 * GIB, id="what is left, less what others need"),
        pytest.param(3 * GIB, 0, 5 * GIB, 0, 7 * GIB, id="copies that are there count"),
        pytest.param(3 * GIB, 0, 0, 0, 3 * GIB, id="copies that are there stay"),
        pytest.param(0, 2 * GIB, GIB, 0, 2 * GIB, id="warm memory can be dropped"),
        pytest.param(0, 0, 9 * GIB, 4 * GIB, 4 * GIB, id="a software GPU is still to have its memory"),
    ],
)
def test_copies_take_no_memory_that_the_machine_needs(
    held: int, warm: int, available: int | None, promised: int, want: int
) -> None:
    assert affordable_bytes(8 * GIB, held, warm, available, 64 * GIB, promised) == want


def test_shrinking_host_memory_lowers_what_starts_next_and_comes_back() -> None:
    left = [40 * GIB]
    ledger, copies = Ledger(64 * GIB), Copies()
    ledger.set_devices([DeviceFacts("GPU-a", 0, "a", 8 * GIB)])
    keeper = OvercommitKeeper(ledger, LeaseSettings(), copies, lambda: left[0])
    keeper.note_checks({"GPU-a": ""})
    assert not keeper.look()
    for name in ("k", "l"):
        ledger.reserve(name, [Part("GPU-a", 0, 100, 8 * GIB)])
    assert (ledger.oversubscription.most_of("GPU-a"), keeper.problem) == (4.0, "")
    copies.held_bytes, left[0] = 8 * GIB, 3 * GIB
    assert keeper.look()
    assert copies.budgets == [10 * GIB]
    assert ledger.oversubscription.most_of("GPU-a") == 1.25
    assert isinstance(place(ledger.device_states(), 100, host=ledger.host_room()), Refusal)
    assert set(ledger.kernels()) == {"k", "l"}
    for words in ("10.0 GiB of the 32.0 GiB", "keep what they have", "--swap-memory"):
        assert words in keeper.problem
    assert "10.0 GiB for copies" in keeper.reasons["GPU-a"]
    left[0] = 30 * GIB
    assert keeper.look()
    assert (keeper.problem, copies.budgets) == ("", [10 * GIB, 32 * GIB])


def test_small_changes_of_host_memory_change_no_plan() -> None:
    ledger, left = Ledger(64 * GIB), [10 * GIB]
    ledger.set_devices([DeviceFacts("GPU-a", 0, "a", 8 * GIB)])
    keeper = OvercommitKeeper(ledger, LeaseSettings(), Copies(), lambda: left[0])
    assert keeper.look()
    for more in (GIB // 2, GIB, 3 * GIB // 2):
        left[0] = 10 * GIB + more
        assert not keeper.look()
    left[0] = 12 * GIB
    assert keeper.look()


def test_an_unanswered_check_lets_a_number_stand_and_automatic_wait() -> None:
    for options, want in ((LeaseSettings(), 1.0), (LeaseSettings(ratio=2.0), 2.0)):
        ledger = Ledger(64 * GIB)
        ledger.set_devices([DeviceFacts("GPU-a", 0, "a", 8 * GIB)])
        keeper = OvercommitKeeper(ledger, options, Copies(), lambda: None)
        keeper.look()
        assert ledger.oversubscription.most_of("GPU-a") == want


@pytest.mark.parametrize(
    ("lines", "files", "want_machine", "want_left"),
    [
        pytest.param(
            "0::/user/agent",
            {
                "user/agent": {"memory.max": "max", "memory.current": 7 * GIB},
                "user": {"memory.max": 6 * GIB, "memory.current": 5 * GIB, "memory.stat": f"inactive_file {GIB}\n"},
            },
            6 * GIB,
            2 * GIB,
            id="version 2: the limit of a group above, whose files can be dropped",
        ),
        pytest.param(
            "5:cpu,cpuacct:/x\n4:memory:/docker/7\n0::/other",
            {"memory/docker/7": {"memory.limit_in_bytes": 4 * GIB, "memory.usage_in_bytes": 3 * GIB}},
            4 * GIB,
            GIB,
            id="version 1",
        ),
        pytest.param(
            "4:memory:/docker/7",
            {"memory": {"memory.limit_in_bytes": 4 * GIB, "memory.usage_in_bytes": GIB}},
            4 * GIB,
            3 * GIB,
            id="version 1 in a container, which does not see its own path",
        ),
        pytest.param("0::/", {".": {"memory.max": 2 * GIB, "memory.current": 3 * GIB}}, 2 * GIB, 0, id="none left"),
        pytest.param("0::/", {".": {"memory.max": "max"}}, None, 9 * GIB, id="no limit but the machine's"),
    ],
)
def test_cgroups_lower_than_the_machine_count(
    tmp_path: Path, lines: str, files: dict[str, dict[str, Any]], want_machine: int | None, want_left: int
) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroups"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text(lines + "\n")
    (proc / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:  {9 << 20} kB\n")
    for folder, contents in files.items():
        (cgroups / folder).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (cgroups / folder / name).write_text(f"{content}\n")
    machine = machine_memory_bytes(tmp_path / "none", proc)
    assert machine_memory_bytes(cgroups, proc) == (min(want_machine, machine) if want_machine else machine)
    assert available_memory_bytes(cgroups, proc) == want_left


@pytest.mark.parametrize(
    ("machine", "devices", "want"), [(8, None, 2), (23, None, 4), (23, 2, 2), (256, None, 16), (0, None, 0.25)]
)
def test_a_software_gpu_of_no_given_size_leaves_host_memory_for_two_copies(
    machine: int, devices: int | None, want: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ALIQUOT_SOFTGPU_MEMORY", raising=False)
    found = SoftGpuSettings(devices=devices).within(machine * GIB)
    assert found.memory_bytes == want * GIB
    if machine:
        needs = [a_device(str(n), int(want * GIB)) for n in range(devices or 1)]
        assert min(ratios(needs, machine * GIB // 2)) >= 2.0
    assert SoftGpuSettings(memory_bytes=7).within(GIB).memory_bytes == 7


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ([], ("auto", None)),
        (["--overcommit", "auto"], ("auto", None)),
        (["--overcommit=2.5", "--overcommit-low", "3"], (2.5, 3.0)),
    ],
)
def test_the_options_are_read(arguments: list[str], want: tuple[float | str, float | None]) -> None:
    found = read_arguments(arguments).leases
    assert (found.ratio, found.low_ratio) == want


def test_the_old_names_of_the_options_hold_for_one_release() -> None:
    with pytest.warns(FutureWarning, match="--oversubscribe is now --overcommit"):
        found = read_arguments(["--oversubscribe", "2"])
    assert (found.leases.ratio, found.options["--overcommit"]) == (2.0, "2")
    with pytest.warns(FutureWarning, match="is now --overcommit-low"):
        assert read_arguments(["--oversubscribe-opportunistic", "3"]).leases.low_ratio == 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_arguments(["--overcommit", "2"])


def test_a_wrong_ratio_is_refused_with_what_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_arguments(["--overcommit", "much"])
    assert "Use auto, or a number from 1 to 16" in capsys.readouterr().err


def test_contents_that_change_on_their_way_fail_the_self_check() -> None:
    """The driver answers without an error, and copies nothing."""

    def call(name: str, *arguments: Any) -> None:
        if name == "cuMemAllocHost_v2":
            arguments[0]._obj.value = ctypes.addressof(ring)

    ring = (ctypes.c_ubyte * (1 << 20))()
    with pytest.raises(MoveError, match="swapped out differs from byte 0 on"):
        check_move(call, 0)


Start = Callable[..., Any]


@pytest.fixture
def an_agent(an_idle_node: Any, a_folder: Path) -> Iterator[Start]:
    """Return a function that starts an agent on the software GPU, with these options."""

    def start(*arguments: str) -> Any:
        command = [sys.executable, "-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", *arguments]
        command += ["--runtime-dir", str(a_folder), "--log-file", str(a_folder / "agent.log")]
        an_idle_node.process = subprocess.Popen(command)
        an_idle_node.until(an_idle_node.answers)
        return an_idle_node

    yield start
    remove_state(softgpu_state_path(RuntimeDir(a_folder)))


def overcommit(node: Any) -> list[tuple[float, str]]:
    return [(device["overcommit"], device["overcommit_reason"]) for device in node.status()["devices"]]


def test_a_device_that_fails_the_self_check_is_not_overcommitted(
    an_agent: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first device cannot map memory a second time: what was swapped out could not come back."""
    monkeypatch.setenv("ALIQUOT_SOFTGPU_FAULTS", "cuMemMap:2=2")
    node = an_agent("--softgpu-devices", "2", "--softgpu-memory", "64MiB")
    [first, second] = overcommit(node)
    assert first == (1.0, "the self-check of swapping failed on this GPU: cuMemMap answered 2")
    assert second == (4.0, "")
    assert node.status()["oversubscription"] == 4.0


def test_a_number_does_not_overrule_a_self_check_that_fails(an_agent: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_SOFTGPU_FAULTS", "cuMemcpyDtoH_v2:2=1")
    [(ratio, reason)] = overcommit(an_agent("--softgpu-memory", "64MiB", "--overcommit", "3"))
    assert (ratio, "cuMemcpyDtoH_v2 answered 1" in reason) == (1.0, True)


def test_kernels_that_keep_their_memory_by_default_are_not_overcommitted(an_agent: Start) -> None:
    [(ratio, reason)] = overcommit(an_agent("--softgpu-memory", "64MiB", "--residency", "off"))
    assert (ratio, "--residency off" in reason) == (1.0, True)
