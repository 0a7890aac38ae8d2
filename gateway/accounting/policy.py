"""The policy by which GPU time is charged: what counts, and its weights. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .amounts import CHARGE_PER_UNIT, Amounts, Subject

# What is charged → the amounts that count. Nothing is charged for waiting.
BASES: Mapping[str, tuple[str, ...]] = {
    "wall_time": ("on_gpu", "swapped_out"),
    "on_gpu": ("on_gpu",),
    "use": ("used",),
}
WALL_TIME = "wall_time"


@dataclass(frozen=True)
class ChargePolicy:
    """The policy of ``c.Accounting``.

    ``models``: a weight by a part of a GPU's name; the longest one that matches counts.
    ``priorities``: a weight by priority. Without a weight it is 1.
    """

    basis: str = WALL_TIME
    models: Mapping[str, float] = field(default_factory=dict)
    priorities: Mapping[str, float] = field(default_factory=dict)

    def charge(self, subject: Subject, amounts: Amounts) -> int:
        """Return the charge of these amounts, in thousandths of their unit."""
        counted = sum(int(getattr(amounts, name)) for name in BASES[self.basis])
        return counted * self.weight(subject)

    def weight(self, subject: Subject) -> int:
        """Return the subject's weight in thousandths."""
        words = subject.model.casefold()
        found = [name for name in self.models if name.casefold() in words]
        of_model = self.models[max(found, key=len)] if found else 1.0
        return round(CHARGE_PER_UNIT * of_model * self.priorities.get(subject.priority, 1.0))
