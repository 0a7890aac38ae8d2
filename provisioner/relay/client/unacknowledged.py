"""The bytes of a relay's messages that its gateway has not acknowledged, and their bound.

A relay has a window, and waits for acknowledgements beyond it. One that runs as a user may be a
program of the user's, which sends on: the gateway would keep all of it for a browser that is slow.
"""

from __future__ import annotations

from jupyter_aliquot.provisioner.relay.wire.protocol import LONGEST_MESSAGE, ProtocolError

# A relay of ours has a window of 8 MiB on its way, or one message that is larger. Small messages
# count for four times their bytes here, and what a closed page had not taken may come again.
MOST_BYTES = 2 * LONGEST_MESSAGE


class Unacknowledged:
    """The messages of one link in their order, by number."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self.bytes = 0

    def came(self, number: int, size: int) -> None:
        """Count a message, which may have come before. Raises ProtocolError beyond the bound."""
        self.bytes += size - self._sizes.pop(number, 0)
        self._sizes[number] = size
        if self.bytes > MOST_BYTES:
            raise ProtocolError(
                f"it sent {self.bytes / 1e6:.0f} MB without waiting for an acknowledgement; at most "
                f"{MOST_BYTES / 1e6:.0f} MB are taken"
            )

    def acknowledged(self, number: int) -> None:
        """Forget a message and all before it."""
        if number not in self._sizes:
            return
        for passed in tuple(self._sizes):
            self.bytes -= self._sizes.pop(passed)
            if passed == number:
                return
