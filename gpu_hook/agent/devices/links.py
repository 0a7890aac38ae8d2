"""The NVLink and PCIe domains of a node's devices, from NVML's topology.

A domain is a set of devices that reach each other over NVLink; of devices without NVLink, one of
those below one processor. NVML is asked once for each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pynvml  # type: ignore[import-untyped, unused-ignore]


def domains(handles: Sequence[Any]) -> list[int]:
    """Return the number of each device's domain. Devices of which NVML tells no topology are in one."""
    pairs = list(combinations(range(len(handles)), 2))
    over_nvlink = {pair for pair in pairs if _has_nvlink(*(handles[one] for one in pair))}
    with_nvlink = {one for pair in over_nvlink for one in pair}
    rest = [pair for pair in pairs if with_nvlink.isdisjoint(pair)]
    over_pcie = {pair for pair in rest if _has_one_processor(*(handles[one] for one in pair))}
    return joined(len(handles), lambda one, other: (one, other) in over_nvlink or (one, other) in over_pcie)


def joined(count: int, is_pair: Callable[[int, int], bool]) -> list[int]:
    """Return a number for each of *count* things: those that pairs join, over others too, have the same."""
    found = list(range(count))
    for one, other in combinations(range(count), 2):
        if is_pair(one, other) and found[one] != found[other]:
            kept, gone = sorted((found[one], found[other]))
            found = [kept if each == gone else each for each in found]
    numbers = {each: number for number, each in enumerate(dict.fromkeys(found))}
    return [numbers[each] for each in found]


def _has_nvlink(one: Any, other: Any) -> bool:
    try:
        status = pynvml.nvmlDeviceGetP2PStatus(one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    except pynvml.NVMLError:
        return False
    return bool(status == pynvml.NVML_P2P_STATUS_OK)


def _has_one_processor(one: Any, other: Any) -> bool:
    try:
        level = pynvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
    except pynvml.NVMLError:
        return True
    return bool(level <= pynvml.NVML_TOPOLOGY_NODE)
