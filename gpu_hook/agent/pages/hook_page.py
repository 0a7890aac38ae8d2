"""The page that a process's hook writes, as the agent reads it.

It is untrusted: the reader bounds each word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

from .shared_page import SharedPage

_FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KNOWN_PIN_REASONS = (protocol.PinReason.NCCL << 1) - 1


@dataclass(frozen=True)
class HookWords:
    """A hook's words about one device, or host memory.

    Untrusted: the reader bounds them by the loan.
    """

    charged_bytes: int
    peak_bytes: int
    refusals: int


@dataclass(frozen=True)
class NeedWords:
    """The bytes that a process would have used of one device, by its hook. Untrusted.

    ``stands_bytes`` belong to refusals that stand. ``open_bytes`` belong to the last one, while the
    process may yet manage without. ``refused_at`` is the time of that one, in seconds; once it is
    decided, of the last one that stands.
    """

    stands_bytes: int = 0
    open_bytes: int = 0
    refused_at: float = 0.0


@dataclass(frozen=True)
class ResidencyWords:
    """A hook's words about the residency of its memory.

    Untrusted; ``last_call`` in seconds, 0.0: none yet.
    """

    pin_reasons: protocol.PinReason
    waiting_calls: int
    calls_inside: int
    last_call: float


class ComputeWords(NamedTuple):
    """A hook's words about its process's work on one device. Untrusted; times in nanoseconds.

    ``waiting_calls`` is for the whole process, since a waiting call may have no device yet.
    """

    launches: int
    occupied: int
    throttled: int
    in_flight: int
    waiting_launches: int
    longest: int
    sampled: int
    sampled_solo: int
    samples: int
    without_baseline: int
    waiting_calls: int = 0


class HookSide:
    """The page that the hook writes, as the agent reads it."""

    def __init__(self) -> None:
        self._page = SharedPage("aliquot-hook-page", other_side_writes=True)

    @property
    def descriptor(self) -> int:
        return self._page.descriptor

    def charged(self, device: int) -> int:
        """Return the charged bytes, the one word that is read often."""
        if device == protocol.HOST_MEMORY:
            return self._page.words[HookPage.HOST_CHARGED // 8]
        return self._page.words[(HookPage.DEVICES + device * HookPage.DEVICE_BYTES + HookPage.CHARGED) // 8]

    def read(self, device: int) -> HookWords:
        """Return the words of one device, or of host memory (HOST_MEMORY)."""
        words = self._page.words
        if device == protocol.HOST_MEMORY:
            return HookWords(
                charged_bytes=words[HookPage.HOST_CHARGED // 8],
                peak_bytes=words[HookPage.HOST_PEAK // 8],
                refusals=words[HookPage.HOST_REFUSALS // 8],
            )
        start = (HookPage.DEVICES + device * HookPage.DEVICE_BYTES) // 8
        return HookWords(
            charged_bytes=words[start + HookPage.CHARGED // 8],
            peak_bytes=words[start + HookPage.PEAK // 8],
            refusals=words[start + HookPage.REFUSALS // 8],
        )

    def need(self, device: int) -> NeedWords:
        """Return the need on one device: zero where nothing was refused."""
        start = (HookPage.NEEDS + device * HookPage.NEED_BYTES) // 8
        words = self._page.words
        return NeedWords(
            stands_bytes=words[start + HookPage.NEEDED // 8],
            open_bytes=words[start + HookPage.REFUSED_NEEDED // 8],
            refused_at=words[start + HookPage.REFUSED_AT // 8] / 1e9,
        )

    def copied(self) -> int:
        """Return the bytes that it copied so far, in all its moves."""
        return self._page.words[HookPage.COPIED_BYTES // 8]

    def swappable(self, device: int) -> int:
        """Return the charged bytes that can leave."""
        return self._page.words[(HookPage.DEVICES + device * HookPage.DEVICE_BYTES + HookPage.SWAPPABLE) // 8]

    def swapped(self, device: int) -> int:
        """Return the bytes of these that are on the host now."""
        return self._page.words[(HookPage.DEVICES + device * HookPage.DEVICE_BYTES + HookPage.SWAPPED) // 8]

    def compute(self, device: int) -> ComputeWords:
        start = HookPage.DEVICES + device * HookPage.DEVICE_BYTES
        words = self._page.words[start // 8 : (start + HookPage.DEVICE_BYTES) // 8].tolist()
        half_words = self._page.half_words[start // 4 : (start + HookPage.DEVICE_BYTES) // 4].tolist()
        return ComputeWords(
            words[HookPage.LAUNCHES // 8],
            words[HookPage.OCCUPIED // 8],
            words[HookPage.THROTTLED // 8],
            half_words[HookPage.IN_FLIGHT // 4],
            half_words[HookPage.WAITING_LAUNCHES // 4],
            words[HookPage.LONGEST // 8],
            words[HookPage.SAMPLED // 8],
            words[HookPage.SAMPLED_SOLO // 8],
            half_words[HookPage.SAMPLES // 4],
            half_words[HookPage.WITHOUT_BASELINE // 4],
            self._page.half_words[HookPage.WAITING_CALLS // 4],
        )

    def residency(self) -> int:
        """Return the residency of its memory as the page has it; it may be no Residency."""
        return self._page.half_words[HookPage.RESIDENCY // 4]

    def read_residency(self) -> ResidencyWords:
        half_words = self._page.half_words
        return ResidencyWords(
            pin_reasons=protocol.PinReason(half_words[HookPage.PIN_REASONS // 4] & _KNOWN_PIN_REASONS),
            waiting_calls=half_words[HookPage.WAITING_CALLS // 4],
            calls_inside=half_words[HookPage.CALLS_INSIDE // 4],
            last_call=self._page.words[HookPage.LAST_CALL // 8] / 1e9,
        )

    def unknown_function(self) -> str:
        """Return the first driver function the process called that its hook does not know.

        Empty: it called none.
        """
        length = self._page.half_words[HookPage.UNKNOWN_FUNCTION_LENGTH // 4]
        if not length:
            return ""
        said = self._page.get_bytes(HookPage.UNKNOWN_FUNCTION, min(length, protocol.FUNCTION_BYTES - 1))
        name = said.decode("latin-1")
        return name if _FUNCTION_NAME.fullmatch(name) else "(no name)"

    def close_descriptor(self) -> None:
        """Close our copy of the descriptor: the process has its own now."""
        self._page.close_descriptor()

    def close(self) -> None:
        self._page.close()
