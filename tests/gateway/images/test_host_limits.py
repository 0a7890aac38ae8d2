"""Settings of the share of its host that a container may use."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.containers.host_choice import HostOffer, options_report
from jupyter_aliquot.gateway.containers.host_limits import HostLimits, node_totals
from jupyter_aliquot.gateway.containers.images import read_image
from jupyter_aliquot.gateway.containers.planner import image_limits
from jupyter_aliquot.gateway.sizes.grammar import SizedName
from jupyter_aliquot.provisioner.containers.limits import (
    CpuChoice,
    MemoryChoice,
    NodeTotals,
    cpu_choice,
    limits_for,
    memory_choice,
)
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits
from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, HostPart, Request


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("memory_fraction", 0.0),
        ("cpu_fraction", 1.5),
        ("floor_memory", "lots"),
        ("floor_memory", "1MiB"),
        ("fixed_memory", "0"),
        ("shm", "1"),
        ("floor_cpus", 0.0),
        ("fixed_cpus", -1.0),
        ("pids", 3),
        ("most_cpus", -1.0),
        ("most_memory", "1MiB"),
        ("sizes", {"half": {"cpus": 1}}),
        ("sizes", {"0.5": {"processors": 1}}),
        ("sizes", {"0.5": {"cpus": 1e9}}),
        ("sizes", {"0.5": {"memory": "1MiB"}}),
    ],
)
def test_a_wrong_value_is_refused_by_the_knobs_name(knob: str, value: Any) -> None:
    with pytest.raises(TraitError, match=f"c.HostLimits.{knob}"):
        HostLimits(config=Config({"HostLimits": {knob: value}}))


def test_the_knobs_decide_what_a_kernel_gets_of_this_machine() -> None:
    rules = HostLimits(fixed_memory="2GiB", fixed_cpus=0.75, pids=99, shm="1GiB").rules()
    want = ContainerLimits(Bytes(2 << 30), 0.75, 99, Bytes(1 << 30))
    assert limits_for(GpuShare(25), node_totals(1), rules) == want


def test_an_images_own_limits_win_over_the_share() -> None:
    image = read_image({"name": "a", "image": "a", "limits": {"memory": "3GiB", "pids": 70}})
    found = image_limits(image, ContainerLimits(Bytes(1 << 30), 0.5, 1024, Bytes(64 << 20)))
    assert found == ContainerLimits(Bytes(3 << 30), 0.5, 70, Bytes(64 << 20))


GIB = 1 << 30
NODE = NodeTotals(Bytes(64 * GIB), 16, 4)
RULES = HostLimits(
    most_cpus=8,
    most_memory="32GiB",
    sizes={"0.5": {"cpus": 2, "memory": "4GiB", "most_cpus": 3, "most_memory": "6GiB"}},
).rules()


def offer(share: GpuShare, folders: tuple[str, ...] | None = None) -> HostOffer:
    return HostOffer(cpu_choice(share, NODE, RULES), memory_choice(share, NODE, RULES), folders)


def test_users_choose_nothing_unless_the_administrator_says_how_much() -> None:
    rules = HostLimits().rules()
    asked = HostPart(8, Bytes(32 * GIB))
    assert cpu_choice(GpuShare(25), NODE, rules) is memory_choice(GpuShare(25), NODE, rules) is None
    assert limits_for(GpuShare(25), NODE, rules, asked) == limits_for(GpuShare(25), NODE, rules)
    with pytest.raises(RequestError, match=r"8 CPUs, which cannot be chosen here\. The administrator"):
        HostOffer(None, None).check(asked)


def test_a_choice_within_the_bounds_is_what_a_kernel_gets() -> None:
    limits = limits_for(GpuShare(25), NODE, RULES, HostPart(6, Bytes(20 * GIB)))
    assert (limits.cpus, limits.memory) == (6, 20 * GIB)
    assert offer(GpuShare(25)).problem(HostPart(6, Bytes(20 * GIB))) == ""


def test_bounds_hold_on_machines_whose_totals_are_not_known() -> None:
    size, choice = GpuShare(25), HostPart(64, Bytes(900 * GIB))
    assert limits_for(size, None, HostLimits().rules(), choice) == ContainerLimits(None, None), "none can be chosen"
    assert limits_for(size, None, HostLimits(fixed_cpus=3, fixed_memory="5GiB").rules()).cpus == 3
    assert limits_for(size, None, RULES) == ContainerLimits(Bytes(GIB), 0.5), "the floors, where users may choose"
    assert limits_for(size, None, RULES, choice) == ContainerLimits(Bytes(32 * GIB), 8), "at most what is allowed"
    assert limits_for(size, None, RULES, HostPart(6, Bytes(20 * GIB))) == ContainerLimits(Bytes(20 * GIB), 6)
    half = limits_for(GpuShare(50), None, RULES, HostPart(0.25))
    assert half == ContainerLimits(Bytes(4 * GIB), 0.5)
    bounds = HostOffer(cpu_choice(size, None, RULES), memory_choice(size, None, RULES))
    assert "0.5 to 8 CPUs here" in bounds.problem(HostPart(9)), "not those of the gateway's own machine"
    assert bounds.problem(HostPart(8, Bytes(32 * GIB))) == ""


def test_a_single_size_has_defaults_and_bounds_of_its_own() -> None:
    limits = limits_for(GpuShare(50), NODE, RULES)
    assert (limits.cpus, limits.memory) == (2, 4 * GIB)
    assert "0.5 to 3 CPUs here" in offer(GpuShare(50)).problem(HostPart(4))
    assert "1.0 GiB to 6.0 GiB here" in offer(GpuShare(50)).problem(HostPart(None, Bytes(8 * GIB)))


def test_a_choice_that_is_no_longer_allowed_has_a_nearest_one_and_runs_with_it() -> None:
    asked = HostPart(64, Bytes(500 * GIB), ("sets", "gone"))
    nearest = offer(GpuShare(50), ("sets",)).nearest(asked)
    assert nearest == HostPart(3, Bytes(6 * GIB), ("sets",))
    assert offer(GpuShare(50), ("sets",)).problem(nearest) == ""
    limits = limits_for(GpuShare(50), NODE, RULES, asked)
    assert (limits.cpus, limits.memory) == (3, 6 * GIB), "a restart after the bounds were lowered"


def test_a_range_without_a_whole_step_is_not_offered_and_has_no_nearest() -> None:
    none = HostOffer(CpuChoice(0.1, 0.3, 0.2), MemoryChoice(Bytes(256 << 20), Bytes(700 << 20), Bytes(512 << 20)))
    sized = SizedName("open", Request(GpuShare(25)))
    report = options_report(sized, HostPart(0.5, Bytes(GIB)), none, "Open", None)
    assert (report["cpus"], report["ram_bytes"], report["name"]) == (None, None, "open.gpu-0.25")
    one = HostOffer(CpuChoice(0.6, 1.4, 1), MemoryChoice(Bytes(GIB - 1), Bytes(2 * GIB - 1), Bytes(GIB)))
    assert one.nearest(HostPart(9, Bytes(9 * GIB))) == HostPart(1, Bytes(GIB))


def test_folders_are_chosen_for_containers_from_those_of_the_user() -> None:
    assert "only kernels in containers" in offer(GpuShare(25)).problem(HostPart(folders=("sets",)))
    assert "the folder gone, but the folder sets" in offer(GpuShare(25), ("sets",)).problem(HostPart(folders=("gone",)))
    assert offer(GpuShare(25)).problem(HostPart(folders=())) == ""
