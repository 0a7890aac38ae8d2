"""Settings of the share of its host that a container may use."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.containers.host_limits import HostLimits, node_totals
from jupyter_aliquot.gateway.containers.images import read_image
from jupyter_aliquot.gateway.containers.planner import image_limits
from jupyter_aliquot.provisioner.containers.limits import limits_for
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare


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
