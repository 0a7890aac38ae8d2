"""The last kernels that ended here, each with its reason.

The list is kept on disk, and read at the start.

It is bounded in number and age. ``recorder.py`` decides the reasons, and ``status/report.py`` which
user sees which.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gpu_hook.base.files import replace_file
from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.grants.codec import read_request, request_record
from jupyter_aliquot.provisioner.resources import Request
from jupyter_aliquot.provisioner.terminations import Ending, EndingCode, ending_record, read_ending_record

from .failures import Failure

KEPT = 1000
KEPT_SECONDS = 30 * 86400.0
_VERSION = 1
# Requested ends. All others are warnings in the log.
_WANTED = frozenset({EndingCode.USER, EndingCode.STOPPED, EndingCode.CULLED, EndingCode.WITHDRAWN})


@dataclass(frozen=True)
class EndedKernel:
    """A kernel that has ended. A plain kernel, without a GPU, has no ``request``.

    ``needed_bytes`` is the memory limit that would have been enough, if its own was not.
    """

    id: str
    name: str
    owner: str
    label: str
    ending: Ending
    request: Request | None = None
    needed_bytes: int | None = None
    # None for an end that was asked for, and for one that an earlier version recorded.
    failure: Failure | None = None


class Endings:
    """The last terminations, kept in the file *path* in an existing folder.

    Without it they end with the server.
    """

    def __init__(self, path: Path | None, clock: Clock, log: logging.Logger, kept: int = KEPT) -> None:
        self._path = path
        self._clock = clock
        self._log = log
        self._kept = kept
        self._counts: Counter[str] = Counter()
        self._failures: Counter[Failure | None] = Counter()
        self._observers: list[Callable[[], None]] = []
        self._is_dirty = False
        self._saving: asyncio.Task[None] | None = None
        # By kernel id, in the order in which they ended; and the text of each in the file.
        self._ended: dict[str, EndedKernel] = {} if path is None else self._read(path)
        self._texts: dict[str, str] = {}

    def observe(self, observer: Callable[[], None]) -> None:
        """Call *observer* soon after each end."""
        self._observers.append(observer)

    def record(self, ended: EndedKernel) -> None:
        """Keep it, and log it. Of a kernel id that ends again, the last end is kept."""
        self._ended.pop(ended.id, None)
        self._texts.pop(ended.id, None)
        self._ended[ended.id] = ended
        self._counts[ended.ending.code.value] += 1
        level = logging.INFO if ended.ending.code in _WANTED else logging.WARNING
        self._failures[ended.failure] += 1
        said = (ended.id, ended.owner, ended.ending.code.value, ended.ending.message)
        self._log.log(level, "kernel=%s owner=%s ended=%s reason=%s", *said)
        if ended.failure is not None:
            self._log.info("kernel=%s failure=%s", ended.id, ended.failure.value)
        self._trim()
        self._save_soon()
        for observer in self._observers:
            asyncio.get_running_loop().call_soon(observer)

    def forget(self, kernel_id: str) -> None:
        """Drop it: a kernel of this id runs again, or its owner has read why it ended."""
        if self._ended.pop(kernel_id, None) is not None:
            self._save_soon()

    def of(self, kernel_id: str) -> EndedKernel | None:
        """Return how the kernel of this id ended; None if it did not, or too long ago."""
        return self._ended.get(kernel_id)

    def listed(self, kernel_id: str | None = None) -> tuple[EndedKernel, ...]:
        """Return all that are kept, the last one first; of *kernel_id* alone, if it is given."""
        self._trim()
        if kernel_id is not None:
            ended = self._ended.get(kernel_id)
            return () if ended is None else (ended,)
        return tuple(reversed(self._ended.values()))

    def counts(self) -> Mapping[str, int]:
        """Return how many ended since the server started, by code."""
        return {code.value: self._counts[code.value] for code in EndingCode}

    def failures(self) -> Mapping[str, int]:
        """Return how many failed since the server started, by the class of the failure."""
        return {one.value: self._failures[one] for one in Failure}

    async def flush(self) -> None:
        """Wait until all terminations are on disk."""
        if self._saving is not None:
            await asyncio.shield(self._saving)

    # ---- bounds

    def _trim(self) -> None:
        oldest = self._clock.wall() - KEPT_SECONDS
        over = len(self._ended) - self._kept
        # In the order of their ends, so that the oldest come first.
        while self._ended:
            first = next(iter(self._ended.values()))
            if over <= 0 and first.ending.at >= oldest:
                return
            del self._ended[first.id]
            over -= 1

    # ---- the file

    def _save_soon(self) -> None:
        """Start the writer, if none runs.

        Kernels that end while it writes go into its next round.
        """
        if self._path is None:
            return
        self._is_dirty = True
        if self._saving is None or self._saving.done():
            self._saving = asyncio.get_running_loop().create_task(self._save(self._path), name="aliquot-endings")

    async def _save(self, path: Path) -> None:
        while self._is_dirty:
            self._is_dirty = False
            # Only the new one is put into words: a thousand would take long.
            known = self._texts
            self._texts = {one: known.get(one) or json.dumps(_record(ended)) for one, ended in self._ended.items()}
            text = f'{{"version": {_VERSION}, "kernels": [{", ".join(self._texts.values())}]}}'
            try:
                await asyncio.to_thread(replace_file, path, text)
            except OSError as error:
                self._log.error("endings=not_saved path=%s reason=%s", path, error)

    def _read(self, path: Path) -> dict[str, EndedKernel]:
        """Read the list of the last server.

        Entries that cannot be read are left out: they must not prevent a start.
        """
        try:
            records = json.loads(path.read_text(encoding="utf-8"))["kernels"]
            found = [ended for record in records if (ended := self._read_record(record)) is not None]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._log.error("endings=unreadable path=%s reason=%r", path, error)
            return {}
        return {ended.id: ended for ended in sorted(found, key=lambda ended: ended.ending.at)}

    def _read_record(self, record: Any) -> EndedKernel | None:
        try:
            return _read_record(record)
        except (ValueError, KeyError, TypeError, RequestError) as error:
            self._log.warning("endings=one_left_out reason=%r", error)
            return None


def _record(ended: EndedKernel) -> dict[str, Any]:
    return {
        "id": ended.id,
        "name": ended.name,
        "owner": ended.owner,
        "label": ended.label,
        "request": None if ended.request is None else request_record(ended.request),
        "needed_bytes": ended.needed_bytes,
        "failure": None if ended.failure is None else ended.failure.value,
        "ending": ending_record(ended.ending),
    }


def _read_record(record: Mapping[str, Any]) -> EndedKernel:
    request, needed = record["request"], record.get("needed_bytes")
    return EndedKernel(
        id=str(record["id"]),
        name=str(record["name"]),
        owner=str(record["owner"]),
        label=str(record["label"]),
        request=None if request is None else read_request(request),
        needed_bytes=None if needed is None else int(needed),
        ending=read_ending_record(record["ending"]),
        failure=None if record.get("failure") is None else Failure(record["failure"]),
    )
