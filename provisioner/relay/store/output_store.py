"""Messages of the kernel that no gateway acknowledged: kept in memory, then on disk, within bounds.

This module owns the bounds. `delivery` decides which link gets a message, and when a message is
done with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jupyter_aliquot.provisioner.relay.wire.messages import PARENT, new_id, read_object
from jupyter_aliquot.provisioner.relay.wire.ranges import Range, joined

from .segments import Place, Spill
from .spill_room import SpillFullError

# An index entry stays in memory when its message is on disk: their number is bounded, too.
MOST_MESSAGES = 250_000

# parent header, msg_id of the notice, messages, bytes, why -> the notice's frames
MakeNotice = Callable[[bytes, str, int, int, str], list[bytes]]


class Bounds(NamedTuple):
    """The bounds of a store. At most ``memory_bytes`` of all ``store_bytes`` are in memory."""

    memory_bytes: int
    store_bytes: int
    most_messages: int = MOST_MESSAGES

    @property
    def why(self) -> str:
        """Return the notice about a message beyond the bounds."""
        return (
            f"More than {self.store_bytes / 1e6:.0f} MB or {self.most_messages} messages waited for a client "
            "(c.Limits.unsent_output_bytes)"
        )


class Notice:
    """A notice in the place of the first dropped output of a request."""

    __slots__ = ("bytes", "messages", "msg_id", "parent", "why")

    def __init__(self, parent: bytes, why: str) -> None:
        self.parent = parent
        self.why = why
        self.msg_id = new_id()
        self.messages = 0
        self.bytes = 0


class Entry:
    """One message. ``frames`` None: it is at ``place``, or it is a notice.

    ``flights``: the links that it is on its way on. ``origins``: a pod's sidecar keeps it, too, by
    these numbers; those of a notice are of all that it stands for.
    """

    __slots__ = (
        "acknowledged",
        "channel",
        "flights",
        "frames",
        "is_output",
        "notice",
        "origins",
        "place",
        "seq",
        "session",
        "size",
    )

    def __init__(self, seq: int, channel: str, session: str | None, size: int, is_output: bool) -> None:
        self.seq = seq
        self.channel = channel
        self.session = session
        self.size = size
        self.is_output = is_output
        self.frames: Sequence[Any] | None = None
        self.place: Place | None = None
        self.notice: Notice | None = None
        self.flights = 0
        self.origins: list[Range] = []
        self.acknowledged: set[int] | None = None


class Store:
    """The messages in the order of ``seq``; a notice takes the place of dropped ones."""

    def __init__(self, bounds: Bounds, spill: Spill, make_notice: MakeNotice) -> None:
        self._bounds = bounds
        self._spill = spill
        self._make_notice = make_notice
        self.forgotten: Callable[[Sequence[Range]], object] = lambda origins: None  # called with those of an entry
        self._entries: dict[int, Entry] = {}
        self._outputs: deque[int] = deque()  # may name entries that are gone
        self._why = ""  # the reason for the last drop
        self._missing: int | None = None  # missing bytes when a file was last given back for a message that still waits
        self._sheltered: list[int] = []  # outputs that were in flight when the oldest were to go
        self._notices: dict[str, int] = {}  # by the parent's msg_id: the seq of a notice that was not sent yet
        self._next = 1
        self._memory = 0
        self._total = 0
        # The last number that the other end has; set by a pod's sidecar. What it lacks is told under a later number.
        self.handed = 0
        self.in_flight_bytes = 0  # set by delivery: they are in memory anyway, bounded by the links' windows
        self.dropped_messages = 0
        self.dropped_bytes = 0

    @property
    def total_bytes(self) -> int:
        return self._total

    @property
    def memory_bytes(self) -> int:
        return self._memory

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, seq: int) -> Entry | None:
        return self._entries.get(seq)

    def add(self, channel: str, session: str | None, frames: Sequence[Any], size: int, is_output: bool) -> Entry:
        """Keep a message in memory; ``settle`` brings the store within its bounds."""
        entry = Entry(self._next, channel, session, size, is_output)
        entry.frames = frames
        self._next += 1
        self._entries[entry.seq] = entry
        self._memory += size
        self._total += size
        if is_output:
            self._outputs.append(entry.seq)
        return entry

    def settle(self, entry: Entry) -> None:
        """Bring the store within its bounds.

        Called after ``add``, and after the message was sent if possible.
        """
        if self._has_too_much_in_memory() and not entry.flights and entry.frames is not None:
            self._move_to_disk(entry)
        while self._entries and self._is_over():
            self._why = self._bounds.why
            if not self._drop_one():
                return

    def settle_all(self) -> None:
        """Settle every message: a link ended, and its messages on their way wait again."""
        if self._sheltered:
            self._outputs = deque(sorted([*self._sheltered, *self._outputs]))
            self._sheltered = []
        for entry in reversed(list(self)):
            if not self._has_too_much_in_memory():
                return
            if entry.frames is not None and not entry.flights:
                self._move_to_disk(entry)

    def load(self, entry: Entry) -> Sequence[Any]:
        """Return the frames of a message. Raises OSError."""
        if entry.notice is not None:
            notice = entry.notice
            self._notices.pop(_parent_id(notice.parent), None)  # later drops need another notice
            return self._make_notice(notice.parent, notice.msg_id, notice.messages, notice.bytes, notice.why)
        if entry.frames is not None:
            return entry.frames
        assert entry.place is not None
        return self._spill.read(entry.place)

    def remove(self, seq: int) -> None:
        """Forget a message that was acknowledged."""
        entry = self._entries.pop(seq, None)
        if entry is not None:
            self.in_flight_bytes -= entry.size if entry.flights else 0
            self._release(entry)
            self._forget_origins(entry)
            # One message that is kept for long, such as a reply to a page that is gone, must not
            # keep these numbers.
            while self._outputs and self._outputs[0] not in self._entries:
                self._outputs.popleft()

    def lose(self, entry: Entry) -> None:
        """Count a message that cannot be read from the disk any more as dropped."""
        self.dropped_messages += 1
        self.dropped_bytes += entry.size
        self.remove(entry.seq)

    def close(self) -> None:
        """Remove the files on disk."""
        self._entries.clear()
        self._spill.close()

    def _has_too_much_in_memory(self) -> bool:
        return self._memory - self.in_flight_bytes > self._bounds.memory_bytes

    def _is_over(self) -> bool:
        return self._total > self._bounds.store_bytes or len(self._entries) > self._bounds.most_messages

    def _move_to_disk(self, entry: Entry) -> None:
        """Write a message to disk, or drop an output.

        Messages on disk go only if their room suffices.
        """
        while entry.frames is not None and self._has_too_much_in_memory():
            error = self._write(entry)
            if error is None:
                return
            now_missing = error.missing_bytes if isinstance(error, SpillFullError) else None
            if not self._spill.segments:
                if not self._drop_one():  # all waiting messages are in memory
                    self._drop(entry)
            elif now_missing is None or (self._missing is not None and now_missing >= self._missing):
                self._do_without_disk(entry)
            else:
                self._missing = now_missing if self._free_a_file(entry) else None

    def _free_a_file(self, entry: Entry) -> bool:
        """Drop the oldest outputs until a file or some memory is free; tell whether a file is."""
        segments = self._spill.segments
        while entry.frames is not None and self._spill.segments == segments and self._has_too_much_in_memory():
            if not self._drop_one():
                self._drop(entry)
        return self._spill.segments != segments

    def _do_without_disk(self, entry: Entry) -> None:
        """Drop a new output. Another message stays as long as outputs in memory can go for it."""
        if entry.is_output:
            return self._drop(entry)
        for other in list(self):
            if not self._has_too_much_in_memory():
                return
            if other.is_output and other.frames is not None and not other.flights:
                self._drop(other)
        if self._has_too_much_in_memory():
            self._drop(entry)

    def _write(self, entry: Entry) -> OSError | None:
        """Move a message's frames to disk; return the error, if there is one."""
        assert entry.frames is not None
        try:
            entry.place = self._spill.write(entry.frames)
        except OSError as error:
            self._why = (
                error.why if isinstance(error, SpillFullError) else f"The disk did not take it: {error.strerror}"
            )
            return error
        entry.frames = None
        self._memory -= entry.size
        self._missing = None
        return None

    def _drop_one(self) -> bool:
        while self._outputs:
            entry = self._entries.get(self._outputs.popleft())
            if entry is None or entry.notice is not None:
                continue
            if not entry.flights:
                self._drop(entry)
                return True
            self._sheltered.append(entry.seq)
        oldest = next((entry for entry in self if not entry.flights), None)
        if oldest is None:
            return False
        self._drop(oldest)
        return True

    def _drop(self, entry: Entry) -> None:
        parent = b"{}"
        if entry.notice is None:
            self.dropped_messages += 1
            self.dropped_bytes += entry.size
            parent = self._parent(entry)
        del_seq, size = entry.seq, entry.size
        is_output = entry.is_output and entry.notice is None
        self._release(entry)
        if not is_output:
            self._forget_notice(entry)
            self._forget_origins(entry)
            del self._entries[del_seq]
            return
        self._tell(del_seq, parent, size, entry.origins)

    def _forget_origins(self, entry: Entry) -> None:
        if entry.origins:
            self.forgotten(joined(entry.origins))

    def _tell(self, seq: int, parent: bytes, size: int, origins: Sequence[Range]) -> None:
        """Count a dropped output in its request's notice, which takes the place of the first."""
        parent_id = _parent_id(parent)
        noticed = self._entries.get(self._notices.get(parent_id, 0))
        is_past = noticed is not None and noticed.seq <= self.handed < seq
        if noticed is None or noticed.notice is None or is_past:
            noticed = Entry(seq, "iopub", None, 0, False)
            noticed.notice = Notice(parent, self._why)
            self._entries[seq] = noticed
            self._notices[parent_id] = seq
        else:
            del self._entries[seq]
        assert noticed.notice is not None
        noticed.notice.messages += 1
        noticed.notice.bytes += size
        for one in origins:
            _add_range(noticed.origins, one)

    def _forget_notice(self, entry: Entry) -> None:
        if entry.notice is not None:
            self._notices.pop(_parent_id(entry.notice.parent), None)

    def _parent(self, entry: Entry) -> bytes:
        try:
            frames = self.load(entry)
        except OSError:
            return b"{}"
        return bytes(frames[PARENT]) if len(frames) > PARENT else b"{}"

    def _release(self, entry: Entry) -> None:
        self._total -= entry.size
        if entry.place is not None:
            self._spill.forget(entry.place)
            entry.place = None
        elif entry.frames is not None:
            self._memory -= entry.size
            entry.frames = None


def _add_range(ranges: list[Range], one: Range) -> None:
    """Extend the last range by one that follows it, or append."""
    if ranges and ranges[-1][1] + 1 == one[0]:
        ranges[-1] = ranges[-1][0], one[1]
    else:
        ranges.append(one)


def _parent_id(parent: bytes) -> str:
    return str(read_object(parent).get("msg_id", ""))
