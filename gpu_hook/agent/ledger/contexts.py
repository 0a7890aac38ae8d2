"""The memory that a context takes of each device.

It is measured once for a driver, and corrected by kernels' processes. A context's memory is in no
allocation, so no hook charges it. It counts against the memory of the kernel whose process has it,
from the process's HELLO on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from jupyter_aliquot.gpu_hook.placement.placement import GRAIN_BYTES, Part, format_bytes, format_gpus

_LOOKS = 3  # an allocation between the driver's figure and the hook's spoils a look, but never so many in a row
_MOST_BYTES = 1 << 30
_FIRST_GUESS_BYTES = 512 << 20  # of a context on a large GPU, where none was measured


class ContextCosts:
    """Bytes of contexts by device, and of kernels' processes by kernel and device.

    ``most_bytes`` bounds the figure of one process.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._measured: dict[str, int] = {}
        self._seen: dict[tuple[str, str], deque[int]] = {}
        self._pids: dict[tuple[str, str], frozenset[int]] = {}

    def measured(self, uuid: str) -> int:
        """Return the bytes that a context without work takes of this device; 0: not measured."""
        return self._measured.get(uuid, 0)

    def room_for_one(self, uuid: str, least_bytes: int = 0) -> int:
        """Return the bytes to free on this device for a context: at least so many, and twice the usual at most."""
        usual = self._measured.get(uuid) or _FIRST_GUESS_BYTES
        return min(max(usual, min(least_bytes, 2 * usual)), self._most_bytes)

    def is_measured(self, uuid: str) -> bool:
        return uuid in self._measured

    def note_measured(self, found: Mapping[str, int]) -> None:
        self._measured.update({uuid: max(0, min(amount, self._most_bytes)) for uuid, amount in found.items()})

    def note_seen(
        self, contexts: Mapping[tuple[str, str], int], pids: Mapping[tuple[str, str], frozenset[int]] | None = None
    ) -> None:
        """Take from one look what the driver showed of kernels' processes beyond their charges.

        The bytes are by kernel and device; ``pids`` are the processes that have them. An earlier
        look at other processes says nothing about these.
        """
        own = pids or {}
        kept = {key: looks for key, looks in self._seen.items() if own.get(key) == self._pids.get(key)}
        self._seen = {key: kept.get(key, deque(maxlen=_LOOKS)) for key in contexts}
        self._pids = dict(own)
        for key, amount in contexts.items():
            self._seen[key].append(amount)

    def why_too_small(self, parts: Sequence[Part]) -> str:
        """Return why a kernel with these parts could allocate nothing beside a context.

        Return an empty text if it could.
        """
        for part in parts:
            context = self.measured(part.uuid)
            if part.quota_bytes < context + GRAIN_BYTES:
                asked = f"{format_gpus(part.hundredths)} with {format_bytes(part.quota_bytes)}"
                return (
                    f"Requested {asked} of gpu{part.index}, but a process's context alone takes "
                    f"{format_bytes(context)} there. Choose a larger size"
                )
        return ""

    def counted(self, kernel_id: str, uuid: str, processes: int) -> int:
        """Return the bytes that so many processes of a kernel count for.

        If more was seen, that counts.
        """
        looks = self._seen.get((kernel_id, uuid), ())
        seen = min(looks) if len(looks) == _LOOKS else 0
        return max(processes * self.measured(uuid), min(seen, processes * self._most_bytes))
