"""Fixtures: a JupyterLab without the gateway, one with it, a browser, and scripted status answers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # take_screenshot.py, a program, shares these modules

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from tests.labextension.lab_page import VIEWPORT, LabPage
    from tests.labextension.lab_process import BROWSER, CHROMIUM_ARGS, LabProcess
    from tests.labextension.server_processes import (
        GatewayProcess,
        NotebookProcess,
        labs_side_by_side,
        why_no_notebook,
    )
    from tests.labextension.status_script import StatusScript
else:
    from lab_page import VIEWPORT, LabPage
    from lab_process import BROWSER, CHROMIUM_ARGS, LabProcess
    from server_processes import GatewayProcess, NotebookProcess, labs_side_by_side, why_no_notebook
    from status_script import StatusScript

# A test's page lives for seconds. To optimize its scripts costs more than they then save: a sixth of a page's load.
_WITHOUT_OPTIMIZING = "--js-flags=--no-opt --no-maglev"
# The page polls every quarter of a second: tests wait for the state that they test, and never long.
_FAST: dict[str, dict[str, Any]] = {"@jupyter-aliquot/labextension:plugin": {"refreshInterval": 0.5}}
# An animation over each start: a seventh of a page's load.
_SPLASH = ("@jupyterlab/apputils-extension:splash",)
_T = TypeVar("_T")
_kept: dict[str, Any] = {}  # what modules of this folder share, by name
_closing = ExitStack()


def _keep(name: str, start: Callable[[], AbstractContextManager[_T]]) -> _T:
    """Return what was started under this name; start it if it does not run."""
    if name not in _kept:
        _kept[name] = _closing.enter_context(start())
    found: _T = _kept[name]
    return found


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End what is kept when the worker goes on to another folder. Called by pytest.

    Servers and their agents look around while no test uses them. Playwright's loop must not outlive
    the browser's tests, or asyncio.run fails elsewhere.
    """
    if nextitem is None or HERE not in nextitem.path.parents:
        _end_kept()


@pytest.fixture(scope="session", autouse=True)
def _ends_kept() -> Iterator[None]:
    """End it also when pytest stops in between."""
    yield
    _end_kept()


def _end_kept() -> None:
    _kept.clear()
    _closing.close()


@pytest.fixture(scope="module")
def a_plain_lab() -> LabProcess:
    """JupyterLab with our lab extension, on a server without our server extension."""
    return _keep("plain", lambda: LabProcess(with_aliquot=False, settings=_FAST, disabled=_SPLASH))


@pytest.fixture(scope="module")
def an_aliquot_lab() -> LabProcess:
    """JupyterLab with both extensions: a real gateway, a real node agent, real kernels."""
    return _keep("aliquot", lambda: LabProcess(with_aliquot=True, settings=_FAST, disabled=_SPLASH))


@pytest.fixture(scope="module")
def a_notebook_server() -> NotebookProcess:
    """Notebook 7 with both extensions: a real gateway, a real node agent, real kernels."""
    if reason := why_no_notebook():
        pytest.skip(reason)
    return _keep("notebook", lambda: NotebookProcess(with_aliquot=True, settings=_FAST))


@pytest.fixture(scope="module")
def a_shared_gateway() -> Iterator[GatewayProcess]:
    """A gateway for alice, bob and the administrator ada."""
    with GatewayProcess() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def labs_of_two(a_shared_gateway: GatewayProcess) -> Iterator[list[LabProcess]]:
    """Alice's and Bob's own JupyterLab on that gateway."""
    with labs_side_by_side(a_shared_gateway, ("alice", "bob"), _FAST) as labs:
        yield labs


@pytest.fixture(scope="module")
def alices_lab(a_shared_gateway: GatewayProcess) -> Iterator[LabProcess]:
    """Alice's own JupyterLab on that gateway, alone there."""
    with labs_side_by_side(a_shared_gateway, ("alice",), _FAST) as [lab]:
        yield lab


@contextlib.contextmanager
def _chromium() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with api.sync_playwright() as playwright:
        args = [*CHROMIUM_ARGS, _WITHOUT_OPTIMIZING]
        browser = playwright.chromium.launch(executable_path=str(BROWSER), headless=True, args=args)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def a_browser() -> Browser:
    """Chromium: tests open contexts of their own in it."""
    if not BROWSER.exists():
        pytest.skip(
            f"{BROWSER} is missing; install the package chromium, or chromium-headless-shell, to run the browser tests"
        )
    return _keep("browser", _chromium)


@pytest.fixture
def pages(a_browser: Browser) -> Iterator[Callable[[], Page]]:
    """Tabs with cookies of their own: each is another user's browser."""
    with ExitStack() as stack:

        def open_one() -> Page:
            context = a_browser.new_context(viewport={"width": 1280, "height": 800})
            stack.callback(context.close)
            context.set_default_timeout(60_000)
            return context.new_page()

        yield open_one


@pytest.fixture
def a_page(pages: Callable[[], Page]) -> Page:
    """An empty tab with cookies of its own."""
    return pages()


@pytest.fixture
def a_script(a_page: Page) -> StatusScript:
    """The status endpoint's answers in the browser; tests change them as they go."""
    script = StatusScript()
    script.serve(a_page)
    return script


@contextlib.contextmanager
def _an_open_page(browser: Browser, lab: LabProcess) -> Iterator[LabPage]:
    context = browser.new_context(viewport=VIEWPORT)
    context.set_default_timeout(60_000)
    yield LabPage(context.new_page()).open(lab.lab_url)
    context.close()


@pytest.fixture(scope="module")
def a_shared_page(an_aliquot_lab: LabProcess, a_browser: Browser) -> LabPage:
    """Lab with Aliquot in one page for all modules: to load it takes three seconds of a core."""
    return _keep("page", lambda: _an_open_page(a_browser, an_aliquot_lab))


@pytest.fixture
def a_real_lab(an_aliquot_lab: LabProcess, a_shared_page: LabPage) -> Iterator[LabPage]:
    """The shared page, empty: before and after a test nothing is open, and there is no kernel."""
    a_shared_page.clear()
    an_aliquot_lab.end_kernels()
    a_shared_page.look_for_kernels()
    yield a_shared_page
    a_shared_page.clear()
    an_aliquot_lab.end_kernels()


@pytest.fixture(scope="module")
def a_shared_page_of_alice(alices_lab: LabProcess, a_browser: Browser) -> Iterator[LabPage]:
    """The shared page of Alice's own server in gateway mode."""
    with _an_open_page(a_browser, alices_lab) as lab:
        yield lab


@pytest.fixture
def alices_page(alices_lab: LabProcess, a_shared_page_of_alice: LabPage) -> Iterator[LabPage]:
    """Alice's shared page, empty: before and after a test nothing is open, and she has no kernel."""
    a_shared_page_of_alice.clear()
    alices_lab.end_kernels()
    a_shared_page_of_alice.look_for_kernels()
    yield a_shared_page_of_alice
    a_shared_page_of_alice.clear()
    alices_lab.end_kernels()


@dataclass(frozen=True)
class ScriptedPanel:
    """The sidebar, open, before a script that tests change as they go."""

    lab: LabPage
    script: StatusScript
    shown: Locator


@pytest.fixture(scope="module")
def a_shared_panel(a_plain_lab: LabProcess, a_browser: Browser) -> Iterator[ScriptedPanel]:
    """One page for a module's tests, for a page takes longer to load than the tests take."""
    context = a_browser.new_context(viewport={"width": 1280, "height": 1000})
    context.set_default_timeout(60_000)
    page, script = context.new_page(), StatusScript()
    script.serve(page)
    lab = LabPage(page).open(a_plain_lab.lab_url)
    yield ScriptedPanel(lab, script, lab.show_panel())
    context.close()


@pytest.fixture
def a_panel(a_shared_panel: ScriptedPanel) -> Iterator[ScriptedPanel]:
    """The shared panel with the example in it; an error that the page logs fails the test."""
    a_shared_panel.script.reset()
    a_shared_panel.lab.errors.clear()
    a_shared_panel.shown.get_by_role("list", name="GPU kernels").get_by_text("train.ipynb").wait_for()
    yield a_shared_panel
    assert a_shared_panel.lab.errors == []


@pytest.fixture
def a_scripted_lab(a_plain_lab: LabProcess, a_page: Page, a_script: StatusScript) -> LabPage:
    """Lab in the browser, opened, with the script's answers instead of a gateway's."""
    return LabPage(a_page).open(a_plain_lab.lab_url)


@pytest.fixture
def an_unscripted_lab(a_plain_lab: LabProcess, a_page: Page) -> LabPage:
    """Lab in the browser, opened, on a server without Aliquot."""
    return LabPage(a_page).open(a_plain_lab.lab_url)
