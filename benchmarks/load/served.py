"""Times of status requests inside the gateway: from the head of a request to the end of its answer.

The configuration file of the load benchmark's gateway calls ``note``. A client's time has more in it: what
waits in the socket, and the client's own wait for a processor.
"""

from __future__ import annotations

from pathlib import Path

from jupyter_aliquot.gateway.api.routes import StatusHandler

_NAME = "served.txt"


def note(folder: str) -> None:
    """Write a line for each status request from now on: whether an administrator asked, and milliseconds."""
    file = (Path(folder) / _NAME).open("a", buffering=1)

    def on_finish(handler: StatusHandler) -> None:
        print(int(handler.requester.is_admin), 1e3 * handler.request.request_time(), file=file)

    StatusHandler.on_finish = on_finish  # type: ignore[method-assign]  # tornado calls it, and has nothing there


def read(folder: Path, since: int = 0) -> tuple[list[float], list[float]]:
    """Return the times of users and of administrators, from the line ``since`` on."""
    lines = [
        line.split() for line in (folder / _NAME).read_text().splitlines(keepends=True)[since:] if line[-1] == "\n"
    ]
    users, admins = ([float(time) for who, time in lines if who == one] for one in "01")
    return users, admins


def count(folder: Path) -> int:
    """Return how many lines there are."""
    return len((folder / _NAME).read_text().splitlines())
