"""Resize the kernel in front, and time when each place of the page shows it.

For tests and the benchmark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

PYTHON = "Python 3 (ipykernel)"
# Requests with the labels that the page then shows; no server lists the last.
SIZES: list[tuple[dict[str, Any], str]] = [
    ({"gpus": 0.5}, "0.5 GPU"),
    ({"gpus": 0.3}, "0.3 GPU"),
    ({"gpus": 0.37, "memory": 5 << 30}, "0.37 GPU · 5 GiB"),
]

# Requests another size as any client may, and polls until each place shows it: seconds from the
# request, by place.
_JS = """async ([change, want, places]) => {
    const { serviceManager, shell } = jupyterapp;
    const { baseUrl, token } = serviceManager.serverSettings;
    const headers = { Authorization: `token ${token}`, 'Content-Type': 'application/json' };
    const id = shell.currentWidget.sessionContext.session.kernel.id;
    const texts = selector => Array.from(document.querySelectorAll(selector), node => node.textContent);
    const begun = performance.now();
    const answer = await fetch(`${baseUrl}aliquot/api/v1/kernels/${id}`, {
        method: 'PATCH', headers, body: JSON.stringify(change)
    });
    const seconds = { answer: (performance.now() - begun) / 1000 };
    while (performance.now() - begun < 20000 && places.some(([place]) => !(place in seconds))) {
        const tells = {
            metadata: () => shell.currentWidget.model.getMetadata('kernelspec').name === want.name,
            kernel: () => shell.currentWidget.sessionContext.session.kernel.name === want.name
        };
        for (const [place, selector] of places) {
            const shown = want[place] ?? want.shown;
            const isTold = selector ? texts(selector).some(text => text.includes(shown)) : tells[place]();
            if (isTold && !(place in seconds)) {
                seconds[place] = (performance.now() - begun) / 1000;
            }
        }
        await new Promise(resolve => setTimeout(resolve, 5));
    }
    const names = async path => (await (await fetch(`${baseUrl}api/${path}`, { headers })).json())
        .map(one => one.kernel ?? one).filter(one => one.id === id).map(one => one.name);
    return { status: answer.status, seconds, rest: [...await names('kernels'), ...await names('sessions')] };
}"""
IN_NOTEBOOK = [
    ("toolbar", ".jp-NotebookPanel-toolbar .jp-KernelName"),
    ("item", ".jp-NotebookPanel-toolbar .aliquot-KernelItem"),
    ("metadata", ""),
    ("kernel", ""),
]
IN_LAB = [*IN_NOTEBOOK, ("status bar", "#jp-main-statusbar"), ("running", "#jp-running-sessions")]


def resize(page: Page, change: dict[str, Any], label: str, places: list[tuple[str, str]]) -> Any:
    """Return the answer's status, seconds until each of *places* showed it, and REST's names then."""
    suffix = label.replace(" GPU", "").replace(" · ", "-").replace(" GiB", "g")
    shown = f"{PYTHON} · {label}"
    want = {"name": f"python3.gpu-{suffix}", "shown": shown, "item": label.split(" · ")[0]}
    return page.evaluate(_JS, [change, want, places])
