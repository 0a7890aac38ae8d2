"""What all handlers of /aliquot/api/v1 share: what they ask, who asks them, and how they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_server.base.handlers import APIHandler
from tornado.web import HTTPError

from jupyter_aliquot.gateway.auth.identity import user_of
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.startup_gate import WaitsForRecovery
from jupyter_aliquot.gateway.events.stream import KernelEvents
from jupyter_aliquot.gateway.folders.registry import Folders
from jupyter_aliquot.gateway.history.recorder import UsageHistory
from jupyter_aliquot.gateway.kernels.operations import KernelChanges
from jupyter_aliquot.gateway.reports import to_json
from jupyter_aliquot.gateway.scheduling.dry_run_service import DryRunService
from jupyter_aliquot.gateway.status.prometheus import ServerMetrics
from jupyter_aliquot.gateway.status.report import Scene
from jupyter_aliquot.provisioner.resources import GpuShare

SETTING = "aliquot_sources"


@dataclass(frozen=True)
class Sources:
    """What the handlers ask. Made by the extension, found in the application's settings."""

    # Of a user: what may be shown to this one, and no more of the kernels. Of a kernel: no other kernel.
    scene: Callable[..., Scene]
    metrics: ServerMetrics
    # As the rules allow it; and no more than the node has.
    largest: GpuShare
    largest_here: Callable[[], GpuShare]
    folders: Folders
    # What the owner of a kernel asks who wants it to stay; None where nothing ends kernels by themselves.
    keep: Callable[[str], str | None] | None = None
    # None on a server in gateway mode, whose kernels are the gateway's.
    changes: KernelChanges | None = None
    # None likewise.
    events: KernelEvents | None = None
    # None likewise.
    history: UsageHistory | None = None
    # None likewise.
    outlooks: DryRunService | None = None


class ErrorsAsWritten(WaitsForRecovery, APIHandler):
    """Comes before Jupyter's own class among a handler's bases."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """As Jupyter's, with the message as it was written: tornado doubles each ``%`` in it, for its log."""
        error = (kwargs.get("exc_info") or (None, None))[1]
        if not isinstance(error, HTTPError) or not error.log_message:
            super().write_error(status_code, **kwargs)
            return
        message = error.log_message % error.args
        self.log.warning("wrote error: %r", message)
        self.set_header("Content-Type", "application/json")
        self.finish(to_json({"message": message, "reason": error.reason}))


class AliquotHandler(ErrorsAsWritten):
    """What all of ours share. Watching is no activity: a panel left open does not keep an idle server alive."""

    auth_resource = "aliquot"
    _track_activity = False

    @property
    def sources(self) -> Sources:
        found: Sources = self.settings[SETTING]
        return found

    @property
    def asker(self) -> User:
        return user_of(self)

    def compute_etag(self) -> str | None:
        """Called by tornado. No cache keeps an answer, so nobody asks whether it is still the same."""
        return None

    def answer(self, report: Mapping[str, object]) -> None:
        """Send JSON, never kept by a cache: it is another one for each user and each second."""
        self.answer_text(to_json(report))

    def answer_text(self, text: str) -> None:
        """The same, for what is JSON already."""
        self.set_header("Cache-Control", "no-store")
        self.finish(text)
