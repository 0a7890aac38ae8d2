"""Write the forwarders of a shim library.

There is one entry point for each function that the real library exports.
The driver's come from entry_points.txt, so that a hook built with an old release's headers exports
a new release's names, too. NVML's come from nvml.h, read as text (it is not vendored), and from
nvml_names.txt, for what came later; nvml_calls.h names those that C code replaces.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import entry_points_assembly as assembly
import entry_points_table as table

_NVML_PROTOTYPE = re.compile(r"\bDECLDIR\s+(?:char\s*\*\s*)?(nvml[A-Z]\w*)\s*\(")
_NVML_RENAME = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(nvml[A-Z]\w*)[ \t]+(nvml[A-Z]\w*)", re.M)
_NVML_REPLACED = re.compile(r"^\s*REPLACED\((\w+)\)", re.M)
# Exported by the real library and declared nowhere: nvidia-smi does not start without it.
_NVML_UNDECLARED = {"nvmlInternalGetExportTable"}
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
# Take a handle of 64 bytes by value, which x86-64 puts on the stack.
_WIDE = {"cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2"}
# Forwarders for functions of newer drivers: UNKNOWN_FUNCTIONS_MOST of unknown_functions.h.
_SPARES = 64
_WAYS = {table.PASS: assembly.RESOLVE, table.GATE: assembly.GATE, table.DENY: assembly.DENY, table.HOOK: None}


def read_nvml_header(header: Path) -> set[str]:
    """Return every function that nvml.h declares."""
    text = _COMMENT.sub("", header.read_text(encoding="utf-8", errors="replace"))
    declared = set(_NVML_PROTOTYPE.findall(text))
    return declared | {name for alias, name in _NVML_RENAME.findall(text) if alias in declared}


def read_nvml(header: Path, newer: Path, calls: Path) -> dict[str, str]:
    """Return every function of NVML with its class."""
    names = read_nvml_header(header) | set(newer.read_text(encoding="utf-8").split()) | _NVML_UNDECLARED
    replaced = set(_NVML_REPLACED.findall(calls.read_text(encoding="utf-8")))
    if missing := sorted(replaced - names):
        raise table.TableError(
            f"The table replaces {', '.join(missing)}, but {header} does not declare it. Remove it "
            "from the table, or use a newer header"
        )
    return {name: table.HOOK if name in replaced else table.PASS for name in sorted(names)}


def stack_words(name: str, entry: table.Entry | None) -> int:
    """Return how many words of arguments on the stack a call may have.

    An undeclared one's are unknown.
    """
    if entry is not None and not entry.is_declared:
        return int(assembly.MOST_STACK_WORDS)
    return 8 if name in _WIDE else 4


def write_names(names: list[str]) -> str:
    """Return the C source of the list of names, in the order of the jump table.

    The list is one text with offsets into it: the loader would have to fill in each pointer.
    """
    offsets, at = [], 0
    for name in names:
        offsets.append(at)
        at += len(name) + 1
    rows = "".join(f'    "{name}\\0"\n' for name in names)
    return (
        '#include "interpose/entry_points.h"\n\n'
        f"const unsigned entry_count = {len(names)};\n"
        f"const char entry_text[] =\n{rows};\n"
        f"const uint32_t entry_names_at[] = {{{', '.join(map(str, offsets))}}};\n"
    )


def write_version_script(names: list[str]) -> str:
    """Return the linker's export list.

    It has the entry points, the hook's marker, and the functions that the preload library calls.
    """
    rows = "".join(f"    {name};\n" for name in names)
    return f"{{\n  global:\n    aliquot_hook_substitute;\n    aliquot_hook_version;\n{rows}  local:\n    *;\n}};\n"


def needs_real(entry: table.Entry) -> bool:
    """Return whether C code calls the real function."""
    return bool(entry.kind == table.HOOK or entry.is_called)


def write_calls(entries: dict[str, table.Entry]) -> str:
    """Return driver_calls.h.

    It has a CALLED or REPLACED row for each function whose real address C code needs.
    """
    rows = [(entry.kind, name) for name, entry in entries.items() if needs_real(entry)]
    words = ("CALLED", "REPLACED")
    before = "".join(f"#ifndef {word}\n#define {word}(name)\n#endif\n" for word in words)
    body = "".join(f"{'REPLACED' if kind == table.HOOK else 'CALLED'}({name})\n" for kind, name in rows)
    after = "".join(f"#undef {word}\n" for word in words)
    return f"/* Generated from entry_points.txt. */\n{before}\n{body}\n{after}"


def write_if_changed(path: Path, text: str) -> None:
    """Write the file if its text changes; a file that keeps its time is not compiled again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    """Write the files. Called by the build, once for each shim library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["cuda", "nvml"])
    parser.add_argument("machine", choices=assembly.MACHINES)
    parser.add_argument("output", type=Path, help="folder and stem of the files to write")
    parser.add_argument("calls", type=Path, help="entry_points.txt, or nvml_calls.h")
    parser.add_argument("header", type=Path, nargs="?", help="nvml.h")
    parser.add_argument("newer", type=Path, nargs="?", help="nvml_names.txt")
    asked = parser.parse_args()
    entries: dict[str, table.Entry] = {}
    try:
        if asked.kind == "cuda":
            entries = table.read_table(asked.calls)
            classes = {name: entry.kind for name, entry in entries.items()}
            write_if_changed(asked.output.with_name("driver_calls.h"), write_calls(entries))
        else:
            classes = read_nvml(asked.header, asked.newer, asked.calls)
    except table.TableError as error:
        print(error, file=sys.stderr)
        return 1
    names = list(classes)
    called = {name for name, entry in entries.items() if needs_real(entry)}
    forwarders = [
        assembly.Forwarder(name, index, _WAYS[classes[name]], name in called, stack_words(name, entries.get(name)))
        for index, name in enumerate(names)
    ]
    spares = _SPARES if asked.kind == "cuda" else 0
    code = assembly.write_assembly(asked.machine, forwarders, lambda name: classes[name] != table.PASS, spares)
    write_if_changed(asked.output.with_suffix(".S"), code)
    write_if_changed(asked.output.with_suffix(".c"), write_names(names))
    write_if_changed(asked.output.with_suffix(".map"), write_version_script(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
