"""A user's acts in Lab's page, by role and label."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Error, Locator, Page, ViewportSize

    from tests.labextension.accessibility import violations
else:
    from accessibility import violations

VIEWPORT: ViewportSize = {"width": 1280, "height": 800}
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
_PANEL_ID = "aliquot-gpu-kernels"
_OF_JUPYTER = [
    # Notebook 7.6 throws it at each start, with and without our bundle.
    "Cannot read properties of undefined (reading 'schema')",
    # Lab's debugger reports it if a kernel ends during a debugger request.
    "Could not restore the debugger state: Canceled future for debug_request message before replies were done",
]
# Lab 4.6 removes its splash twice if a theme is loaded within 0.2 s after the start.
_SPLASH = "Failed to execute 'removeChild' on 'Node'"
_OURS = "@jupyter-aliquot"  # in the address of each script of ours
# Chromium breaks these requests off when an address of the machine comes or goes: other tests'
# containers have some.
_NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
_CUT_OFF = (_NETWORK_CHANGED, "Failed to fetch")
_PALETTE_TRIES = 20
_IS_UP = "() => globalThis.jupyterapp?.restored.then(() => true)"
_LOOK_MS = 50  # by default Playwright looks before each of 60 pictures a second
_HAS_SHORTCUTS = """
() => jupyterapp.commands.keyBindings.some(binding => binding.command === "apputils:activate-command-palette")
"""


class LabPage:
    """JupyterLab in a tab. It collects the console's errors."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self._was_cut_off = False
        page.on("console", self._note)
        page.on("pageerror", self._note_uncaught)
        # Lab reports a theme that was cut off in a dialog over everything; the test goes on without
        # it.
        cut_off = page.get_by_role("dialog", name="Error Loading Theme")
        page.add_locator_handler(cut_off, lambda dialog: dialog.get_by_role("button").last.click())

    def open(self, url: str) -> LabPage:
        self.page.goto(url)
        self.wait_until_up()
        return self

    def reload(self) -> None:
        """Reload the page with its open widgets.

        Lab notes them on the server a while after they were opened.
        """
        self.page.evaluate(_UNTIL_NOTED)
        # A reload keeps the workspace; the address of `open` would reset it.
        self.page.goto(self.page.url.split("?")[0])
        self.wait_until_up()

    def wait_until_up(self) -> None:
        self.page.wait_for_function(_IS_UP, polling=_LOOK_MS)
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")
        self.tab.wait_for()

    def clear(self) -> None:
        """Close all widgets in the page, for the next test that uses it."""
        self.page.set_viewport_size(VIEWPORT)
        self.page.evaluate(_CLEAR)
        self.page.locator(".jp-Dialog").wait_for(state="detached")
        self.page.wait_for_function(_DISMISS_TOASTS, polling=_LOOK_MS)  # more come while the first ones leave
        self.errors.clear()

    def look_for_kernels(self) -> None:
        """Make the page refresh its list of kernels at once; else it polls now and then."""
        self.page.evaluate(_LOOK_FOR_KERNELS)

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
        """Run a command by the command palette, with the keyboard alone."""
        from playwright.sync_api import TimeoutError as Late  # else only where browser tests run

        self.page.wait_for_function(_HAS_SHORTCUTS)  # they come with the settings; earlier keys are lost
        found = self.page.locator(".lm-CommandPalette-item", has_text=label).first
        for _ in range(_PALETTE_TRIES):  # it closes when a widget that still loads takes the focus
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

        The status bar shows that; the notebook's own indicator says idle before, and a cell run
        then is lost.
        """
        self.page.evaluate(
            "([path, name]) => jupyterapp.commands.execute('docmanager:open', {path, kernel: {name}}).then(() => null)",
            [path, kernel_name],
        )
        # The status bar may still show the notebook before this one.
        self.page.wait_for_function(_IS_ATTACHED, arg=path)
        self.page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()

    def finish_command(self, command: str) -> None:
        """Run a command that opens no dialog, to its end.

        Its result, often a widget, stays in the browser.
        """
        self.page.evaluate("command => jupyterapp.commands.execute(command).then(() => null)", command)

    def start_command(self, command: str, **arguments: Any) -> None:
        """Start a command without waiting for its end.

        A command that opens a dialog ends with the user's answer.
        """
        self.page.evaluate("([command, args]) => void jupyterapp.commands.execute(command, args)", [command, arguments])

    def violations(self, selector: str) -> list[str]:
        """Return axe-core's findings in our parts that the selector names, in the current theme."""
        return violations(self.page, selector)

    def use_theme(self, name: str) -> None:
        """Switch to the light or dark theme; return when the page is painted in it."""
        self.page.evaluate(
            "theme => jupyterapp.commands.execute('apputils:change-theme', {theme}).then(() => null)", THEMES[name]
        )
        self.page.wait_for_function(
            "([name, light]) => document.body.dataset.jpThemeName === name"
            " && document.body.dataset.jpThemeLight === String(light)",
            arg=[THEMES[name], name == "light"],
        )

    def in_both_themes(self) -> Iterator[str]:
        """Yield one theme after the other, and light again at the end.

        The page is unchanged except for its colors.
        """
        for name in THEMES:
            self.use_theme(name)
            yield name
        self.use_theme("light")

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._add(message.text)

    def _note_uncaught(self, error: Error) -> None:
        if not (_SPLASH in error.message and _OURS not in (error.stack or "")):
            self._add(error.message)

    def _add(self, error: str) -> None:
        self._was_cut_off |= _NETWORK_CHANGED in error
        if error not in _OF_JUPYTER and not (self._was_cut_off and any(one in error for one in _CUT_OFF)):
            self.errors.append(error)


class NotebookPage(LabPage):
    """Notebook 7 in a tab: a page is one notebook, and has no side bar of ours."""

    def reload(self) -> None:
        """Reload the page; its address names the notebook."""
        self.page.goto(self.page.url.split("?")[0])
        self.wait_until_up()

    def wait_until_up(self) -> None:
        self.page.wait_for_function(_IS_UP, polling=_LOOK_MS)
        self.page.locator(".jp-NotebookPanel-toolbar").wait_for()

    def wait_until_attached(self, path: str) -> None:
        self.page.wait_for_function(_IS_ATTACHED, arg=path)


# Dismiss dialogs with their first button, "Cancel". A second click on a side bar's tab would close
# it.
_CLEAR = """() => {
    document.querySelectorAll('.jp-Dialog .jp-Dialog-footer button:first-child').forEach(button => button.click());
    [...jupyterapp.shell.widgets('main')].forEach(widget => widget.dispose());
    jupyterapp.shell.collapseLeft();
}"""
# Without an id, the command dismisses all; some would stay for ever.
_DISMISS_TOASTS = """async () => {
    await jupyterapp.commands.execute('apputils:dismiss-notification');
    return document.querySelector('.Toastify__toast') === null;
}"""
_UNTIL_NOTED = """async () => {
    const { serviceManager, shell } = jupyterapp;
    const paths = [...shell.widgets('main')].map(widget => widget.context?.path).filter(Boolean);
    const isNoted = ({ data }) => {
        const layout = JSON.stringify(data['layout-restorer:data'] ?? null), tabs = Object.keys(data);
        return paths.every(path => layout.includes(`:${path}"`) && tabs.some(tab => tab.endsWith(`:${path}`)));
    };
    for (const began = Date.now(); paths.length > 0 && !isNoted(await serviceManager.workspaces.fetch('default')); ) {
        if (Date.now() - began > 60000) throw new Error(`JupyterLab has not noted that ${paths.join(', ')} are open`);
        await new Promise(resolve => setTimeout(resolve, 50));
    }
}"""
_LOOK_FOR_KERNELS = """async () => {
    const { kernels, sessions } = jupyterapp.serviceManager;
    await Promise.all([kernels.refreshRunning(), sessions.refreshRunning()]);
}"""
_IS_ATTACHED = """path => {
    const widget = jupyterapp.shell.currentWidget;
    const kernel = widget?.context?.path === path && widget.sessionContext.session?.kernel;
    return kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle';
}"""
