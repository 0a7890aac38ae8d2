"""The wait of a replica until it leads: it then takes the gateway's name, and serves."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import signal
import uuid
from collections.abc import Iterator
from types import FrameType

_LOST = "lease=lost; this replica ends, for another one leads. Its kernels run on"


def lead(namespace: str, lease: str, log: logging.Logger) -> None:
    """Return when this replica leads. The process ends when another one does. Blocks."""
    # The client of Kubernetes is an extra, and takes half a second.
    from jupyter_aliquot.provisioner.kubernetes.client import find_configuration
    from jupyter_aliquot.provisioner.kubernetes.lease import Leadership

    identity = f"{platform.node()}_{uuid.uuid4().hex[:8]}"
    leadership = Leadership(find_configuration(), namespace, lease, identity)
    log.info("lease=%s/%s waiting replica=%s", namespace, lease, identity)
    with _ended_by_signal():
        leadership.acquire()
    log.info("lease=%s/%s leads replica=%s", namespace, lease, identity)

    def end() -> None:
        log.critical(_LOST)
        logging.shutdown()
        os._exit(1)

    leadership.keep(end)


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[None]:
    """End the process by SIGTERM: as the first of its container it would ignore it, and the server handles none yet."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
