"""Bounds on the connections of agents: how many there are, and how fast their frames come.

An agent is another machine's program. One that is wrong, or whose token was stolen, holds up no
other part of the gateway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from jupyter_aliquot.gpu_hook.base.pacing import TokenBucket
from jupyter_aliquot.provisioner.errors import LimitError

# A status of a thousand kernels takes about 2 MiB.
LONGEST_FRAME = 8 << 20
LONGEST_REGISTRATION = 4096
# What RFC 6455 lets a close frame hold besides its code.
_LONGEST_CLOSE_REASON = 123
_FRAMES_PER_SECOND, _FRAMES_AT_ONCE = 200.0, 1000.0
_BYTES_PER_SECOND, _BYTES_AT_ONCE = float(8 << 20), float(64 << 20)
MOST_NODES = 4096
# A token for any node registers no more names than this, so that it leaves names to others.
MOST_OF_ANY = 1024
# Connections beyond one for each node: an agent dials anew before its lost connection is noticed.
_SPARE_SOCKETS = 64


class FrameRates:
    """The pace of one connection's frames, by number and by bytes."""

    def __init__(self, now: float) -> None:
        self._frames = TokenBucket(_FRAMES_PER_SECOND, _FRAMES_AT_ONCE, now)
        self._bytes = TokenBucket(_BYTES_PER_SECOND, _BYTES_AT_ONCE, now)

    def take(self, frame_bytes: int, now: float) -> float:
        """Count a frame, and return how long to wait until it is passed on."""
        self._frames.charge(1, now)
        self._bytes.charge(frame_bytes, now)
        return max(self._frames.seconds_until(now, 0), self._bytes.seconds_until(now, 0))


class AgentSockets:
    """The open connections, by token. Only digests of tokens are kept."""

    def __init__(self) -> None:
        self._open: Counter[bytes] = Counter()

    @contextmanager
    def admit(self, token: str, allowed: frozenset[str] | None) -> Iterator[None]:
        """Count a connection, as long as it is open. Raises LimitError."""
        key = sha256(token.encode(errors="replace")).digest()
        most = (MOST_OF_ANY if allowed is None else len(allowed)) + _SPARE_SOCKETS
        if self._open[key] >= most or self._open.total() >= MOST_NODES + _SPARE_SOCKETS:
            raise LimitError(
                f"Requested a connection, but agents have {self._open.total()} of them, {self._open[key]} by this "
                f"token, which may have {most}. Give each node a token of its own, and stop agents that are not needed"
            )
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


def close_reason(told: str) -> str:
    """Return the beginning of a text, as long as a close frame can hold it."""
    return told.encode(errors="replace")[:_LONGEST_CLOSE_REASON].decode(errors="ignore")
