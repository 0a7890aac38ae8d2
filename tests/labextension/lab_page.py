"""What a user does in Lab's page, by role and label, and scripted answers of the status endpoint."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Locator, Page, Route, WebSocketRoute

    from tests.labextension.accessibility import violations
else:
    from accessibility import violations

GIB = 1 << 30
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
_STATUS_URL = re.compile(r"/aliquot/api/status(\?|$)")
_SIZES_URL = re.compile(r"/aliquot/api/sizes(\?|$)")
_EVENTS_URL = re.compile(r"/aliquot/api/events(\?|$)")
_KEEP_URL = re.compile(r"/aliquot/api/kernels/([^/]+)/keep(\?|$)")
_HISTORY_URL = re.compile(r"/aliquot/api/history(\?|$)")
_OUTLOOK_URL = re.compile(r"/aliquot/api/outlook\?")
_ACTION_URL = re.compile(r"/aliquot/api/kernels/([^/?]+)(?:/(resize|swap-out|wake))?(\?|$)")
_PANEL_ID = "aliquot-gpu-kernels"
_OF_JUPYTER = [
    # Notebook 7.6 throws it at each start, with and without our bundle.
    "Cannot read properties of undefined (reading 'schema')",
    # Lab's debugger, of a kernel that is ended while it is asked.
    "Could not restore the debugger state: Canceled future for debug_request message before replies were done",
]
# What Chromium breaks off when an address of the machine comes or goes: containers of other tests have some.
_NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
_CUT_OFF = (_NETWORK_CHANGED, "Failed to fetch")
_PALETTE_TRIES = 20
_HAS_SHORTCUTS = """
() => jupyterapp.commands.keyBindings.some(binding => binding.command === "apputils:activate-command-palette")
"""


class StatusScript:
    """Answers the status endpoint inside the browser: any state of a node, without having to bring it about."""

    def __init__(self) -> None:
        self.code = 200
        self.body: dict[str, Any] = self.example()
        self.requests = 0
        self.kept: list[str] = []
        self.streams: list[WebSocketRoute] = []
        self.keep_code = 204
        self.outlook: dict[str, Any] = {"outcome": "starts", "position": None, "message": "It changes at once."}
        self.asked_outlooks: list[str] = []
        # What was asked of kernels: the method, the end of its path, its body.
        self.asked: list[tuple[str, str, Any]] = []
        self.refusal: tuple[int, str] | None = None

    def serve(self, page: Page) -> None:
        page.route(_STATUS_URL, self._answer)
        page.route(_SIZES_URL, lambda route: route.fulfill(json=_NO_SIZES))
        page.route(_KEEP_URL, self._keep)
        page.route_web_socket(_EVENTS_URL, lambda stream: self.streams.append(stream))
        page.route(_HISTORY_URL, self._say_history)
        page.route(_OUTLOOK_URL, self._say_outlook)
        page.route(_ACTION_URL, self._act)

    def reset(self) -> None:
        """As new, for who shares the page."""
        fresh = StatusScript()
        fresh.requests, fresh.streams = self.requests, self.streams
        self.__dict__.update(fresh.__dict__)

    def _say_history(self, route: Route) -> None:
        told = {"range": "hour", "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:10Z", "step_seconds": 10}
        body = {**told, "kernels": [], "devices": [], "omitted": 0}
        route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

    def _say_outlook(self, route: Route) -> None:
        self.asked_outlooks.append(route.request.url.partition("?")[2])
        size = {"suffix": "gpu-0.5", "gpus": 0.5, "memory_limit_bytes": None, "quota_bytes": 8 * GIB}
        body = {**size, "workload_class": "production", **self.outlook}
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
        """An event, to the stream that was opened last."""
        self.streams[-1].send(json.dumps(self.an_event(**event)))

    def _answer(self, route: Route) -> None:
        self.requests += 1
        route.fulfill(status=self.code, content_type="application/json", body=json.dumps(self.body))

    def _keep(self, route: Route) -> None:
        found = _KEEP_URL.search(route.request.url)
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
            id=kernel_id, label=label, state="ended", reason=ending["message"], ending=ending, devices=[]
        )

    @staticmethod
    def example() -> dict[str, Any]:
        return copy.deepcopy(_EXAMPLE)

    @staticmethod
    def a_kernel(**changes: Any) -> dict[str, Any]:
        return {**copy.deepcopy(_EXAMPLE["kernels"][0]), **changes}


class LabPage:
    """JupyterLab in a tab. Collects what the console calls an error."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self._was_cut_off = False
        page.on("console", self._note)
        page.on("pageerror", lambda error: self._add(str(error)))
        # A theme that was cut off is said in a dialog of Lab's, over everything; the test goes on without it.
        cut_off = page.get_by_role("dialog", name="Error Loading Theme")
        page.add_locator_handler(cut_off, lambda dialog: dialog.get_by_role("button").last.click())

    def open(self, url: str) -> LabPage:
        self.page.goto(url)
        self.wait_until_up()
        return self

    def reload(self) -> None:
        # A reload keeps the workspace; the address of `open` would reset it.
        self.page.goto(self.page.url.split("?")[0])
        self.wait_until_up()

    def wait_until_up(self) -> None:
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")
        self.tab.wait_for()

    @property
    def tab(self) -> Locator:
        """Our tab in Lab's side bar."""
        return self.page.locator(f'.jp-SideBar .lm-TabBar-tab[data-id="{_PANEL_ID}"]')

    @property
    def panel(self) -> Locator:
        return self.page.locator(f"#{_PANEL_ID}")

    def show_panel(self) -> Locator:
        self.tab.click()
        self.panel.wait_for()
        return self.panel

    def run_command(self, label: str) -> None:
        """By the command palette, with the keyboard alone."""
        from playwright.sync_api import TimeoutError as Late  # else only where browser tests run

        self.page.wait_for_function(_HAS_SHORTCUTS)  # they come with the settings: a key pressed before is lost
        found = self.page.locator(".lm-CommandPalette-item", has_text=label).first
        for _ in range(_PALETTE_TRIES):  # it closes when a widget that is still loading takes the focus
            self.page.keyboard.press("Control+Shift+C")
            self.page.keyboard.type(label, delay=10)
            with contextlib.suppress(Late):
                found.wait_for(timeout=2_000)
                break
            self.page.keyboard.press("Escape")
        found.wait_for()
        self.page.keyboard.press("Enter")

    def open_notebook(self, path: str, kernel_name: str) -> None:
        """Open a notebook on a kernel of this name, and wait until the kernel is attached.

        The status bar tells it; the notebook's own indicator says idle before, and a cell run then is lost.
        """
        self.page.evaluate(
            "([path, name]) => jupyterapp.commands.execute('docmanager:open', {path, kernel: {name}}).then(() => null)",
            [path, kernel_name],
        )
        # The status bar may still speak of the notebook before this one.
        self.page.wait_for_function(_IS_ATTACHED, arg=path)
        self.page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()

    def finish_command(self, command: str) -> None:
        """One that opens no dialog; its result, often a widget, stays in the browser."""
        self.page.evaluate("command => jupyterapp.commands.execute(command).then(() => null)", command)

    def start_command(self, command: str, **arguments: Any) -> None:
        """Without waiting for its end, which for one that opens a dialog is the user's answer."""
        self.page.evaluate("([command, args]) => void jupyterapp.commands.execute(command, args)", [command, arguments])

    def violations(self, selector: str) -> list[str]:
        """What axe-core finds in our parts that the selector names, in the theme that is on."""
        return violations(self.page, selector)

    def use_theme(self, name: str) -> None:
        """Light or dark; returns when the page is painted in it."""
        self.page.evaluate(
            "theme => jupyterapp.commands.execute('apputils:change-theme', {theme}).then(() => null)", THEMES[name]
        )
        self.page.wait_for_function(
            "([name, light]) => document.body.dataset.jpThemeName === name"
            " && document.body.dataset.jpThemeLight === String(light)",
            arg=[THEMES[name], name == "light"],
        )

    def in_both_themes(self) -> Iterator[str]:
        """One theme after the other, light again at the end; the page is as it was but for its colours."""
        for name in THEMES:
            self.use_theme(name)
            yield name
        self.use_theme("light")

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._add(message.text)

    def _add(self, error: str) -> None:
        self._was_cut_off |= _NETWORK_CHANGED in error
        if error not in _OF_JUPYTER and not (self._was_cut_off and any(one in error for one in _CUT_OFF)):
            self.errors.append(error)


class NotebookPage(LabPage):
    """Notebook 7 in a tab: a page is one notebook, and has no side bar of ours."""

    def wait_until_up(self) -> None:
        self.page.wait_for_function("() => globalThis.jupyterapp?.restored.then(() => true)")
        self.page.locator(".jp-NotebookPanel-toolbar").wait_for()

    def wait_until_attached(self, path: str) -> None:
        self.page.wait_for_function(_IS_ATTACHED, arg=path)


_IS_ATTACHED = """path => {
    const widget = jupyterapp.shell.currentWidget;
    const kernel = widget?.context?.path === path && widget.sessionContext.session?.kernel;
    return kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle';
}"""
_NO_SIZES = {"may_have_production": True, "sizes": [], "grammar": "", "largest_gpus": 1, "step": 0.01}
_EVENT: dict[str, Any] = {
    "kernel_id": "k-1",
    "owner": "ada",
    "label": "models/train.ipynb",
    "kind": "state",
    "state": "swapped",
    "was": "resident",
    "reason": None,
    "gpus": 0.25,
    "quota_bytes": 4 * GIB,
    "used_bytes": 1 * GIB,
    "over_quota_bytes": 0,
    "swapped_bytes": 1 * GIB,
    "held_out": False,
    "reclaimed": None,
    "waits": None,
    "resize": None,
}
_EXAMPLE: dict[str, Any] = {
    "version": "0.1.0",
    "user": {
        "name": "ada",
        "role": "user",
        "quota": {"gpus": None, "held_gpus": 0.5, "waiting_gpus": 0.0, "left_gpus": None, "teams": []},
    },
    "node": {
        "name": "here",
        "driver": "softgpu",
        "enforcer": "hook",
        "foreign_processes": 0,
        "oversubscription": 1.0,
        "host_copies": None,
        "agent": "ok",
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
            "elastic_bytes": 0,
            "utilization_percent": 37,
            "temperature_celsius": 41,
            "power_watts": None,
            "lost": False,
            "compute_control": None,
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
            "memory_limit_bytes": None,
            "workload_class": "production",
            "state": "resident",
            "reason": None,
            "queue_position": None,
            "execution_state": "idle",
            "idle_since": "2026-01-01T00:10:00Z",
            "quota_bytes": 4 * GIB,
            "guarantee_bytes": 4 * GIB,
            "over_quota_bytes": 0,
            "used_bytes": 1 * GIB,
            "peak_bytes": int(2.5 * GIB),
            "busy_seconds": 12.4,
            "context_bytes": GIB // 2,
            "refusals": 0,
            "needed_bytes": None,
            "interception": "holds",
            "enforcement": "holds",
            "unhooked_processes": [],
            "host_memory": {"quota_bytes": 2 * GIB, "used_bytes": 0, "peak_bytes": 0, "refusals": 0},
            "residency": {
                "mode": "vmm",
                "state": "resident",
                "since": "2026-01-01T00:00:00Z",
                "swapped_bytes": 0,
                "elastic_bytes": GIB,
                "staying": [],
                "refusal": None,
                "waits": None,
                "moving": None,
                "left_for": None,
                "swaps_out": 0,
                "swaps_in": 0,
                "waited_seconds": 0.0,
            },
            "resize": None,
            "dropped_messages": None,
            "created": "2026-01-01T00:00:00Z",
            "ending": None,
            "last_crash": None,
            "ending_soon": None,
            "devices": [
                {
                    "uuid": "GPU-a0",
                    "index": 0,
                    "gpus": 0.25,
                    "quota_bytes": 4 * GIB,
                    "guarantee_bytes": 4 * GIB,
                    "used_bytes": 1 * GIB,
                    "peak_bytes": int(2.5 * GIB),
                    "needed_bytes": None,
                    "busy_seconds": 12.4,
                    "context_bytes": GIB // 2,
                    "compute": None,
                }
            ],
        }
    ],
    "queue": {"length": 0},
}
