"""The numbers that /etc/subuid lends to accounts: processes in an account's own containers have them.

An account has tens of thousands, and may connect as each of them.
"""

from __future__ import annotations

import pwd
from dataclasses import dataclass
from pathlib import Path

_LENT = Path("/etc/subuid")


@dataclass(frozen=True)
class _Loan:
    lender: str
    first: int
    count: int


class LentNumbers:
    """The loans in a file, which is read again when it has changed."""

    def __init__(self, path: Path = _LENT) -> None:
        self._path = path
        self._state: tuple[int, ...] = ()
        self._loans: tuple[_Loan, ...] = ()
        self._numbers: dict[str, int | None] = {}

    def lender_of(self, uid: int) -> int:
        """Return the number of the account that *uid* was lent to; *uid* itself for any other number."""
        for loan in self._current():
            if loan.first <= uid < loan.first + loan.count:
                return self._number_of(loan.lender, uid)
        return uid

    def _number_of(self, lender: str, uid: int) -> int:
        """Return the lender's number: the file names accounts, or has their numbers.

        A system's list of accounts may hang, so each name is looked up once for each state of the file.
        """
        if lender.isdecimal():
            return int(lender)
        if lender not in self._numbers:
            self._numbers[lender] = _look_up(lender)
        number = self._numbers[lender]
        return uid if number is None else number

    def _current(self) -> tuple[_Loan, ...]:
        try:
            found = self._path.stat()
            state = (found.st_ino, found.st_mtime_ns, found.st_size)
            if state != self._state:
                self._loans = tuple(filter(None, map(_read, self._path.read_text(errors="replace").splitlines())))
                self._state, self._numbers = state, {}
        except OSError:  # a machine without loans
            return ()
        return self._loans


def _read(line: str) -> _Loan | None:
    lender, first, count = [*line.split(":"), "", ""][:3]
    is_loan = lender and first.isdecimal() and count.isdecimal()
    return _Loan(lender, int(first), int(count)) if is_loan else None


def _look_up(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, OSError):
        return None
