"""The twin of include/aliquot_protocol.h: constants, messages as frozen values, and where the words of the pages lie.

Packs and unpacks; it opens no socket and maps no page. A message that does not fit the header raises MalformedError.
"""

from __future__ import annotations

import struct
import uuid as uuids
from dataclasses import dataclass
from enum import IntEnum, IntFlag

VERSION = 2
OLDEST_VERSION = 1
MESSAGE_MAGIC = 0x314D5141
PAGE_MAGIC = 0x31505141
PAGE_BYTES = 4096
MAX_DEVICES = 16
HOST_MEMORY = MAX_DEVICES  # as the device of a Credit: page-locked host memory
HOST_UUID = bytes(16)  # its entry in HELLO
MAX_PROCESSES = 64
NO_LIMIT = (1 << 64) - 1
TEXT_BYTES = 192
NAME_BYTES = 32
SOCKET_NAME = "hook.sock"
MAX_AMOUNT = (1 << 63) - 1  # larger amounts can only be negative numbers or overflows of a caller

HEADER = struct.Struct("=IHHII")
HELLO_FIXED = struct.Struct("=iiQII32s")  # role is unsigned in C; read as signed it is refused like any unknown role
HELLO_DEVICE = struct.Struct("=16sQQ")
CREDIT = struct.Struct("=IIQ")
SELF_CHECK = struct.Struct(f"=II{TEXT_BYTES}s")
WELCOME = struct.Struct("=II")
REFUSE = struct.Struct(f"=II{TEXT_BYTES}s")

HELLO_ENTRIES = {1: MAX_DEVICES, 2: MAX_DEVICES + 1}
HELLO_BYTES = HEADER.size + HELLO_FIXED.size + HELLO_ENTRIES[VERSION] * HELLO_DEVICE.size
CREDIT_BYTES = HEADER.size + CREDIT.size
SELF_CHECK_BYTES = HEADER.size + SELF_CHECK.size
WELCOME_BYTES = HEADER.size + WELCOME.size
REFUSE_BYTES = HEADER.size + REFUSE.size
LARGEST_MESSAGE = HELLO_BYTES


class MessageType(IntEnum):
    HELLO = 1
    CREDIT_REQUEST = 2
    CREDIT_RETURN = 3
    SELF_CHECK = 4
    WELCOME = 64
    REFUSE = 65
    CREDIT_GRANT = 66
    CREDIT_RECALL = 67


class Role(IntEnum):
    PROCESS = 1
    OBSERVER = 2
    CHECK = 3


class WorkloadClass(IntEnum):
    PRODUCTION = 0
    OPPORTUNISTIC = 1


class RefusalReason(IntEnum):
    VERSION = 1
    KERNEL = 2
    MESSAGE = 3
    FULL = 4
    PEER = 5


class Enforcer(IntEnum):
    HOOK = 0
    MPS = 1
    DRIVER = 2


class SelfCheck(IntFlag):
    CUDA_NAME = 1 << 0
    CUDA_LINK_NAME = 1 << 1
    QUERY = 1 << 2
    NVML_NAME = 1 << 3
    ONE_DRIVER = 1 << 4
    ABSOLUTE_PATH = 1 << 5
    ALL = 0x1F


class AgentPage:
    """Byte offsets of the agent's page; device words are relative to the device's record."""

    MAGIC = 0
    VERSION = 4
    GENERATION = 8
    GATE = 16
    WORKLOAD_CLASS = 20
    DEVICE_COUNT = 24
    HOST_QUOTA = 32
    HOST_CHARGED_ELSEWHERE = 40
    HOST_CHARGED = 48
    PROCESS_SEQUENCE = 56
    PROCESS_COUNT = 60
    DEVICES = 128
    DEVICE_BYTES = 128
    UUID = 0
    QUOTA = 16
    CHARGED_ELSEWHERE = 24
    CHARGED = 32
    SHARE_HUNDREDTHS = 40
    ENFORCER = 44
    BUSY_NANOSECONDS = 48
    UTILIZATION = 56
    PROCESSES = DEVICES + MAX_DEVICES * DEVICE_BYTES
    PROCESS = struct.Struct("=iiIIQ")
    BYTES = PROCESSES + MAX_PROCESSES * PROCESS.size


class HookPage:
    """Byte offsets of the hook's page; device words are relative to the device's record."""

    MAGIC = 0
    VERSION = 4
    PID = 8
    LAST_CALL = 16
    UNKNOWN_SYMBOLS = 24
    UNACCOUNTED_CALLS = 32
    HOST_CHARGED = 40
    HOST_CREDIT = 48
    HOST_REFUSALS = 56
    HOST_PEAK = 64
    DEVICES = 128
    DEVICE_BYTES = 128
    CHARGED = 0
    PEAK = 8
    CREDIT = 16
    ALLOCATIONS = 24
    LAUNCHES = 32
    REFUSALS = 40
    BYTES = DEVICES + MAX_DEVICES * DEVICE_BYTES


class MalformedError(Exception):
    """A message that does not follow the header. ``reason`` is what the sender is told."""

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
    version: int = VERSION


@dataclass(frozen=True)
class Credit:
    """REQUEST, GRANT, RETURN or RECALL, by ``type``."""

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


Message = Hello | Credit | SelfCheckResult | Welcome | Refuse

_CREDIT_TYPES = (
    MessageType.CREDIT_REQUEST,
    MessageType.CREDIT_RETURN,
    MessageType.CREDIT_GRANT,
    MessageType.CREDIT_RECALL,
)
_KNOWN_CHECKS = SelfCheck.ALL | SelfCheck.ABSOLUTE_PATH
_SIZES = {
    MessageType.HELLO: HELLO_BYTES,
    MessageType.SELF_CHECK: SELF_CHECK_BYTES,
    MessageType.WELCOME: WELCOME_BYTES,
    MessageType.REFUSE: REFUSE_BYTES,
    **dict.fromkeys(_CREDIT_TYPES, CREDIT_BYTES),
}


def pack(message: Message, version: int = VERSION) -> bytes:
    """One datagram. A HELLO is of its own version."""
    if isinstance(message, Hello):
        return _pack_hello(message)
    if isinstance(message, Credit):
        body = CREDIT.pack(message.device, message.deadline_milliseconds, message.bytes)
        return _header(message.type, message.sequence, version) + body
    if isinstance(message, SelfCheckResult):
        body = SELF_CHECK.pack(message.passed, 0, cut_text(message.text, TEXT_BYTES))
        return _header(MessageType.SELF_CHECK, message.sequence, version) + body
    if isinstance(message, Welcome):
        return _header(MessageType.WELCOME, message.sequence, version) + WELCOME.pack(message.device_count, 0)
    body = REFUSE.pack(message.reason, 0, cut_text(message.text, TEXT_BYTES))
    return _header(MessageType.REFUSE, message.sequence, version) + body


def unpack(datagram: bytes, want_version: int | None = None) -> Message:
    """Read one datagram; raises MalformedError for anything that the header does not allow.

    ``want_version`` is what the connection's HELLO named; without it, any version that we speak is read.
    """
    if len(datagram) < HEADER.size:
        raise MalformedError(f"got {len(datagram)} bytes; a message has at least {HEADER.size}")
    magic, version, kind, length, sequence = HEADER.unpack_from(datagram)
    if magic != MESSAGE_MAGIC:
        raise MalformedError(f"got magic {magic:#x}; want {MESSAGE_MAGIC:#x}")
    if not OLDEST_VERSION <= version <= VERSION or want_version not in (None, version):
        speaks = f"{OLDEST_VERSION} to {VERSION}" if want_version is None else f"{want_version} on this connection"
        raise MalformedError(f"got version {version}; this agent speaks {speaks}", RefusalReason.VERSION)
    if kind not in _SIZES:
        raise MalformedError(f"got a message of unknown type {kind}")
    want = _size(MessageType(kind), version)
    if length != want or len(datagram) != want:
        raise MalformedError(f"got {len(datagram)} bytes, {length} said, for type {kind}; want {want}")
    return _unpack_body(MessageType(kind), datagram, sequence, version)


def device_uuid_bytes(text: str) -> bytes:
    """The 16 bytes of ``GPU-01234567-89ab-…``; raises ValueError."""
    return uuids.UUID(text[-36:]).bytes


def cut_text(text: str, room: int) -> bytes:
    """UTF-8 that fits, with its final NUL and no character cut in half."""
    return text.encode()[: room - 1].decode(errors="ignore").encode()


def _size(kind: MessageType, version: int) -> int:
    shorter = HELLO_ENTRIES[VERSION] - HELLO_ENTRIES[version] if kind is MessageType.HELLO else 0
    return _SIZES[kind] - shorter * HELLO_DEVICE.size


def _header(kind: MessageType, sequence: int, version: int) -> bytes:
    return HEADER.pack(MESSAGE_MAGIC, version, kind, _size(kind, version), sequence)


def _pack_hello(hello: Hello) -> bytes:
    name = cut_text(hello.name, NAME_BYTES)
    fixed = HELLO_FIXED.pack(hello.role, hello.pid, hello.start_time_ticks, len(hello.devices), 0, name)
    table = b"".join(HELLO_DEVICE.pack(d.uuid, d.charged_bytes, d.credit_bytes) for d in hello.devices)
    header = _header(MessageType.HELLO, hello.sequence, hello.version)
    return (header + fixed + table).ljust(_size(MessageType.HELLO, hello.version), b"\0")


def _text(raw: bytes) -> str:
    text = raw.split(b"\0", 1)[0].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _unpack_body(kind: MessageType, datagram: bytes, sequence: int, version: int) -> Message:
    if kind in _CREDIT_TYPES:
        device, deadline, amount = CREDIT.unpack_from(datagram, HEADER.size)
        if device >= HELLO_ENTRIES[version]:
            raise MalformedError(f"got {amount} bytes on device {device}")
        return Credit(kind, device, amount, sequence, deadline)
    if kind is MessageType.HELLO:
        return _unpack_hello(datagram, sequence, version)
    if kind is MessageType.SELF_CHECK:
        passed, _, text = SELF_CHECK.unpack_from(datagram, HEADER.size)
        return SelfCheckResult(SelfCheck(passed & _KNOWN_CHECKS), _text(text), sequence)
    if kind is MessageType.WELCOME:
        return Welcome(WELCOME.unpack_from(datagram, HEADER.size)[0], sequence)
    reason, _, text = REFUSE.unpack_from(datagram, HEADER.size)
    if reason not in RefusalReason.__members__.values():
        raise MalformedError(f"got refusal reason {reason}")
    return Refuse(RefusalReason(reason), _text(text), sequence)


def _unpack_hello(datagram: bytes, sequence: int, version: int) -> Hello:
    role, pid, ticks, count, _, name = HELLO_FIXED.unpack_from(datagram, HEADER.size)
    if role not in Role.__members__.values():
        raise MalformedError(f"got role {role}")
    if count > HELLO_ENTRIES[version]:
        raise MalformedError(f"got {count} devices; at most {HELLO_ENTRIES[version]}")
    start = HEADER.size + HELLO_FIXED.size
    devices = tuple(
        HelloDevice(*HELLO_DEVICE.unpack_from(datagram, start + i * HELLO_DEVICE.size)) for i in range(count)
    )
    if any(device.charged_bytes + device.credit_bytes > MAX_AMOUNT for device in devices):
        raise MalformedError("got a table of more bytes than any device has")
    if len({device.uuid for device in devices}) != count:
        raise MalformedError("got a table that names a device twice")
    return Hello(Role(role), pid, ticks, _text(name), devices, sequence, version)
