"""Knobs of the history: whether it is kept, where, and how much of it. It keeps nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from traitlets import Bool, Float, Int, TraitError, Unicode, validate
from traitlets.config import Configurable

from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.gateway.state.state_dir import GatewayFolder

from .database import Limits
from .recorder import HistorySettings

_NAME = "history.sqlite"
_LEAST_MEGABYTES = 1
# A busy server's looks come late; a gap is a time without one that is longer than this many of
# them.
_LATE_LOOKS = 5
_LEAST_GAP_SECONDS = 10.0


class History(Configurable):
    """Knobs of the history of devices and kernels, which the gateway keeps in an SQLite file."""

    enabled = Bool(True, help="Whether the use of devices and kernels is kept for a week.").tag(config=True)
    path = Unicode(
        "", help="The file; empty for history.sqlite in the gateway's state folder, and memory where it has none."
    ).tag(config=True)
    sample_seconds = Float(2.0, help="How often devices and kernels are sampled, if the status is read so often.").tag(
        config=True
    )
    keep_days = Float(7.0, help="How long steps of fifteen minutes are kept, a week at most.").tag(config=True)
    most_megabytes = Int(256, help="The most that the file may take; beyond, the oldest goes.").tag(config=True)
    most_rows = Int(2_000_000, help="The most rows in it; beyond, the oldest go.").tag(config=True)

    def settings(self, folder: GatewayFolder | None, server: Aliquot) -> HistorySettings:
        """Return the settings as one value. ``folder``: None if the gateway has none."""
        state = None if folder is None else folder.path / _NAME
        path = Path(self.path) if self.path else state
        every = max(self.sample_seconds, server.status_refresh_seconds)
        return HistorySettings(
            is_enabled=self.enabled,
            path=path,
            limits=Limits(self.most_megabytes << 20, self.most_rows, self.keep_days),
            sample_seconds=self.sample_seconds,
            longest_gap_seconds=max(_LEAST_GAP_SECONDS, _LATE_LOOKS * every),
        )

    @validate("path")
    def _path_is_absolute(self, proposal: dict[str, Any]) -> str:
        path: str = proposal["value"]
        if path and not path.startswith("/"):
            raise _refused(proposal, "an absolute path")
        return path

    @validate("sample_seconds", "keep_days")
    def _is_a_time(self, proposal: dict[str, Any]) -> float:
        if not 0 < proposal["value"] < math.inf:
            raise _refused(proposal, "a number above 0")
        return float(proposal["value"])

    @validate("most_megabytes", "most_rows")
    def _is_an_amount(self, proposal: dict[str, Any]) -> int:
        if proposal["value"] < _LEAST_MEGABYTES:
            raise _refused(proposal, "1 or more")
        return int(proposal["value"])


def _refused(proposal: dict[str, Any], wanted: str) -> TraitError:
    return TraitError(f"c.History.{proposal['trait'].name}: {proposal['value']!r} is not valid. Use {wanted}")
