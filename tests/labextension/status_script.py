"""Scripted answers of the status endpoint, given inside the browser."""

from __future__ import annotations

import copy
import json
import re
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route, WebSocketRoute

GIB = 1 << 30
_STATUS_URL = re.compile(r"/aliquot/api/v1/status(\?|$)")
_SIZES_URL = re.compile(r"/aliquot/api/v1/sizes(\?|$)")
_EVENTS_URL = re.compile(r"/aliquot/api/v1/events(\?|$)")
_POSTPONE_URL = re.compile(r"/aliquot/api/v1/kernels/([^/]+)/postpone-culling(\?|$)")
_HISTORY_URL = re.compile(r"/aliquot/api/v1/history(\?|$)")
_DRY_RUN_URL = re.compile(r"/aliquot/api/v1/dry-run\?")
_ACTION_URL = re.compile(r"/aliquot/api/v1/kernels/([^/?]+)(?:/(resize|swap-out|restore))?(\?|$)")
_STREAM_SECONDS = 60.0


class StatusScript:
    """Answers the status endpoint inside the browser: any state of a node, without a real node."""

    def __init__(self) -> None:
        self.code = 200
        self.body: dict[str, Any] = self.example()
        self.requests = 0
        self.kept: list[str] = []
        self.streams: list[WebSocketRoute] = []
        self.keep_code = 204
        self.dry_run: dict[str, Any] = {"outcome": "starts", "position": None, "message": "It changes at once."}
        self.asked_dry_runs: list[str] = []
        # The requests about kernels: the method, the end of its path, its body.
        self.asked: list[tuple[str, str, Any]] = []
        self.refusal: tuple[int, str] | None = None
        self._page: Page | None = None

    def serve(self, page: Page) -> None:
        self._page = page
        page.route(_STATUS_URL, self._answer)
        page.route(_SIZES_URL, lambda route: route.fulfill(json=_NO_SIZES))
        page.route(_POSTPONE_URL, self._keep)
        page.route_web_socket(_EVENTS_URL, lambda stream: self.streams.append(stream))
        page.route(_HISTORY_URL, self._say_history)
        page.route(_DRY_RUN_URL, self._say_dry_run)
        page.route(_ACTION_URL, self._act)

    def reset(self) -> None:
        """Reset the script for the next user of the page."""
        fresh = StatusScript()
        fresh.requests, fresh.streams, fresh._page = self.requests, self.streams, self._page
        self.__dict__.update(fresh.__dict__)

    def _say_history(self, route: Route) -> None:
        told = {"range": "hour", "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:10Z", "step_seconds": 10}
        body = {**told, "kernels": [], "devices": [], "omitted": 0}
        route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

    def _say_dry_run(self, route: Route) -> None:
        self.asked_dry_runs.append(route.request.url.partition("?")[2])
        size = {"suffix": "gpu-0.5", "gpus": 0.5, "requested_memory_bytes": None, "memory_limit_bytes": 8 * GIB}
        body = {**size, "priority": "normal", **self.dry_run}
        route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

    def _act(self, route: Route) -> None:
        found = _ACTION_URL.search(route.request.url)
        assert found is not None
        self.asked.append((route.request.method, found[2] or "", route.request.post_data_json))
        if self.refusal is not None:
            code, message = self.refusal
            route.fulfill(status=code, content_type="application/json", body=json.dumps({"message": message}))
        elif route.request.method == "DELETE":
            route.fulfill(status=204)
        else:
            route.fulfill(status=200, content_type="application/json", body=json.dumps(self.a_kernel()))

    def tell(self, **event: Any) -> None:
        """Send an event, as the gateway does after each change.

        A page that receives events polls only once a minute.
        """
        assert self._page is not None
        deadline = time.monotonic() + _STREAM_SECONDS
        while not self.streams:
            assert time.monotonic() < deadline, "the page opens no stream of events"
            self._page.wait_for_timeout(20)
        self.streams[-1].send(json.dumps(self.an_event(**event)))

    def _answer(self, route: Route) -> None:
        self.requests += 1
        route.fulfill(status=self.code, content_type="application/json", body=json.dumps(self.body))

    def _keep(self, route: Route) -> None:
        found = _POSTPONE_URL.search(route.request.url)
        assert found is not None
        self.kept.append(found[1])
        refusal = "" if self.keep_code == 204 else json.dumps({"message": "It is ended for its age", "reason": None})
        route.fulfill(status=self.keep_code, content_type="application/json", body=refusal)

    @staticmethod
    def an_event(**changes: Any) -> dict[str, Any]:
        return {**_EVENT, **changes}

    @staticmethod
    def an_ending(**changes: Any) -> dict[str, Any]:
        message = "the kernel was ended after 60 min idle"
        told = {"code": "culled", "message": message, "at": "2026-01-02T03:04:05.000Z", "exit_code": None}
        return {**told, "signal": None, "by": "", **changes}

    def an_ended_kernel(self, kernel_id: str, label: str, **changes: Any) -> dict[str, Any]:
        ending = self.an_ending(**changes)
        return self.a_kernel(
            id=kernel_id, label=label, state="ended", reason=ending["message"], termination=ending, devices=[]
        )

    @staticmethod
    def example() -> dict[str, Any]:
        return copy.deepcopy(_EXAMPLE)

    @staticmethod
    def a_kernel(**changes: Any) -> dict[str, Any]:
        return {**copy.deepcopy(_EXAMPLE["kernels"][0]), **changes}


_NO_SIZES = {"may_use_normal_priority": True, "sizes": [], "grammar": "", "largest_gpus": 1, "step": 0.01}
_EVENT: dict[str, Any] = {
    "kernel_id": "k-1",
    "owner": "ada",
    "label": "models/train.ipynb",
    "kind": "state",
    "state": "swapped_out",
    "was": "on_gpu",
    "reason": None,
    "gpus": 0.25,
    "memory_limit_bytes": 4 * GIB,
    "used_bytes": 1 * GIB,
    "over_limit_bytes": 0,
    "swapped_bytes": 1 * GIB,
    "paused": False,
    "evicted": None,
    "queued": None,
    "resize": None,
}
_EXAMPLE: dict[str, Any] = {
    "version": "0.1.0",
    "user": {
        "name": "ada",
        "role": "user",
        "gpu_limit": {"gpus": None, "held_gpus": 0.5, "queued_gpus": 0.0, "left_gpus": None, "teams": []},
        "budgets": [],
        "invitations": [],
    },
    "nodes": [],
    "node": {
        "name": "here",
        "driver": "softgpu",
        "enforcer": "hook",
        "untracked_processes": 0,
        "overcommit": 1.0,
        "host_copies": None,
        "agent": "ok",
        "cordon": None,
        "message": None,
    },
    "devices": [
        {
            "index": 0,
            "uuid": "GPU-a0",
            "name": "Aliquot Software GPU",
            "memory_bytes": 16 * GIB,
            "reserved_bytes": 12 * GIB,
            "reserved_gpus": 0.75,
            "used_bytes": int(3.1 * GIB),
            "mine_bytes": 1 * GIB,
            "mine_reserved_bytes": 4 * GIB,
            "swapped_bytes": 0,
            "mine_swapped_bytes": 0,
            "burstable_bytes": 0,
            "utilization_percent": 37,
            "temperature_celsius": 41,
            "power_watts": None,
            "lost": False,
            "overcommit": 1.0,
            "overcommit_reason": None,
            "compute_control": None,
            "predicted_speed": None,
        }
    ],
    "kernels": [
        {
            "id": "k-1",
            "name": "python3.gpu-0.25",
            "owner": "ada",
            "access": "own",
            "shares": [],
            "label": "models/train.ipynb",
            "gpus": 0.25,
            "requested_memory_bytes": None,
            "priority": "normal",
            "state": "on_gpu",
            "reason": None,
            "queue_position": None,
            "queue_length": None,
            "wait_reason": None,
            "expected_start": None,
            "predicted_start": None,
            "execution_state": "idle",
            "idle_since": "2026-01-01T00:10:00Z",
            "memory_limit_bytes": 4 * GIB,
            "guaranteed_memory_bytes": 4 * GIB,
            "over_limit_bytes": 0,
            "used_bytes": 1 * GIB,
            "peak_bytes": int(2.5 * GIB),
            "busy_seconds": 12.4,
            "context_bytes": GIB // 2,
            "failed_allocations": 0,
            "required_bytes": None,
            "last_failed_allocation_at": None,
            "interception": "active",
            "enforcement": "active",
            "uncontrolled_processes": [],
            "host_memory": {"limit_bytes": 2 * GIB, "used_bytes": 0, "peak_bytes": 0, "failed_allocations": 0},
            "residency": {
                "mode": "vmm",
                "state": "on_gpu",
                "since": "2026-01-01T00:00:00Z",
                "swapped_bytes": 0,
                "swappable_bytes": GIB,
                "unswappable": [],
                "not_swappable": None,
                "refusal": None,
                "queued": None,
                "moving": None,
                "restore_seconds": None,
                "evict_reason": None,
                "swaps_out": 0,
                "swaps_in": 0,
                "waited_seconds": 0.0,
            },
            "resize": None,
            "interrupted_at": None,
            "dropped_messages": None,
            "created": "2026-01-01T00:00:00Z",
            "termination": None,
            "last_crash": None,
            "scheduled_termination": None,
            "owner_message": None,
            "devices": [
                {
                    "uuid": "GPU-a0",
                    "index": 0,
                    "gpus": 0.25,
                    "memory_limit_bytes": 4 * GIB,
                    "guaranteed_memory_bytes": 4 * GIB,
                    "used_bytes": 1 * GIB,
                    "peak_bytes": int(2.5 * GIB),
                    "required_bytes": None,
                    "busy_seconds": 12.4,
                    "context_bytes": GIB // 2,
                    "load": None,
                    "compute": None,
                }
            ],
        }
    ],
    "queue": {"length": 0},
}
