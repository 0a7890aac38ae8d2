"""The wait of a replica until it leads: it then takes the gateway's name, and serves."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import signal
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType

from jupyter_aliquot.gateway.base.lead import ALONE, Lead
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, find_runtime_dir, prepare_runtime_dir

_LOST = "lease=lost; this replica ends, for another one leads. Its kernels run on"


def lead(namespace: str, lease: str, log: logging.Logger, runtime_dir: str = "") -> Lead:
    """Wait until this replica leads, and return its lead. Blocks.

    The process ends when another one leads. Each renewal touches the file ``leads`` in the runtime folder
    (empty: the usual one), at which the readiness probe looks. Without a *lease* there are no replicas.
    """
    if not lease:
        return ALONE
    # The client of Kubernetes is an extra, and takes half a second.
    from jupyter_aliquot.provisioner.kubernetes.client import find_configuration
    from jupyter_aliquot.provisioner.kubernetes.lease import Leadership

    identity = f"{platform.node()}_{uuid.uuid4().hex[:8]}"
    runtime = RuntimeDir(Path(runtime_dir)) if runtime_dir else find_runtime_dir()
    leadership = Leadership(find_configuration(), namespace, lease, identity, partial(_touch, runtime))
    log.info("lease=%s/%s waiting replica=%s", namespace, lease, identity)
    with _ended_by_signal():
        leadership.acquire()
    log.info("lease=%s/%s leads replica=%s", namespace, lease, identity)

    def end() -> None:
        log.critical(_LOST)
        logging.shutdown()
        os._exit(1)

    leadership.keep(end)
    return leadership


def _touch(runtime: RuntimeDir) -> None:
    with contextlib.suppress(OSError, PathError):
        prepare_runtime_dir(runtime)
        (runtime.path / "leads").touch()


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
