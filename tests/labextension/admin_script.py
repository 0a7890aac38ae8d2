"""Scripted reports of the administrator's view: any number of kernels, given inside the browser."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

    from tests.labextension.lab_page import LabPage
    from tests.labextension.status_script import GIB, StatusScript
else:
    from status_script import GIB, StatusScript

_URL = re.compile(r"/aliquot/api/v1/(holders|queue|quota)(\?|$)")
# An action on a kernel or node, and a plan of moves: the end of its path.
_ACTION_URL = re.compile(r"/aliquot/api/v1/(moves|(?:kernels/k-|nodes/)[^?]+)(\?|$)")
_AT = "2026-01-01T00:10:00.000Z"
COMMAND = "aliquot:show-administration"


def open_view(lab: LabPage) -> Locator:
    """Open the administrator's view; return it."""
    lab.page.wait_for_function(f"jupyterapp.commands.isVisible('{COMMAND}')")
    lab.finish_command(COMMAND)
    found = lab.page.get_by_role("region", name="GPU administration")
    found.get_by_role("tablist").wait_for()
    return found


def a_holder(place: int, **changes: Any) -> dict[str, Any]:
    """Return one kernel of the report of holders."""
    return {
        "id": f"k-{place:05}",
        "name": "python3.gpu-0.25",
        "owner": f"user-{place % 200:03}",
        "team": f"team-{place % 10}",
        "label": f"work/notebook-{place:05}.ipynb",
        "gpus": 0.25,
        "priority": "normal",
        "state": "on_gpu",
        "reason": None,
        "devices": [0],
        "gpus_used": 0.1,
        "memory_limit_bytes": 4 * GIB,
        "used_bytes": GIB,
        "swapped_bytes": 0,
        "execution_state": "idle",
        "created": _AT,
        "idle_seconds": float(place),
        "host": {"cpus": 0.5, "cpu_seconds": 12.0, "memory_bytes": GIB},
        **changes,
    }


def a_user(name: str, **changes: Any) -> dict[str, Any]:
    """Return one user of the report of holders."""
    sums = {"kernels": 1, "gpus": 0.25, "queued_gpus": 0.0, "gpu_limit": 2.0, "gpus_used": 0.1, "idle_gpus": 0.25}
    host = {"idle_share": 1.0, "used_bytes": GIB, "cpus": 0.5, "host_memory_bytes": GIB}
    return {"name": name, "teams": ["vision"], **sums, **host, **changes}


class AdminScript:
    """Answers the reports inside the browser. ``refusal``: the code and the message of all answers.

    An action waits in ``actions`` until the test answers it.
    """

    def __init__(self, kernels: list[dict[str, Any]]) -> None:
        example = StatusScript.example()
        first = example["devices"][0]
        speed = {"mean": 0.807, "low": 0.607, "high": 1.0}
        self.holders: dict[str, Any] = {
            "at": _AT,
            "node": example["node"],
            "nodes": [_NODE],
            "devices": [
                *example["devices"],
                {**first, "uuid": "GPU-a1", "index": 1, "lost": True},
                {**first, "uuid": "GPU-a2", "index": 2, "predicted_speed": {**speed, "mean": 0.944, "low": 0.836}},
                {**first, "uuid": "GPU-a3", "index": 3, "predicted_speed": speed},
            ],
            "kernels": kernels,
            "users": [a_user("alice"), a_user("bob", gpu_limit=None, idle_share=None, cpus=None)],
            "most_idle": [kernel["id"] for kernel in kernels[-10:]],
        }
        self.queue: dict[str, Any] = {"length": 1, "requests": [_REQUEST]}
        self.quota: dict[str, Any] = _QUOTA
        self.refusal: tuple[int, str] | None = None
        self.requests = 0
        self.actions: list[Route] = []

    @contextlib.contextmanager
    def served(self, page: Page) -> Iterator[AdminScript]:
        """Answer the page, which other tests use too, until the context's end."""
        page.route(_URL, self._answer)
        page.route(_ACTION_URL, lambda route: self.actions.append(route))
        yield self
        page.unroute_all(behavior="ignoreErrors")

    def asked(self) -> list[tuple[str, str, Any]]:
        """Return the method, the end of the path, and the body of each action."""
        requests = [route.request for route in self.actions]
        return [(one.method, _ACTION_URL.search(one.url)[1], one.post_data_json) for one in requests]  # type: ignore[index]

    def _answer(self, route: Route) -> None:
        self.requests += 1
        found = _URL.search(route.request.url)
        assert found is not None
        code, body = (200, getattr(self, found[1])) if self.refusal is None else (self.refusal[0], {})
        if self.refusal is not None:
            body = {"message": self.refusal[1]}
        route.fulfill(status=code, content_type="application/json", body=json.dumps(body))


_NODE: dict[str, Any] = {
    "name": "gpu-2",
    "state": "unknown",
    "message": "Its agent does not dial.",
    "since": _AT,
    "driver": None,
    "kernels": None,
    "devices": [],
    "cordon": {"since": _AT, "reason": "new driver", "draining": False},
}
_REQUEST: dict[str, Any] = {
    "kernel_id": "k-waits",
    "owner": "bob",
    "label": "late.ipynb",
    "team": "vision",
    "kind": "start",
    "gpus": 0.5,
    "priority": "low",
    "position": 1,
    "reason": "Needs 0.5 GPU; none is free.",
    "wait_reason": {
        "code": "gpu",
        "requested": {"gpus": 0.5, "memory_bytes": None},
        "free": {"gpus": 0.0, "memory_bytes": None, "device": None},
        "host_memory": None,
    },
    "since": _AT,
    "expected_start": None,
    "predicted_start": None,
}
_MODEL: dict[str, Any] = {
    "model": None,
    "nominal_gpus": 2.0,
    "held_gpus": 1.0,
    "borrowed_gpus": 0.0,
    "available_gpus": 1.0,
    "borrowing_limit_gpus": None,
    "lending_limit_gpus": None,
}
_QUOTA: dict[str, Any] = {
    "organization": "lab",
    "order": "fifo",
    "backfill": True,
    "usage_half_life_seconds": 86400.0,
    "file": "/etc/aliquot.yaml",
    "problem": "/etc/aliquot.yaml:6: teams.rest.user is no known key. Use users",
    "warnings": [],
    "teams": [
        {
            "name": "team-1",
            "parent": None,
            "is_yours": False,
            "over_quota_weight": 1.0,
            "reclaim_min_runtime_seconds": 0.0,
            "may_be_ended": "none",
            "queue_order": None,
            "overcommit": None,
            "past_use": 0.126,
            "queued": 1,
            "evicted": 0,
            "gpus": [_MODEL],
        }
    ],
}
