"""Settings of the accounting: where it is kept, what is charged, and in which time zone days are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from traitlets import Bool, Dict, Enum, Float, Int, TraitError, Unicode, validate
from traitlets.config import Configurable

from jupyter_aliquot.gateway.state.state_dir import GatewayFolder

from .book import BookSettings
from .days import UTC, Calendar, find_zone
from .policy import BASES, WALL_TIME, ChargePolicy

_NAME = "accounting.sqlite"
_PRIORITIES = ("normal", "low")
_MOST_WEIGHT = 1000.0
# A hundred years: dates that datetime holds.
_MOST_DAYS = 36_525.0


class Accounting(Configurable):
    """Settings of the accounting: GPU time by user, team, size, GPU model and day, in an SQLite file."""

    enabled = Bool(True, help="Whether GPU time is counted by user and team.").tag(config=True)
    path = Unicode(
        "", help="The file; empty for accounting.sqlite in the gateway's state folder, and memory where it has none."
    ).tag(config=True)
    keep_days = Float(731.0, help="How many days are kept.").tag(config=True)
    most_megabytes = Int(64, help="The most that the file may take; beyond, the oldest days go.").tag(config=True)
    write_seconds = Float(
        10.0, help="How often it is written. A gateway that is killed goes on from the last time."
    ).tag(config=True)
    time_zone = Unicode(UTC, help="The time zone whose days and months count, such as Europe/Berlin.").tag(config=True)
    charge_by = Enum(
        tuple(BASES),
        WALL_TIME,
        help="The time that is charged: wall_time (size times the time on the GPU and swapped out), on_gpu (size times "
        "the time on the GPU), or use (the GPU time used).",
    ).tag(config=True)
    model_weights = Dict(
        help="Weights of the charge by GPU model, such as {'H200': 2.0}: a part of the GPU's name. Others have 1."
    ).tag(config=True)
    priority_weights = Dict(
        help="Weights of the charge by priority, such as {'low': 0.5}. A weight of 0 charges nothing."
    ).tag(config=True)

    def settings(self, folder: GatewayFolder | None) -> BookSettings:
        """Return the settings as one value. ``folder``: None if the gateway has none."""
        state = None if folder is None else folder.path / _NAME
        policy = ChargePolicy(self.charge_by, dict(self.model_weights), dict(self.priority_weights))
        return BookSettings(
            path=Path(self.path) if self.path else state,
            calendar=Calendar(find_zone(self.time_zone), self.time_zone),
            policy=policy,
            keep_days=self.keep_days,
            most_bytes=self.most_megabytes << 20,
            write_seconds=self.write_seconds,
        )

    @validate("path")
    def _path_is_absolute(self, proposal: dict[str, Any]) -> str:
        path: str = proposal["value"]
        if path and not path.startswith("/"):
            raise _refused(proposal, "an absolute path")
        return path

    @validate("keep_days")
    def _are_days(self, proposal: dict[str, Any]) -> float:
        if not 0 < proposal["value"] <= _MOST_DAYS:
            raise _refused(proposal, f"a number above 0, at most {_MOST_DAYS:g} (a hundred years)")
        return float(proposal["value"])

    @validate("write_seconds")
    def _is_a_time(self, proposal: dict[str, Any]) -> float:
        if not 0 < proposal["value"] < math.inf:
            raise _refused(proposal, "a number above 0")
        return float(proposal["value"])

    @validate("most_megabytes")
    def _is_an_amount(self, proposal: dict[str, Any]) -> int:
        if proposal["value"] < 1:
            raise _refused(proposal, "1 or more")
        return int(proposal["value"])

    @validate("time_zone")
    def _is_a_zone(self, proposal: dict[str, Any]) -> str:
        name: str = proposal["value"]
        try:
            find_zone(name)
        except (KeyError, ValueError, OSError):
            raise _refused(proposal, "UTC, or a name such as Europe/Berlin that this machine knows") from None
        return name

    @validate("model_weights", "priority_weights")
    def _are_weights(self, proposal: dict[str, Any]) -> dict[str, float]:
        wanted = f"names with numbers from 0 to {_MOST_WEIGHT:g}, such as {{'H200': 2.0}}"
        found: dict[str, float] = {}
        for name, weight in proposal["value"].items():
            is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if not isinstance(name, str) or not name or not is_number or not 0 <= weight <= _MOST_WEIGHT:
                raise _refused(proposal, wanted)
            if proposal["trait"].name == "priority_weights" and name not in _PRIORITIES:
                raise _refused(proposal, f"a table of {' and '.join(_PRIORITIES)}")
            found[name] = float(weight)
        return found


def _refused(proposal: dict[str, Any], wanted: str) -> TraitError:
    return TraitError(f"c.Accounting.{proposal['trait'].name}: {proposal['value']!r} is not valid. Use {wanted}")
