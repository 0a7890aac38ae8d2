"""The base of all handlers of /aliquot/api/v1: their sources, their user, and how they answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_server.base.handlers import APIHandler
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError

from jupyter_aliquot.gateway.accounting.recorder import UsageAccounting
from jupyter_aliquot.gateway.auth.identity import user_of
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.startup_gate import WaitsForRecovery
from jupyter_aliquot.gateway.base.steps import each_in_steps
from jupyter_aliquot.gateway.events.stream import KernelEvents
from jupyter_aliquot.gateway.folders.invitations import Invitations
from jupyter_aliquot.gateway.folders.registry import Folders
from jupyter_aliquot.gateway.history.recorder import UsageHistory
from jupyter_aliquot.gateway.holders.processes import KernelProcesses
from jupyter_aliquot.gateway.kernels.operations import KernelChanges
from jupyter_aliquot.gateway.nodes.cordons import Cordons
from jupyter_aliquot.gateway.nodes.registry import RemoteNodes
from jupyter_aliquot.gateway.nodes.tokens import NoTokens, TokenChecker
from jupyter_aliquot.gateway.reports import to_json
from jupyter_aliquot.gateway.scheduling.defragmentation.service import Defragmentation
from jupyter_aliquot.gateway.scheduling.dry_run_service import DryRunService
from jupyter_aliquot.gateway.scheduling.queue_policy import PastUse
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.status.prometheus import ServerMetrics
from jupyter_aliquot.gateway.status.report import StatusSnapshot
from jupyter_aliquot.gateway.teams.quota_file import QuotaFile
from jupyter_aliquot.provisioner.resources import GpuShare

from .deprecations import deprecation_headers

SETTING = "aliquot_sources"
# A larger piece is mapped anew each time (serverapp/freed_memory.py), which takes longer than to write it.
_PIECE_BYTES = 96 << 10


@dataclass(frozen=True)
class QuotaSources:
    """The quota file, admission's snapshot with the starts that it expects, and the queue's memory."""

    file: QuotaFile
    admission: Callable[[], AdmissionSnapshot]
    past: Callable[[], PastUse]


@dataclass(frozen=True)
class HolderSources:
    """CPU and RAM of this server's kernels, and the clock of the report of holders."""

    processes: KernelProcesses
    clock: Clock


@dataclass(frozen=True)
class Sources:
    """The objects that the handlers read from and act on.

    The extension makes it and puts it into the application's settings.
    """

    # Called with a user, it returns the snapshot that this user may see, and no more of the kernels.
    # Called with a kernel's id, too, it gathers no other kernel.
    snapshot: Callable[..., StatusSnapshot]
    # Gathers the same of many kernels in steps, between which the loop serves others.
    gather: Callable[[User], Awaitable[StatusSnapshot]]
    metrics: ServerMetrics
    # The largest request that the rules allow, and the largest that also fits this node.
    largest: GpuShare
    largest_here: Callable[[], GpuShare]
    folders: Folders
    # None on a server in gateway mode, whose kernels are the gateway's.
    invitations: Invitations | None = None
    # Postpones the culling of a kernel for its owner. None where nothing culls kernels.
    keep: Callable[[str], str | None] | None = None
    # None on a server in gateway mode, whose kernels are the gateway's.
    changes: KernelChanges | None = None
    # None on a server in gateway mode, too.
    events: KernelEvents | None = None
    # None on a server in gateway mode, too.
    history: UsageHistory | None = None
    # None on a server in gateway mode, too.
    accounting: UsageAccounting | None = None
    # None on a server in gateway mode, too.
    nodes: RemoteNodes | None = None
    # None on a server in gateway mode, too.
    cordons: Cordons | None = None
    # None on a server in gateway mode, too.
    moves: Defragmentation | None = None
    agent_tokens: TokenChecker = field(default_factory=NoTokens)
    # None on a server in gateway mode, too.
    outlooks: DryRunService | None = None
    # None on a server in gateway mode, too.
    quotas: QuotaSources | None = None
    # None on a server in gateway mode, too.
    holders: HolderSources | None = None


class ErrorsAsWritten(WaitsForRecovery, APIHandler):
    """A handler whose errors keep their message. It precedes Jupyter's class among the bases."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Send the error as Jupyter does, with the message as it was written.

        tornado doubles each ``%`` in a message, for its log.
        """
        error = (kwargs.get("exc_info") or (None, None))[1]
        if not isinstance(error, HTTPError) or not error.log_message:
            super().write_error(status_code, **kwargs)
            return
        message = error.log_message % error.args
        self.log.warning("wrote error: %r", message)
        self.set_header("Content-Type", "application/json")
        self.finish(to_json({"message": message, "reason": error.reason}))


class AliquotHandler(ErrorsAsWritten):
    """The base class of our REST handlers.

    Their requests are no activity: a panel left open does not keep an idle server alive.
    """

    auth_resource = "aliquot"
    _track_activity = False

    @property
    def sources(self) -> Sources:
        found: Sources = self.settings[SETTING]
        return found

    @property
    def requester(self) -> User:
        return user_of(self)

    def set_default_headers(self) -> None:
        """Tell of a deprecated operation, in errors as well. Called by tornado."""
        super().set_default_headers()
        base = self.base_url.rstrip("/")
        found = deprecation_headers(
            self.request.method or "", self.request.path.removeprefix(base), f"{base}/aliquot/api/v1/openapi.json"
        )
        for name, value in found.items():
            self.set_header(name, value)

    def compute_etag(self) -> str | None:
        """Called by tornado. No cache keeps an answer, so no client needs an ETag."""
        return None

    def answer(self, report: Mapping[str, object]) -> None:
        """Send the report as JSON, and forbid caches to keep it: it differs by user and by second."""
        self.answer_text(to_json(report))

    def answer_text(self, text: str | bytes) -> None:
        """Send text that is JSON already, and forbid caches to keep it."""
        self.set_header("Cache-Control", "no-store")
        self.finish(text)

    async def answer_parts(self, parts: Sequence[bytes]) -> None:
        """Send the parts of a long text that is JSON already. The loop serves others between some and the next."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Type", "application/json")
        self.set_header("Content-Length", str(sum(map(len, parts))))
        try:
            # One that the system takes at once does not let the loop run by itself.
            async for some in each_in_steps(pieces(parts)):
                self.write(some)
                await self.flush()
            self.finish()
        except StreamClosedError:
            return  # the client has left


def pieces(parts: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the parts, joined to pieces of a length that the C library takes from the heap."""
    some: list[bytes] = []
    length = 0
    for part in parts:
        if some and length + len(part) > _PIECE_BYTES:
            yield b"".join(some)
            some, length = [], 0
        some.append(part)
        length += len(part)
    yield b"".join(some)
