"""The twin of aliquot_protocol.h: constants, messages as frozen values, and page layouts.

This module packs and unpacks; it opens no socket and maps no page. A message that does not fit the
header raises MalformedError.
"""

from __future__ import annotations

import struct
import uuid as uuids

from .messages import (
    ActivityPageNotice as ActivityPageNotice,
    Credit as Credit,
    Hello as Hello,
    HelloDevice as HelloDevice,
    MalformedError as MalformedError,
    Moved as Moved,
    MovedDevice as MovedDevice,
    Refuse as Refuse,
    Segment as Segment,
    SelfCheckResult as SelfCheckResult,
    Swap as Swap,
    Wake as Wake,
    Welcome as Welcome,
)
from .words import (
    ACTIVITY_INTERVALS as ACTIVITY_INTERVALS,
    ACTIVITY_PAGE_BYTES as ACTIVITY_PAGE_BYTES,
    ACTIVITY_PAGE_MAGIC as ACTIVITY_PAGE_MAGIC,
    FUNCTION_BYTES as FUNCTION_BYTES,
    HOST_MEMORY as HOST_MEMORY,
    HOST_UUID as HOST_UUID,
    MAX_AMOUNT as MAX_AMOUNT,
    MAX_DEVICES as MAX_DEVICES,
    MAX_PEERS as MAX_PEERS,
    MAX_PROCESSES as MAX_PROCESSES,
    MESSAGE_MAGIC as MESSAGE_MAGIC,
    NAME_BYTES as NAME_BYTES,
    NO_LIMIT as NO_LIMIT,
    PAGE_BYTES as PAGE_BYTES,
    PAGE_MAGIC as PAGE_MAGIC,
    SOCKET_NAME as SOCKET_NAME,
    TEXT_BYTES as TEXT_BYTES,
    VERSION as VERSION,
    ActivityPage as ActivityPage,
    ActivityPageKind as ActivityPageKind,
    AgentPage as AgentPage,
    Enforcer as Enforcer,
    Gate as Gate,
    HookPage as HookPage,
    Lease as Lease,
    MessageType as MessageType,
    MoveOutcome as MoveOutcome,
    Pace as Pace,
    PinReason as PinReason,
    RefusalReason as RefusalReason,
    Request as Request,
    Residency as Residency,
    ResidencyMode as ResidencyMode,
    Role as Role,
    SelfCheck as SelfCheck,
    WorkloadClass as WorkloadClass,
)

HEADER = struct.Struct("=IHHII")
HELLO_FIXED = struct.Struct("=iiQII32s")  # role is unsigned in C; read as signed it is refused like any unknown role
HELLO_DEVICE = struct.Struct("=16sQQ")
CREDIT = struct.Struct("=IIQ")
SELF_CHECK = struct.Struct(f"=II{TEXT_BYTES}s")
SEGMENT = struct.Struct("=IIQ")
SWAP = struct.Struct("=II")
WAKE = struct.Struct("=II")
MOVED_FIXED = struct.Struct("=IIIIQQQQ")
MOVED_DEVICE = struct.Struct("=QQ")
WELCOME = struct.Struct("=II")
ACTIVITY_PAGE_NOTICE = struct.Struct("=IIII")
REFUSE = struct.Struct(f"=II{TEXT_BYTES}s")

HELLO_ENTRIES = MAX_DEVICES + 1  # the last is for host memory
HELLO_BYTES = HEADER.size + HELLO_FIXED.size + HELLO_ENTRIES * HELLO_DEVICE.size
CREDIT_BYTES = HEADER.size + CREDIT.size
SELF_CHECK_BYTES = HEADER.size + SELF_CHECK.size
WELCOME_BYTES = HEADER.size + WELCOME.size
REFUSE_BYTES = HEADER.size + REFUSE.size
SEGMENT_BYTES = HEADER.size + SEGMENT.size
SWAP_BYTES = HEADER.size + SWAP.size
ACTIVITY_PAGE_NOTICE_BYTES = HEADER.size + ACTIVITY_PAGE_NOTICE.size
WAKE_BYTES = HEADER.size + WAKE.size
MOVED_BYTES = HEADER.size + MOVED_FIXED.size + MAX_DEVICES * MOVED_DEVICE.size + TEXT_BYTES
LARGEST_MESSAGE = HELLO_BYTES


Message = Hello | Credit | SelfCheckResult | Welcome | Refuse | Segment | Swap | Wake | Moved | ActivityPageNotice

_CREDIT_TYPES = (
    MessageType.CREDIT_REQUEST,
    MessageType.CREDIT_RETURN,
    MessageType.CREDIT_GRANT,
    MessageType.CREDIT_RECALL,
    MessageType.CREDIT_WAIT,
)
_SWAP_TYPES = (MessageType.SWAP_OUT, MessageType.SWAP_IN)
_RESIDENCY_TYPES = (MessageType.WAKE, MessageType.MOVED, MessageType.SEGMENT, *_SWAP_TYPES)
_KNOWN_PIN_REASONS = (PinReason.NCCL << 1) - 1
_KNOWN_CHECKS = SelfCheck.ALL | SelfCheck.ABSOLUTE_PATH
_SIZES = {
    MessageType.HELLO: HELLO_BYTES,
    MessageType.SELF_CHECK: SELF_CHECK_BYTES,
    MessageType.WELCOME: WELCOME_BYTES,
    MessageType.REFUSE: REFUSE_BYTES,
    MessageType.SEGMENT: SEGMENT_BYTES,
    MessageType.WAKE: WAKE_BYTES,
    MessageType.MOVED: MOVED_BYTES,
    MessageType.ACTIVITY_PAGE: ACTIVITY_PAGE_NOTICE_BYTES,
    **dict.fromkeys(_SWAP_TYPES, SWAP_BYTES),
    **dict.fromkeys(_CREDIT_TYPES, CREDIT_BYTES),
}


def pack(message: Message) -> bytes:
    """Return the message as one datagram."""
    if isinstance(message, Hello):
        return _pack_hello(message)
    if isinstance(message, Credit):
        body = CREDIT.pack(message.device, message.deadline_milliseconds, message.bytes)
        return _header(message.type, message.sequence) + body
    if isinstance(message, SelfCheckResult):
        body = SELF_CHECK.pack(message.passed, 0, cut_text(message.text, TEXT_BYTES))
        return _header(MessageType.SELF_CHECK, message.sequence) + body
    if isinstance(message, Welcome):
        return _header(MessageType.WELCOME, message.sequence) + WELCOME.pack(message.device_count, 0)
    if isinstance(message, Refuse):
        body = REFUSE.pack(message.reason, 0, cut_text(message.text, TEXT_BYTES))
        return _header(MessageType.REFUSE, message.sequence) + body
    if isinstance(message, ActivityPageNotice):
        body = ACTIVITY_PAGE_NOTICE.pack(message.kind, message.number, message.device, message.page_device)
        return _header(MessageType.ACTIVITY_PAGE, message.sequence) + body
    return _pack_residency(message)


def unpack(datagram: bytes) -> Message:
    """Read one datagram.

    Raises MalformedError for anything that the header does not allow.
    """
    if len(datagram) < HEADER.size:
        raise MalformedError(f"got {len(datagram)} bytes; a message has at least {HEADER.size}")
    magic, version, kind, length, sequence = HEADER.unpack_from(datagram)
    if magic != MESSAGE_MAGIC:
        raise MalformedError(f"got magic {magic:#x}; want {MESSAGE_MAGIC:#x}")
    if version != VERSION:
        raise MalformedError(
            f"got protocol version {version}; this side speaks version {VERSION}. Restart the kernel, so that its hook "
            "and the node agent are of one release",
            RefusalReason.VERSION,
        )
    if kind not in _SIZES:
        raise MalformedError(f"got a message of unknown type {kind}")
    want = _SIZES[MessageType(kind)]
    if length != want or len(datagram) != want:
        raise MalformedError(f"got {len(datagram)} bytes, {length} said, for type {kind}; want {want}")
    return _unpack_body(MessageType(kind), datagram, sequence)


def device_uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of ``GPU-01234567-89ab-…``. Raises ValueError."""
    return uuids.UUID(text[-36:]).bytes


def cut_text(text: str, room: int) -> bytes:
    """Return UTF-8 that fits, with its final NUL. No character is cut in half."""
    return text.encode()[: room - 1].decode(errors="ignore").encode()


def _header(kind: MessageType, sequence: int) -> bytes:
    return HEADER.pack(MESSAGE_MAGIC, VERSION, kind, _SIZES[kind], sequence)


def _pack_hello(hello: Hello) -> bytes:
    name = cut_text(hello.name, NAME_BYTES)
    fixed = HELLO_FIXED.pack(hello.role, hello.pid, hello.start_time_ticks, len(hello.devices), hello.residency, name)
    table = b"".join(HELLO_DEVICE.pack(d.uuid, d.charged_bytes, d.credit_bytes) for d in hello.devices)
    header = _header(MessageType.HELLO, hello.sequence)
    return (header + fixed + table).ljust(HELLO_BYTES, b"\0")


def _pack_residency(message: Segment | Swap | Wake | Moved) -> bytes:
    if isinstance(message, Segment):
        body = SEGMENT.pack(message.number, 0, message.bytes)
        return _header(MessageType.SEGMENT, message.sequence) + body
    if isinstance(message, Swap):
        body = SWAP.pack(message.drain_milliseconds, message.segment_count)
        return _header(message.type, message.sequence) + body
    if isinstance(message, Wake):
        return _header(MessageType.WAKE, message.sequence) + WAKE.pack(message.waiting_calls, 0)
    fixed = MOVED_FIXED.pack(
        message.outcome,
        message.residency,
        message.pin_reasons,
        len(message.devices),
        message.wanted_bytes,
        message.drain_nanoseconds,
        message.copy_nanoseconds,
        message.map_nanoseconds,
    )
    table = b"".join(MOVED_DEVICE.pack(d.swapped_bytes, d.unswappable_bytes) for d in message.devices)
    body = fixed + table.ljust(MAX_DEVICES * MOVED_DEVICE.size, b"\0")
    text = cut_text(message.text, TEXT_BYTES).ljust(TEXT_BYTES, b"\0")
    return _header(MessageType.MOVED, message.sequence) + body + text


def _text(raw: bytes) -> str:
    text = raw.split(b"\0", 1)[0].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _unpack_body(kind: MessageType, datagram: bytes, sequence: int) -> Message:
    if kind in _CREDIT_TYPES:
        device, deadline, amount = CREDIT.unpack_from(datagram, HEADER.size)
        if device >= HELLO_ENTRIES:
            raise MalformedError(f"got {amount} bytes on device {device}")
        return Credit(kind, device, amount, sequence, deadline)
    if kind is MessageType.HELLO:
        return _unpack_hello(datagram, sequence)
    if kind is MessageType.SELF_CHECK:
        passed, _, text = SELF_CHECK.unpack_from(datagram, HEADER.size)
        return SelfCheckResult(SelfCheck(passed & _KNOWN_CHECKS), _text(text), sequence)
    if kind is MessageType.WELCOME:
        return Welcome(WELCOME.unpack_from(datagram, HEADER.size)[0], sequence)
    if kind is MessageType.ACTIVITY_PAGE:
        return _unpack_activity_page_notice(datagram, sequence)
    if kind in _RESIDENCY_TYPES:
        return _unpack_residency(kind, datagram, sequence)
    reason, _, text = REFUSE.unpack_from(datagram, HEADER.size)
    if reason not in RefusalReason.__members__.values():
        raise MalformedError(f"got refusal reason {reason}")
    return Refuse(RefusalReason(reason), _text(text), sequence)


def _unpack_activity_page_notice(datagram: bytes, sequence: int) -> ActivityPageNotice:
    kind, number, device, page_device = ACTIVITY_PAGE_NOTICE.unpack_from(datagram, HEADER.size)
    if kind not in ActivityPageKind.__members__.values() or number >= MAX_PEERS:
        raise MalformedError(f"got an activity page of kind {kind}, number {number}")
    if max(device, page_device) >= MAX_DEVICES:
        raise MalformedError(
            f"got an activity page of devices {device} and {page_device}; a kernel has at most {MAX_DEVICES}"
        )
    return ActivityPageNotice(ActivityPageKind(kind), number, device, page_device, sequence)


def _unpack_residency(kind: MessageType, datagram: bytes, sequence: int) -> Message:
    if kind is MessageType.SEGMENT:
        number, _, amount = SEGMENT.unpack_from(datagram, HEADER.size)
        return Segment(number, amount, sequence)
    if kind in _SWAP_TYPES:
        drain, count = SWAP.unpack_from(datagram, HEADER.size)
        return Swap(kind, sequence, drain, count)
    if kind is MessageType.WAKE:
        return Wake(WAKE.unpack_from(datagram, HEADER.size)[0], sequence)
    return _unpack_moved(datagram, sequence)


def _unpack_moved(datagram: bytes, sequence: int) -> Moved:
    outcome, residency, pin_reasons, count, wanted, *phases = MOVED_FIXED.unpack_from(datagram, HEADER.size)
    if outcome not in MoveOutcome.__members__.values() or residency not in Residency.__members__.values():
        raise MalformedError(f"got outcome {outcome}, residency {residency}")
    if count > MAX_DEVICES:
        raise MalformedError(f"got {count} devices; at most {MAX_DEVICES}")
    start = HEADER.size + MOVED_FIXED.size
    devices = tuple(
        MovedDevice(*MOVED_DEVICE.unpack_from(datagram, start + i * MOVED_DEVICE.size)) for i in range(count)
    )
    if any(d.swapped_bytes + d.unswappable_bytes > MAX_AMOUNT for d in devices) or wanted > MAX_AMOUNT:
        raise MalformedError("got more bytes than any device has")
    text = _text(datagram[start + MAX_DEVICES * MOVED_DEVICE.size :])
    known = PinReason(pin_reasons & _KNOWN_PIN_REASONS)
    drain, copy, map_ = phases
    return Moved(MoveOutcome(outcome), Residency(residency), devices, known, wanted, drain, copy, map_, text, sequence)


def _unpack_hello(datagram: bytes, sequence: int) -> Hello:
    role, pid, ticks, count, residency, name = HELLO_FIXED.unpack_from(datagram, HEADER.size)
    if role not in Role.__members__.values():
        raise MalformedError(f"got role {role}")
    if count > HELLO_ENTRIES:
        raise MalformedError(f"got {count} devices; at most {HELLO_ENTRIES}")
    if residency not in Residency.__members__.values():
        raise MalformedError(f"got residency {residency}")
    start = HEADER.size + HELLO_FIXED.size
    devices = tuple(
        HelloDevice(*HELLO_DEVICE.unpack_from(datagram, start + i * HELLO_DEVICE.size)) for i in range(count)
    )
    if any(device.charged_bytes + device.credit_bytes > MAX_AMOUNT for device in devices):
        raise MalformedError("got a table of more bytes than any device has")
    if len({device.uuid for device in devices}) != count:
        raise MalformedError("got a table that names a device twice")
    return Hello(Role(role), pid, ticks, _text(name), devices, sequence, Residency(residency))
