"""Write labextension/locale/aliquot.pot: all texts of the lab extension, for language packs of JupyterLab.

The texts are the literal arguments of the translator in the sources, and the titles and descriptions
of the settings. A text that is put together in a call cannot be translated and is an error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LABEXTENSION = Path(__file__).resolve().parents[1] / "labextension"
TEMPLATE = LABEXTENSION / "locale" / "aliquot.pot"
_LITERAL = r"""(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""
# One literal, or several over lines.
_TEXT = rf"({_LITERAL}(?:\s*\+\s*{_LITERAL})*)"
_CALL = re.compile(r"\.(?:__|_n)\(")
_ONE = re.compile(rf"\.__\(\s*{_TEXT}\s*[,)]")
_MANY = re.compile(rf"\._n\(\s*{_TEXT}\s*,\s*{_TEXT}\s*,")
_HEAD = """\
msgid ""
msgstr ""
"Project-Id-Version: aliquot\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"""
# Context, text, plural: the latter is empty for a text without one.
Entry = tuple[str, str, str]


def entries() -> dict[Entry, list[str]]:
    """Return the files of each text. Raises ValueError for a call whose text is no literal."""
    found: dict[Entry, list[str]] = {}
    for path in sorted((LABEXTENSION / "src").rglob("*.ts*")):
        for entry in of_source(path.read_text(), path.name):
            found.setdefault(entry, []).append(path.relative_to(LABEXTENSION).as_posix())
    for path in sorted((LABEXTENSION / "schema").glob("*.json")):
        for text in of_schema(json.loads(path.read_text())):
            found.setdefault(("schema", text, ""), []).append(path.relative_to(LABEXTENSION).as_posix())
    return found


def of_source(source: str, name: str) -> Iterator[Entry]:
    """Yield the texts of one source file."""
    for call in _CALL.finditer(source):
        if one := _ONE.match(source, call.start()):
            yield "", _literal(one[1]), ""
        elif many := _MANY.match(source, call.start()):
            yield "", _literal(many[1]), _literal(many[2])
        else:
            line = source.count("\n", 0, call.start()) + 1
            raise ValueError(f"{name}:{line} translates a text that is no literal. Write the whole text in the call")


def of_schema(table: Any) -> Iterator[str]:
    """Yield titles and descriptions of settings, as JupyterLab translates them."""
    if isinstance(table, dict):
        for key, value in table.items():
            if key in ("title", "description", "jupyter.lab.setting-icon-label") and isinstance(value, str):
                yield value
            else:
                yield from of_schema(value)


def template() -> str:
    """Return the template, in the order of its texts."""
    parts = [_HEAD]
    for (context, text, plural), paths in sorted(entries().items()):
        lines = [f"#: {' '.join(dict.fromkeys(paths))}"]
        lines += [f"msgctxt {_quoted(context)}"] if context else []
        lines += [f"msgid {_quoted(text)}"]
        lines += [f"msgid_plural {_quoted(plural)}", 'msgstr[0] ""', 'msgstr[1] ""'] if plural else ['msgstr ""']
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _literal(text: str) -> str:
    """Return the value of literals, in either kind of quotes."""
    return "".join(re.sub(r"\\(.)", r"\1", part[1:-1]) for part in re.findall(_LITERAL, text))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


if __name__ == "__main__":
    TEMPLATE.write_text(template())
    print(f"{len(entries())} texts in {TEMPLATE}", file=sys.stderr)
