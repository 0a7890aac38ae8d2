"""Looks at users' own folders that end in time, also where the disk does not answer.

A home may lie on a file server that is away, or on a file system of its user's own making. A thread
that looks there may wait for ever. So each look has a thread of its own, which nothing waits for
beyond a deadline, and there is none at a root where one is overdue.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError as LookTimeoutError

from jupyter_aliquot.provisioner.errors import FolderError

from .user_folder import OwnFolder

# Called with the root, the source and the path for errors, as identify_own is.
Look = Callable[[str, str, str], OwnFolder]

PATIENCE_SECONDS = 5.0
# While another look is overdue: a file server that is away holds the homes of many users.
SHORT_PATIENCE_SECONDS = 0.5


class PatientLook:
    """A look at folders of users that gives up. Threads call it."""

    def __init__(self, look: Look, patience: float = PATIENCE_SECONDS, short: float = SHORT_PATIENCE_SECONDS) -> None:
        self._look = look
        self._patience = patience
        self._short = short
        # A future that is done already calls back in the thread that asks it to.
        self._lock = threading.RLock()
        # By root, how many looks are overdue. Guarded by the lock.
        self._overdue: Counter[str] = Counter()

    def __call__(self, root: str, source: str, shown: str) -> OwnFolder:
        """Return the folder as *look* does, or raise FolderError in time. Blocks."""
        with self._lock:
            is_away, patience = root in self._overdue, self.patience
        if is_away:
            raise _away(shown)
        future: Future[OwnFolder] = Future()
        # No pool: Python waits for a pool's threads when it ends.
        threading.Thread(target=self._run, args=(future, root, source, shown), name="aliquot-look", daemon=True).start()
        try:
            return future.result(patience)
        except LookTimeoutError:
            with self._lock:
                if not future.done():
                    self._overdue[root] += 1
                    future.add_done_callback(lambda _: self._answered(root))
            raise _away(shown) from None

    @property
    def patience(self) -> float:
        """Return how many seconds a look waits now."""
        return self._short if self._overdue else self._patience

    def _run(self, future: Future[OwnFolder], root: str, source: str, shown: str) -> None:
        try:
            found = self._look(root, source, shown)
        except Exception as error:  # it is raised in the thread that asked
            future.set_exception(error)
        else:
            future.set_result(found)

    def _answered(self, root: str) -> None:
        with self._lock:
            self._overdue[root] -= 1
            if not self._overdue[root]:
                del self._overdue[root]


def _away(shown: str) -> FolderError:
    return FolderError(f"The folder {shown!r} cannot be looked at, for its disk does not answer. Try again later")
