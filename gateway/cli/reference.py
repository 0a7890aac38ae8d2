"""Write docs/reference/cli.md from the help texts of the commands.

`tools/reference_pages.py` writes it. A test compares the page with this
output.
"""

from __future__ import annotations

from traitlets.utils.importstring import import_item

from jupyter_aliquot.gateway.cli.commands.base import Command

from .app import COMMANDS, AliquotApp

_HEAD = """\
# The command line

Generated from the commands' own help texts by `tools/reference_pages.py`; do not edit.

Every command ends with 0 when it did its work, 1 when it could not (one line on standard error says why), 2 when the
command line was wrong, 130 when it was interrupted. `--json` prints JSON for programs; its fields may be added to, and
are not renamed. A command that ends with 1 then prints the reason there, too: `{"message": "…"}`.
"""


def reference_page() -> str:
    """Return the whole page."""
    parts = [_HEAD, _section("aliquot", AliquotApp)]
    for name, (path, _) in COMMANDS.items():
        parts.append(_section(f"aliquot {name}", import_item(path)))
    return "\n".join(parts)


def _section(title: str, command: type[Command]) -> str:
    help_text = "\n".join(line.rstrip() for line in "\n".join(command().emit_help()).splitlines())
    return f"## {title}\n\n```\n{help_text}\n```\n"
