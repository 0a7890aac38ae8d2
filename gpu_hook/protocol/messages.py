"""The messages of include/aliquot_protocol.h as frozen values.

``protocol`` packs, unpacks and re-exports them.
"""

from __future__ import annotations

from dataclasses import dataclass

from .words import ActivityPageKind, MessageType, MoveOutcome, PinReason, RefusalReason, Residency, Role, SelfCheck


class MalformedError(Exception):
    """A message that does not follow the header.

    The sender gets ``reason`` in the refusal.
    """

    def __init__(self, text: str, reason: RefusalReason = RefusalReason.MESSAGE) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class HelloDevice:
    uuid: bytes
    charged_bytes: int
    credit_bytes: int


@dataclass(frozen=True)
class Hello:
    role: Role
    pid: int
    start_time_ticks: int
    name: str
    devices: tuple[HelloDevice, ...] = ()
    sequence: int = 0
    residency: Residency = Residency.RESIDENT


@dataclass(frozen=True)
class Credit:
    """A message about credit.

    Its ``type`` is REQUEST, GRANT, WAIT, RETURN or RECALL. In a REQUEST and a GRANT ``deadline_milliseconds`` is
    a ``Request``.
    """

    type: MessageType
    device: int
    bytes: int
    sequence: int
    deadline_milliseconds: int = 0


@dataclass(frozen=True)
class SelfCheckResult:
    passed: SelfCheck
    text: str
    sequence: int = 0


@dataclass(frozen=True)
class Welcome:
    device_count: int
    sequence: int = 0


@dataclass(frozen=True)
class Refuse:
    reason: RefusalReason
    text: str
    sequence: int = 0


@dataclass(frozen=True)
class Segment:
    """Host memory for the next SWAP_OUT; its descriptor travels with it."""

    number: int
    bytes: int
    sequence: int = 0


@dataclass(frozen=True)
class ActivityPageNotice:
    """An activity page; its descriptor travels with it, unless it is GONE.

    The numbers are a peer's.
    """

    kind: ActivityPageKind
    number: int = 0
    device: int = 0
    page_device: int = 0
    sequence: int = 0


@dataclass(frozen=True)
class Swap:
    """An order to move; its ``type`` is SWAP_OUT or SWAP_IN."""

    type: MessageType
    sequence: int
    drain_milliseconds: int = 0
    segment_count: int = 0


@dataclass(frozen=True)
class Wake:
    waiting_calls: int
    sequence: int = 0


_NO_PIN_REASONS = PinReason(0)


@dataclass(frozen=True)
class MovedDevice:
    swapped_bytes: int
    unswappable_bytes: int


@dataclass(frozen=True)
class Moved:
    """A process's answer to SWAP_OUT or SWAP_IN. Untrusted: the reader bounds it by the loan."""

    outcome: MoveOutcome
    residency: Residency
    devices: tuple[MovedDevice, ...] = ()
    pin_reasons: PinReason = _NO_PIN_REASONS
    wanted_bytes: int = 0
    drain_nanoseconds: int = 0
    copy_nanoseconds: int = 0
    map_nanoseconds: int = 0
    text: str = ""
    sequence: int = 0
