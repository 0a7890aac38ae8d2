"""The words of include/aliquot_protocol.h: constants, enumerations, and page layouts.

Together with ``protocol``, which re-exports them, this is the header's twin.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag

VERSION = 5
MESSAGE_MAGIC = 0x314D5141
PAGE_MAGIC = 0x31505141
PAGE_BYTES = 4096
MAX_DEVICES = 16
HOST_MEMORY = MAX_DEVICES  # as the device of a Credit: page-locked host memory
HOST_UUID = bytes(16)  # its entry in HELLO
MAX_PROCESSES = 64
NO_LIMIT = (1 << 64) - 1
TEXT_BYTES = 192
FUNCTION_BYTES = 60
ACTIVITY_PAGE_MAGIC = 0x31425141
ACTIVITY_PAGE_BYTES = 12288
ACTIVITY_INTERVALS = 40
MAX_PEERS = 32
NAME_BYTES = 32
SOCKET_NAME = "hook.sock"
# a larger amount can only be a negative number, or an overflow in the caller
MAX_AMOUNT = (1 << 63) - 1


class MessageType(IntEnum):
    HELLO = 1
    CREDIT_REQUEST = 2
    CREDIT_RETURN = 3
    SELF_CHECK = 4
    WAKE = 5
    MOVED = 6
    WELCOME = 64
    REFUSE = 65
    CREDIT_GRANT = 66
    CREDIT_RECALL = 67
    CREDIT_WAIT = 68
    SEGMENT = 69
    SWAP_OUT = 70
    SWAP_IN = 71
    ACTIVITY_PAGE = 72


class Role(IntEnum):
    PROCESS = 1
    OBSERVER = 2
    CHECK = 3


class Request(IntEnum):
    """The purpose of a request for credit."""

    NEEDED = 0
    SPARE = 1
    CONTEXT = 2


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


class Gate(IntEnum):
    """The gate of the agent's page."""

    OPEN = 0
    CLOSED = 1
    PACED = 2


class Pace(IntEnum):
    """The way to measure launches on one device and hold them back."""

    OFF = 0
    MEASURE = 1
    TIME = 2


class ActivityPageKind(IntEnum):
    OWN = 0
    PEER = 1
    GONE = 2


class ResidencyMode(IntEnum):
    OFF = 0
    VMM = 1
    MANAGED = 2


class Lease(IntEnum):
    HELD = 0
    ENDED = 1


class Residency(IntEnum):
    """The residency of a process's memory, as its hook reports it."""

    RESIDENT = 0
    SWAPPING_OUT = 1
    SWAPPED = 2
    SWAPPING_IN = 3


class MoveOutcome(IntEnum):
    DONE = 0
    BUSY = 1
    NO_SPACE = 2
    NO_ROOM = 3
    REFUSED = 4
    FAILED = 5


class PinReason(IntFlag):
    """The reason why bytes of a process stay on the device when it is swapped out."""

    SMALL = 1 << 0
    POOL = 1 << 1
    ARRAY = 1 << 2
    IPC = 1 << 3
    EXPORTED = 1 << 4
    GRAPH = 1 << 5
    MULTICAST = 1 << 6
    MANAGED = 1 << 7
    NO_AGENT = 1 << 8
    MODE = 1 << 9
    NCCL = 1 << 10


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
    LEASE = 64
    RESIDENCY_MODE = 68
    LEAST_SWAPPABLE = 72
    CHUNK = 80
    RING = 88
    COPY_THREADS = 96
    COPY_STREAMS = 100
    INTERRUPTS = 104
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
    PACE = 60
    ALLOWED = 64
    ALLOWED_WITH_BUSY_PEERS = 72
    IN_FLIGHT_CAP = 80
    BATCH = 84
    IDLE_WINDOW_MIN = 88
    IDLE_WINDOW_MAX = 92
    IDLE_RESUME = 96
    SOLO_WINDOW = 100
    IS_SAMPLED = 104
    PROCESSES = DEVICES + MAX_DEVICES * DEVICE_BYTES
    PROCESS = struct.Struct("=iiIIQ")
    BYTES = PROCESSES + MAX_PROCESSES * PROCESS.size


class HookPage:
    """Byte offsets of the hook's page; device words are relative to the device's record."""

    MAGIC = 0
    VERSION = 4
    LAST_CALL = 8
    UNKNOWN_SYMBOLS = 16
    UNACCOUNTED_CALLS = 24
    HOST_CHARGED = 32
    HOST_REFUSALS = 40
    HOST_PEAK = 48
    RESIDENCY = 56
    PIN_REASONS = 60
    WAITING_CALLS = 64
    CALLS_INSIDE = 68
    COPIED_BYTES = 72
    DEVICES = 128
    DEVICE_BYTES = 128
    CHARGED = 0
    PEAK = 8
    CREDIT = 16
    ALLOCATIONS = 24
    LAUNCHES = 32
    REFUSALS = 40
    SWAPPABLE = 48
    SWAPPED = 56
    OCCUPIED = 64
    THROTTLED = 72
    IN_FLIGHT = 80
    WAITING_LAUNCHES = 84
    LONGEST = 88
    SAMPLED = 96
    SAMPLED_SOLO = 104
    SAMPLES = 112
    WITHOUT_BASELINE = 116
    NEEDS = DEVICES + MAX_DEVICES * DEVICE_BYTES
    NEED_BYTES = 24
    NEEDED = 0
    REFUSED_NEEDED = 8
    REFUSED_AT = 16
    UNKNOWN_FUNCTION_LENGTH = NEEDS + MAX_DEVICES * NEED_BYTES
    UNKNOWN_FUNCTION = UNKNOWN_FUNCTION_LENGTH + 4
    BYTES = UNKNOWN_FUNCTION + FUNCTION_BYTES


class ActivityPage:
    """Byte offsets of a process's activity page; device words are relative to the device's record."""

    MAGIC = 0
    VERSION = 4
    PID = 8
    DEVICES = 64
    DEVICE_BYTES = 64 + ACTIVITY_INTERVALS * 16
    IS_ACTIVE = 0
    SINCE = 8
    INTERVAL_COUNT = 16
    LOST = 24
    INTERVALS = 64
    INTERVAL_BYTES = 16
    BYTES = DEVICES + MAX_DEVICES * DEVICE_BYTES
