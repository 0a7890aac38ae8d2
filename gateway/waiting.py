"""Who waits for room on this machine, asked from the gateway that owns the queue; for the command line.

It finds that gateway by the pid in gateway.lock, and by the file in which a Jupyter server tells its user its
address and token. No gateway, or one that this user may not ask: nobody is known to wait.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from aliquot.gateway.tables import age_text, printable, size_text
from aliquot.gpu_hook.paths import RuntimeDir
from jupyter_core.paths import jupyter_runtime_dir

_ANSWER_SECONDS = 3.0


def ask_gateway(runtime: RuntimeDir, servers: Path | None = None) -> list[dict[str, Any]] | None:
    """The kernels that wait, as the gateway reports them, in their order; None when no gateway can be asked."""
    try:
        pid = int(runtime.gateway_lock.read_text().strip())
        folder = Path(jupyter_runtime_dir()) if servers is None else servers
        server = json.loads((folder / f"jpserver-{pid}.json").read_text(encoding="utf-8"))
        url, token = str(server["url"]), str(server["token"])
        request = urllib.request.Request(f"{url}aliquot/api/status", headers={"Authorization": f"token {token}"})
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
            kernels = json.load(answer)["kernels"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return sorted((k for k in kernels if k["state"] == "pending"), key=lambda k: k["queue_position"] or 0)


def queue_rows(kernels: Iterable[dict[str, Any]], now: float | None = None) -> list[tuple[str, ...]]:
    """The rows of tables.queue_table."""
    moment = time.time() if now is None else now
    return [
        (
            printable(str(kernel["label"] or kernel["id"][:8])),
            printable(str(kernel["owner"])),
            size_text(round(kernel["gpus"] * 100), kernel["workload_class"]),
            _since(kernel["created"], moment),
            printable(str(kernel["reason"] or "–")),
        )
        for kernel in kernels
    ]


def _since(created: str | None, now: float) -> str:
    if created is None:
        return "–"
    return age_text(now - datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp())
