"""A ContainerPlan that could harm, or that no engine could run, is refused when it is made."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jupyter_aliquot.provisioner.containers.limits import LimitRules, NodeTotals, limits_for
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, ContainerPlan, Mount, Pull
from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare

_GIB = 1 << 30
A_NODE = NodeTotals(Bytes(100 * _GIB), 40, 4)


def test_a_plan_of_an_image_alone_is_hardened() -> None:
    plan = ContainerPlan("pytorch:2.11")
    assert (plan.network, plan.read_only_root, plan.mounts, plan.pull) == ("none", True, (), Pull.MISSING)
    assert plan.limits.pids is not None


@pytest.mark.parametrize(
    ("fields", "want_words"),
    [
        ({"image": ""}, "not the name of an image"),
        ({"image": "-v /:/host"}, "not the name of an image"),
        ({"image": "a b"}, "not the name of an image"),
        ({"pull": "sometimes"}, "missing, always, never"),
        ({"user": "alice"}, "1000:1000"),
        ({"user": "1000"}, "1000:1000"),
        ({"user": "0:-1"}, "1000:1000"),
        ({"user": "4294967295:0"}, "1000:1000"),
        ({"userns": "container:db"}, "Choose host, auto"),
        ({"network": "host"}, "shared"),
        ({"network": "container:db"}, "shared"),
        ({"network": "container"}, "shared"),
        ({"network": ""}, "shared"),
        ({"home": "home/alice"}, "absolute path"),
        ({"workdir": "/home/../etc"}, "absolute path"),
        ({"cuda_compat": "cuda/compat"}, "absolute path"),
        ({"cuda_compat": "/cuda:/compat"}, "not one folder"),
        ({"env": (("A=B", "1"),)}, "letters, digits"),
        ({"labels": (("aliquot.dev/owner", "bob"),)}, "Aliquot writes"),
        ({"mounts": (Mount("/a", "/data"), Mount("/b", "/data"))}, "one place holds one"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_plan_is_refused_with_what_to_do(fields: dict[str, Any], want_words: str) -> None:
    with pytest.raises(RequestError, match=want_words) as caught:
        ContainerPlan(**{"image": "pytorch", **fields})
    assert re.search(r"\. (Use|Write|Choose|Give) ", str(caught.value)), "it says what to do"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("data", "/data"),
        ("/data", "data"),
        ("/data/../etc", "/data"),
        ("/data", "/data//x"),
        ("/data:/etc", "/data"),
        ("/da\nta", "/data"),
        ("/", "/"),
        ("/data", "/proc"),
        ("/data", "/etc"),
        ("", "/data"),
    ],
)
def test_a_mount_that_is_no_plain_path_or_hides_the_system_is_refused(source: str, target: str) -> None:
    with pytest.raises(RequestError, match="Requested to mount"):
        Mount(source, target)


@pytest.mark.parametrize("limits", [{"memory": Bytes(1 << 20)}, {"cpus": 0.0}, {"pids": 1}, {"shm": Bytes(0)}])
def test_limits_under_which_no_kernel_runs_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"a kernel needs .* or more"):
        ContainerLimits(**limits)


@pytest.mark.parametrize(
    "limits", [{"memory": Bytes(1 << 63)}, {"cpus": 1e300}, {"pids": 10**30}, {"shm": Bytes(1 << 63)}]
)
def test_limits_that_no_engine_can_read_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"engines take .* at most"):
        ContainerLimits(**limits)


@pytest.mark.parametrize(
    ("share", "want_memory", "want_cpus"),
    [("1", 20 * _GIB, 9.0), ("0.25", 5 * _GIB, 2.25), ("4", 80 * _GIB, 36.0), ("2.5", 50 * _GIB, 22.5)],
)
def test_limits_are_in_proportion_to_the_share(share: str, want_memory: int, want_cpus: float) -> None:
    limits = limits_for(GpuShare.parse(share), A_NODE, LimitRules())
    assert (limits.memory, limits.cpus) == (want_memory, want_cpus)


def test_all_kernels_of_a_full_node_leave_it_its_own_part() -> None:
    quarter = limits_for(GpuShare(25), A_NODE, LimitRules())
    assert quarter.memory is not None
    assert quarter.cpus is not None
    assert 16 * quarter.memory <= 0.8 * A_NODE.memory
    assert 16 * quarter.cpus <= 0.9 * A_NODE.cpus


@pytest.mark.parametrize("share", [None, GpuShare(1)])
def test_a_tiny_share_or_none_gets_the_floor(share: GpuShare | None) -> None:
    rules = LimitRules(floor_memory=Bytes(2 * _GIB), floor_cpus=1.5)
    limits = limits_for(share, A_NODE, rules)
    assert (limits.memory, limits.cpus) == (2 * _GIB, 1.5)


def test_fixed_limits_win_and_none_is_larger_than_the_node() -> None:
    fixed = limits_for(GpuShare(100), A_NODE, LimitRules(fixed_memory=Bytes(3 * _GIB), fixed_cpus=2))
    assert (fixed.memory, fixed.cpus) == (3 * _GIB, 2)
    small = limits_for(GpuShare(100), NodeTotals(Bytes(_GIB // 2), 1, 1), LimitRules(floor_cpus=4))
    assert (small.memory, small.cpus) == (_GIB // 2, 1)


@pytest.mark.parametrize("fraction", [0, -1, 1.5])
def test_a_fraction_that_is_none_is_refused(fraction: float) -> None:
    with pytest.raises(RequestError, match="at most 1"):
        LimitRules(memory_fraction=fraction)


def test_a_node_without_room_for_any_kernel_is_said() -> None:
    with pytest.raises(RequestError, match="too small for any kernel"):
        limits_for(None, NodeTotals(Bytes(1 << 20), 1, 0), LimitRules())
