"""The image of Binder builds with repo2docker and Podman, starts, and runs the quickstart in a browser."""

from __future__ import annotations

import re
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ports import free_port

sys.path.insert(0, str(Path(__file__).parents[1] / "labextension"))
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.containers import binder_image
    from tests.containers.container_engines import Engine
    from tests.labextension.lab_process import BROWSER, CHROMIUM_ARGS
else:
    import binder_image
    from container_engines import Engine
    from lab_process import BROWSER, CHROMIUM_ARGS

pytestmark = [pytest.mark.soak(alone="builds the image of Binder for minutes"), pytest.mark.timeout(4000)]
TOKEN = "the-token-of-this-test"
# A container of Binder has one or two gigabytes.
MEMORY = "2g"
PATIENCE_MS = 300_000
RUN_ALL = "jupyterapp.commands.execute('notebook:run-all-cells').then(() => null)"
# Lab draws only the cells in view: the notebook's model has the outputs of all of them.
OUTPUTS = """
() => jupyterapp.shell.currentWidget.content.model.toJSON().cells.flatMap(cell => cell.outputs ?? [])
"""
# The page has no splash yet where its scripts have not begun: the wait is for the application, too.
HAS_KERNEL = "window.jupyterapp?.shell.currentWidget?.context?.sessionContext?.session?.kernel?.status === 'idle'"


@pytest.fixture(scope="module")
def a_binder(a_podman: Engine) -> Iterator[str]:
    """Return the address of JupyterLab in a container of the image, which is built first."""
    try:
        binder_image.import_base(a_podman)
    except binder_image.systems.NotToBeHad as why:
        pytest.skip(f"the base image cannot be had: {why}")
    binder_image.build(a_podman)
    port = free_port()
    options = ["--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
    container = a_podman.client().containers.run(
        binder_image.IMAGE,
        ["jupyter", "lab", "--no-browser", "--LabApp.expose_app_in_browser=True", *options],
        network_mode="host",
        mem_limit=MEMORY,
        detach=True,
    )
    yield f"http://127.0.0.1:{port}"
    container.remove(force=True)


def test_the_quickstart_runs_in_a_browser_in_the_image(a_binder: str, a_podman: Engine) -> None:
    if not BROWSER.exists():
        pytest.skip(f"{BROWSER} is missing; install the package chromium")
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(BROWSER), headless=True, args=[*CHROMIUM_ARGS])
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        _until_it_answers(a_binder)
        page.goto(f"{a_binder}/lab/tree/examples/quickstart.ipynb?token={TOKEN}")
        page.locator("#jupyterlab-splash").wait_for(state="detached")
        _until_it_has_a_kernel(page, a_podman)
        page.evaluate(RUN_ALL)
        outputs = page.evaluate(OUTPUTS)
        browser.close()
    assert [one for one in outputs if one["output_type"] == "error"] == []
    said = "".join("".join(one.get("text", "")) for one in outputs)
    assert "\nand the work goes on\n" in said
    assert re.search(r"^unchanged: [0-9a-f]{16}$", said, re.MULTILINE)
    (container,) = a_podman.client().containers.list()
    assert b"not a writable location" not in container.logs()
    assert container.exec_run(["id", "-un"]).output.decode().strip() == "jovyan", "Binder runs no image as root"


def _until_it_has_a_kernel(page: Page, podman: Engine) -> None:
    from playwright.sync_api import TimeoutError as Late

    try:
        page.wait_for_function(HAS_KERNEL)
    except Late:
        (container,) = podman.client().containers.list()
        said = container.logs(tail=60).decode(errors="replace")
        pytest.fail(f"the notebook got no kernel. The page: {page.inner_text('body')[:2000]}\nThe server: {said}")


def _until_it_answers(url: str) -> None:
    """Wait for the server: the container has started its program and no more."""
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/api", timeout=10).close()
        except OSError:
            time.sleep(1.0)
        else:
            return
    raise AssertionError(f"the server at {url} does not answer")
