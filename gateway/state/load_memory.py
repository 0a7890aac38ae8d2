"""The measured loads of kernels, from the node agents' reports: for the choice of neighbors.

It keeps what kernels use of their devices, the last load of each owner's kernelspec, and how fast pairs
of kernels ran side by side. A restarted gateway learns it again from the kernels that run.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from jupyter_aliquot.gateway.planning.colocation import NO_LOADS, Interference, Loads, Profile, weighted
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.sizes.grammar import base_of
from jupyter_aliquot.gpu_hook.client.reports import KernelDeviceStatus, KernelStatus, NodeStatus

# Owners' kernelspecs, and pairs of kernels; older ones are forgotten.
MOST_EARLIER = 2000
MOST_PAIRS = 200
# New pairs after which the model is fitted again, which takes tens of milliseconds.
NEW_PAIRS = 20
# A kernel that used less of a device's last second tells nothing of its neighbor.
LEAST_SHARE = 0.05

Pair = tuple[Profile, Profile, float]


class LoadMemory:
    """The memory. ``note_status`` takes reports, ``note`` the ledger after each cycle of admission."""

    def __init__(self) -> None:
        self._seen: dict[str, KernelStatus] = {}
        self._profiles: dict[str, Profile] = {}
        self._earlier: dict[tuple[str, str], Profile] = {}
        # Kernels whose profile changed since the last cycle.
        self._news: set[str] = set()
        # By the ids of the two kernels: a pair counts once, as it was seen last.
        self._pairs: dict[frozenset[str], Pair] = {}
        self._new_pairs = 0
        self._model = NO_LOADS.model
        self._now = NO_LOADS
        self._is_stale = False

    def now(self) -> Loads:
        """Return the loads for a plan; the same object while nothing changed."""
        if self._is_stale:
            self._is_stale = False
            self._now = Loads(
                MappingProxyType(dict(self._profiles)), MappingProxyType(dict(self._earlier)), self._model
            )
        return self._now

    def note_status(self, status: NodeStatus | None) -> None:
        """Take the report of all nodes. An unchanged kernel is the same object as before."""
        if status is None:
            return
        changed = [one for one in status.kernels if self._seen.get(one.kernel_id) is not one]
        for kernel in changed:
            self._note_kernel(kernel)
        kernels = {one.kernel_id: one for one in status.kernels}
        if self._seen.keys() - kernels.keys():
            self._profiles = {one: profile for one, profile in self._profiles.items() if one in kernels}
            self._is_stale = True
        self._seen = kernels
        if changed:
            self._note_pairs(status.kernels)

    def note(self, ledger: LedgerSnapshot) -> None:
        """Keep the loads of kernels for the next ones of the same owner and kernelspec."""
        news, self._news = self._news, set()
        for kernel_id in news:
            holding, profile = ledger.holdings.get(kernel_id), self._profiles.get(kernel_id)
            if holding is None or profile is None:
                continue
            key = (holding.requester.owner, base_of(holding.requester.kernelspec))
            if self._earlier.pop(key, None) != profile:
                self._is_stale = True
            self._earlier[key] = profile
        while len(self._earlier) > MOST_EARLIER:
            del self._earlier[next(iter(self._earlier))]

    def _note_kernel(self, kernel: KernelStatus) -> None:
        profile = profile_of(kernel.devices)
        if profile is not None and self._profiles.get(kernel.kernel_id) != profile:
            self._profiles[kernel.kernel_id] = profile
            self._is_stale = True
        if profile is not None:
            self._news.add(kernel.kernel_id)

    def _note_pairs(self, kernels: Iterable[KernelStatus]) -> None:
        """Take the speed of the slower one of two kernels that alone share a device, and work now."""
        for ids, pair in pairs_of(kernels):
            self._new_pairs += self._pairs.pop(ids, None) is None
            self._pairs[ids] = pair
        while len(self._pairs) > MOST_PAIRS:
            del self._pairs[next(iter(self._pairs))]
        if self._new_pairs >= NEW_PAIRS:
            self._new_pairs = 0
            self._model, self._is_stale = Interference(self._pairs.values()), True


def profile_of(devices: Iterable[KernelDeviceStatus]) -> Profile | None:
    """Return a kernel's load in steps, the mean of its devices by the time with work; None without any."""
    loads = [one.load for one in devices if one.load is not None]
    if not loads:
        return None
    memory = weighted((one.memory, one.seconds) for one in loads)
    return Profile(memory, weighted((one.gpu, one.seconds) for one in loads)).in_steps()


def pairs_of(kernels: Iterable[KernelStatus]) -> Iterable[tuple[frozenset[str], Pair]]:
    """Yield the pairs of kernels that alone share a device and worked on it lately, with the slower one's speed."""
    on_device: dict[str, list[tuple[KernelStatus, KernelDeviceStatus]]] = {}
    for kernel in kernels:
        for device in kernel.devices:
            on_device.setdefault(device.uuid, []).append((kernel, device))
    for there in on_device.values():
        known = [slowdown for _, device in there if (slowdown := _slowdown(device)) is not None]
        if len(there) != 2 or not known or not all(_works(device) for _, device in there):
            continue
        one, other = (profile_of(kernel.devices) for kernel, _ in there)
        if one is not None and other is not None:
            ids = frozenset(kernel.kernel_id for kernel, _ in there)
            yield ids, (one, other, round(1.0 / max(1.0, *known), 2))


def _slowdown(device: KernelDeviceStatus) -> float | None:
    return None if device.compute is None else device.compute.stretch


def _works(device: KernelDeviceStatus) -> bool:
    share = None if device.compute is None else device.compute.share_used
    return share is not None and share >= LEAST_SHARE
