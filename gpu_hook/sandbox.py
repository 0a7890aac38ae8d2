"""Find out whether Aliquot supports the operating system's kernel.

This module needs nothing but the standard library.
"""

from __future__ import annotations

import ctypes

GVISOR = (
    "gVisor: unsupported: NVML names processes by its own ids there, so that the audit finds none of a kernel's, "
    "and memory for copies cannot be populated"
)
_READ_ALL = 3  # SYSLOG_ACTION_READ_ALL
_LOG_BYTES = 1 << 16
_SIGN = "Starting gVisor"  # in its kernel's log, which every process may read


def is_gvisor() -> bool:
    """Return whether this is gVisor, by the kernel's log.

    Linux may not permit reading it; gVisor does.
    """
    text = ctypes.create_string_buffer(_LOG_BYTES)
    try:
        length = ctypes.CDLL(None).klogctl(_READ_ALL, text, _LOG_BYTES)
    except (AttributeError, OSError):  # this C library has no such call
        return False
    return length > 0 and _SIGN in text.raw[:length].decode(errors="replace")
