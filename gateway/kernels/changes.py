"""A count of the changes of an object, by which others know that what they made of it still holds."""

from __future__ import annotations

from typing import Any


class CountsChanges:
    """A base class whose objects count how often one of their attributes was set, a trait or another one.

    An attribute's own state, such as a future's, is not counted.
    """

    changes = 0

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.__dict__["changes"] = self.changes + 1
