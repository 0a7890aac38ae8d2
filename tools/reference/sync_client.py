"""The synchronous face of the client, client/sync.py, made from the asyncio face, client/aio.py.

Each ``await`` runs in the client's portal, and the stream of events is iterated there. The class has a
head of its own: it begins and ends the portal.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

_AIO = Path(__file__).resolve().parents[2] / "client" / "aio.py"
_HEAD = '''class Client:
    """A client for scripts and notebooks. It works inside a running event loop, too.

    Close it, or use it in a ``with`` block: its requests run in a thread of its own. Every method
    raises a `ClientError`: see `errors`.
    """
'''
_LIFE = '''        self._portal = Portal()

    def __enter__(self) -> Client:
        """Return the client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """End the thread. Idempotent; a call that is under way ends with an error."""
        self._portal.close()
'''
_IMPORTS = (
    ("The asyncio face of the client.", "The synchronous face of the client: aio.py, by tools/reference_pages.py."),
    ("import AsyncGenerator, Iterable\n", "import Iterable, Iterator\nfrom types import TracebackType\n"),
    ("\nfrom .retries import", "\nfrom .portal import Portal\nfrom .retries import"),
    ("-> AsyncGenerator[KernelEvent, None]:", "-> Iterator[KernelEvent]:"),
)


def sync_client() -> str:
    """Return the text of client/sync.py."""
    text = _without_awaits(_AIO.read_text("utf-8")).replace("    async def ", "    def ")
    for there, here in _IMPORTS:
        text = _replaced(text, there, here)
    head = re.search(r'^class AsyncClient:\n    """.*?"""\n', text, re.DOTALL | re.MULTILINE)
    life = re.search(r"^        self\._exchange = .*\n", text, re.MULTILINE)
    assert head is not None, f"{_AIO} has another class"
    assert life is not None, f"{_AIO} has another constructor"
    text = f"{text[: head.start()]}{_HEAD}{text[head.end() : life.end()]}{_LIFE}{text[life.end() :]}"
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(_AIO.with_name("sync.py")), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _without_awaits(text: str) -> str:
    """Return the code with each awaited call, and each stream that is returned, handed to the portal."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    code = text.encode()
    handed = [(node, node.value, "run") for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Await)]
    handed += [(node, node, "iterate") for node in ast.walk(ast.parse(text)) if _is_stream(node)]
    for whole, call, way in sorted(handed, key=lambda one: (one[0].lineno, one[0].col_offset), reverse=True):
        begin, end = (starts[whole.lineno - 1] + whole.col_offset, starts[_end(whole)[0] - 1] + _end(whole)[1])
        inner = code[starts[call.lineno - 1] + call.col_offset : end]
        code = code[:begin] + f"self._portal.{way}(".encode() + inner + b")" + code[end:]
    return code.decode()


def _is_stream(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "follow"


def _end(node: ast.expr) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _replaced(text: str, there: str, here: str) -> str:
    assert text.count(there) == 1, f"{_AIO} has {there!r} {text.count(there)} times"
    return text.replace(there, here)
