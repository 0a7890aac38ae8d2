"""The NVLink and PCIe domains of devices: from pairs of NVML to the agent's status."""

from __future__ import annotations

from typing import Any

import pynvml  # type: ignore[import-untyped, unused-ignore]
import pytest

from jupyter_aliquot.gpu_hook.agent.devices import links
from jupyter_aliquot.gpu_hook.agent.devices.links import domains, joined


@pytest.mark.parametrize(
    ("count", "pairs", "want"),
    [
        (1, set(), [0]),
        (4, {(0, 1), (2, 3)}, [0, 0, 1, 1]),
        (4, {(0, 2), (1, 2)}, [0, 0, 0, 1]),
        (5, {(0, 4), (1, 3)}, [0, 1, 2, 1, 0]),
        (4, {(2, 3), (0, 3), (0, 1)}, [0, 0, 0, 0]),
    ],
)
def test_devices_that_pairs_join_are_in_one_domain(count: int, pairs: set[tuple[int, int]], want: list[int]) -> None:
    assert joined(count, lambda one, other: (one, other) in pairs) == want


class ScriptedNvml:
    """NVML's answers about pairs; a missing one is an error."""

    def __init__(self, nvlink: set[frozenset[int]], levels: dict[frozenset[int], int]) -> None:
        self._nvlink, self._levels = nvlink, levels

    def linked(self, one: int, other: int, index: int) -> int:
        assert index == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        return pynvml.NVML_P2P_STATUS_OK if frozenset({one, other}) in self._nvlink else 5

    def ancestor(self, one: int, other: int) -> int:
        level = self._levels.get(frozenset({one, other}))
        if level is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return level


def told(monkeypatch: pytest.MonkeyPatch, nvml: ScriptedNvml, count: int) -> list[int]:
    monkeypatch.setattr(links.pynvml, "nvmlDeviceGetP2PStatus", nvml.linked)
    monkeypatch.setattr(links.pynvml, "nvmlDeviceGetTopologyCommonAncestor", nvml.ancestor)
    return domains(range(count))


def test_nvlink_makes_a_domain_and_devices_without_it_are_in_that_of_their_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near, far = pynvml.NVML_TOPOLOGY_NODE, pynvml.NVML_TOPOLOGY_SYSTEM
    every = {frozenset({one, other}): far for one in range(4) for other in range(one)}
    pairs = {frozenset({0, 1}), frozenset({2, 3})}
    over_pcie = {**every, **dict.fromkeys(pairs, near)}
    assert told(monkeypatch, ScriptedNvml(set(), over_pcie), 4) == [0, 0, 1, 1]
    assert told(monkeypatch, ScriptedNvml({frozenset({0, 2})}, over_pcie), 4) == [0, 1, 0, 2]
    assert told(monkeypatch, ScriptedNvml({frozenset({0, 1})}, over_pcie), 4) == [0, 0, 1, 1]
    assert told(monkeypatch, ScriptedNvml(set(), {}), 4) == [0, 0, 0, 0], "NVML tells no topology"


def test_the_agents_status_tells_the_domain_of_each_device(an_idle_node: Any) -> None:
    an_idle_node.set_devices(count=3, domains=[0, 1, 1])
    an_idle_node.start()
    assert [device["domain"] for device in an_idle_node.status()["devices"]] == [0, 1, 1]
