"""The lead of a gateway's replicas for tests, which take and give it."""

from __future__ import annotations


class LeadByHand:
    """A lead that a test takes and gives. ``answers`` come first."""

    def __init__(self, is_held: bool = True) -> None:
        self.is_held = is_held
        self.answers: list[bool] = []

    def is_current(self) -> bool:
        return self.answers.pop(0) if self.answers else self.is_held
