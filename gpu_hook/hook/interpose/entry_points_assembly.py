"""The assembly of a shim's forwarders, for x86-64 and aarch64.

This module owns the instructions; it knows no function's name.

Every forwarder goes through its slot of ``entry_targets``, which is empty until the first call asks
the resolver for the real function: the loader would have to fill in any other content. The slow ways
save every register that can hold an argument, and ask a C function where to go.

Most forwarders jump, and are never returned to. Those that wait for the gate call: they mark their
thread's record (threads.h) before they look at the gate, and unmark it after the return; so they
copy the arguments on the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from assembly_templates import SPARE_LANDING, TEMPLATES

# What a slow way is called, and the C function behind it: void *function(unsigned index); the gate's takes a second
# argument, uint32_t *, whose content it is given back after the call by entry_gate_leave.
RESOLVE, GATE, DENY = "entry_resolve", "entry_gate", "entry_deny"

# The most words of arguments on the stack that a slow call copies; a fast one copies what its row says.
MOST_STACK_WORDS = 16
MACHINES = tuple(TEMPLATES)


@dataclass(frozen=True)
class Forwarder:
    """One exported name: its place in the jump table, and its slow way.

    A way of ``None``: code in C stands there. ``is_called``: C code calls the real function, as
    ``real_NAME``. ``stack_words`` is at least the number of words that its arguments take on the
    stack; a multiple of 4, used only where it calls.
    """

    name: str
    index: int
    way: str | None
    is_called: bool
    stack_words: int = 4


def _copy_arguments(machine: str, words: int, source: int, base: str) -> str:
    """Return code that copies so many words on the stack, from ``source`` bytes above ``base``."""
    if machine == "x86_64":
        rows = [
            (f"movups {source + at}(%{base}), %xmm8", f"movups %xmm8, {at}(%rsp)") for at in range(0, 8 * words, 16)
        ]
    else:
        rows = [
            (f"ldp q16, q17, [{base}, #{source + at}]", f"stp q16, q17, [sp, #{at}]") for at in range(0, 8 * words, 32)
        ]
    return "\n".join(f"    {load}\n    {store}" for load, store in rows)


def _write_ways(machine: str, ways: Iterable[str]) -> list[str]:
    """Return the slow ways, which save all registers for arguments around a call of C code."""
    template = TEMPLATES[machine]
    if machine == "x86_64":
        by_stack = [(f"%xmm{i}", f"{16 * i}(%rsp)") for i in range(8)]
        by_frame = [(f"%xmm{i}", f"{16 * i - 192}(%rbp)") for i in range(8)]
        save = "\n".join(f"    movups {register}, {place}" for register, place in by_stack)
        restore = "\n".join(f"    movups {place}, {register}" for register, place in by_stack)
        gate_save = "\n".join(f"    movups {register}, {place}" for register, place in by_frame)
        gate_restore = "\n".join(f"    movups {place}, {register}" for register, place in by_frame)
        copy = _copy_arguments(machine, MOST_STACK_WORDS, 24, "rbp")
    else:
        save = restore = ""
        gate_save = "\n".join(f"    stp q{i}, q{i + 1}, [sp, #{96 + 16 * i}]" for i in range(0, 8, 2))
        gate_restore = "\n".join(f"    ldp q{i}, q{i + 1}, [sp, #{96 + 16 * i}]" for i in range(0, 8, 2))
        copy = _copy_arguments(machine, MOST_STACK_WORDS, 224, "x29")
    parts = [template.way.format(way=way, save=save, restore=restore) for way in ways if way != GATE]
    if GATE in ways:
        parts.append("    .hidden gate_word\n    .hidden threads_own\n")
        parts.append(template.gate_way.format(save=gate_save, restore=gate_restore, copy=copy))
    return parts


def _gate_values(machine: str, row: Forwarder) -> dict[str, object]:
    """Return the gate template's values beside the row.

    They are the frame, and the copy of the arguments into it.
    """
    size = 8 * row.stack_words
    frame = size + 8  # the return address makes it a multiple of 16
    copy = _copy_arguments(machine, row.stack_words, *((frame + 8, "rsp") if machine == "x86_64" else (16, "x29")))
    return {"bytes": size, "frame": frame, "copy": copy}


def _write_spares(machine: str, first: int, count: int) -> list[str]:
    """Return ``entry_spares``: forwarders without a name, 16 bytes apart.

    They always ask the gate where to go.
    """
    parts = ["    .balign 16\n    .hidden entry_spares\n    .globl entry_spares\nentry_spares:\n"]
    for index in range(first, first + count):
        slow = TEMPLATES[machine].slow.format(index=index, way=GATE)
        parts.append(f"    .balign 16\n    .cfi_startproc\n{SPARE_LANDING[machine]}{slow}    .cfi_endproc\n")
    return parts


def write_assembly(machine: str, forwarders: Iterable[Forwarder], ours: Callable[[str], bool], spares: int) -> str:
    """Return the jump table, its forwarders, and the table of distances to our own functions.

    A distance is 0 where ``ours`` returns False.
    ``spares``: how many forwarders to add for functions that the table does not name.
    """
    table = list(forwarders)
    text = TEMPLATES[machine]
    parts = ["    .text\n", *_write_ways(machine, sorted({RESOLVE, *(row.way for row in table if row.way)}))]
    bodies = {RESOLVE: text.jump + text.slow, GATE: text.gate + text.slow, DENY: text.slow}
    for row in table:
        values: dict[str, object] = {"name": row.name, "index": row.index, "offset": 8 * row.index, "way": row.way}
        if row.way:
            extra = _gate_values(machine, row) if row.way == GATE else {}
            parts.append((text.head + bodies[row.way] + text.tail).format(**values, **extra))
        if row.is_called:
            real = values | {"name": f"real_{row.name}", "way": RESOLVE}
            parts.append(f"    .hidden real_{row.name}\n" + (text.head + bodies[RESOLVE] + text.tail).format(**real))
    if spares:
        parts += _write_spares(machine, len(table), spares)
    return "".join(parts + _write_tables(table, ours))


def _write_tables(table: list[Forwarder], ours: Callable[[str], bool]) -> list[str]:
    parts = ["    .bss\n    .balign 64\n    .hidden entry_targets\n    .globl entry_targets\nentry_targets:\n"]
    parts.append(f"    .zero {8 * len(table)}\n")
    parts.append("    .section .rodata\n    .balign 4\n    .hidden entry_ours_at\n")
    parts.append("    .globl entry_ours_at\nentry_ours_at:\n")
    parts += [f"    .long {f'{row.name} - .' if ours(row.name) else 0}\n" for row in table]
    parts.append('    .section .note.GNU-stack,"",%progbits\n')
    return parts
