"""A kernel that ends while its page has no network.

The page notices it, and requests the kernel no more.
"""

from __future__ import annotations

import urllib.request
import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocketRoute

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.server_processes import TOKENS, GatewayProcess, an_empty_notebook
else:
    from lab_page import LabPage
    from server_processes import TOKENS, an_empty_notebook

pytestmark = pytest.mark.browser

_MOST_TRIES = 2
# A page that goes on requesting does so within this time: Lab's own tries begin at once, and come
# after some seconds each.
_QUIET_MILLISECONDS = 8_000
_KERNEL_ID = "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.id"
# Lab shows a dead kernel, or none if its list of sessions comes first.
_IS_GONE = """() => {
    const { session } = jupyterapp.shell.currentWidget.sessionContext;
    return !session?.kernel || session.kernel.status === 'dead';
}"""


class Network:
    """A page's connection to its kernels, which can be cut.

    ``tries`` counts websockets since the network last came back.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self._open: list[WebSocketRoute] = []
        self.tries = 0
        page.route_web_socket(lambda url: "/channels" in url, self._route)

    def cut(self) -> None:
        self._page.context.set_offline(True)
        for socket in self._open:
            socket.close(code=3001)  # a browser without network keeps them open for a while

    def come_back(self) -> None:
        self.tries = 0
        self._page.context.set_offline(False)

    def _route(self, socket: WebSocketRoute) -> None:
        self.tries += 1
        socket.connect_to_server()
        self._open.append(socket)


@pytest.mark.parametrize(
    "name", ["python3.gpu-0.25", pytest.param("python3", marks=pytest.mark.soak(alone="a long browser test"))]
)
def test_a_page_that_comes_back_asks_for_a_kernel_that_is_gone_no_more(
    an_aliquot_lab: LabProcess, a_page: Page, name: str
) -> None:
    _stays_quiet(an_aliquot_lab, a_page, name, an_aliquot_lab.url, an_aliquot_lab.token)


@pytest.mark.parametrize(
    "ends", ["the gateway", pytest.param("her own server", marks=pytest.mark.soak(alone="a long browser test"))]
)
def test_so_does_a_page_of_a_users_own_server_in_gateway_mode(
    a_shared_gateway: GatewayProcess, alices_lab: LabProcess, a_page: Page, ends: str
) -> None:
    url, token = (alices_lab.url, alices_lab.token)
    if ends == "the gateway":
        url, token = a_shared_gateway.url, TOKENS["alice"]
    _stays_quiet(alices_lab, a_page, "python3.gpu-0.25", url, token)


def _stays_quiet(lab: LabProcess, page: Page, name: str, url: str, token: str) -> None:
    network = Network(page)
    path = an_empty_notebook(lab.notebooks, f"gone-{uuid.uuid4().hex[:8]}.ipynb", name)
    LabPage(page).open(lab.lab_url).open_notebook(path, name)
    kernel_id = page.evaluate(_KERNEL_ID)
    assert network.tries >= 1, "the test sees the websocket of a kernel that is there"
    with page.expect_event("requestfailed", lambda asked: kernel_id in asked.url):  # Lab's request of its state
        network.cut()
    headers = {"Authorization": f"token {token}"}
    asked = urllib.request.Request(f"{url}api/kernels/{kernel_id}", headers=headers, method="DELETE")
    urllib.request.urlopen(asked, timeout=60).close()
    network.come_back()
    page.wait_for_function(_IS_GONE)
    page.wait_for_timeout(_QUIET_MILLISECONDS)
    assert network.tries <= _MOST_TRIES
