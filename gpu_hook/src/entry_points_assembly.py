"""The assembly of a shim's forwarders, for x86-64 and aarch64. Owns the instructions; knows no function's name.

Every forwarder jumps through its slot of ``entry_targets``, which first leads to the resolver and later to the real
function. The slow ways save every register that can hold an argument, ask a C function where to jump, and jump there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

# What a slow way is called, and the C function behind it: void *function(unsigned index).
RESOLVE, GATE, DENY = "entry_resolve", "entry_gate", "entry_deny"


@dataclass(frozen=True)
class Forwarder:
    """One exported name: its place in the jump table, and the slow way it takes; ``None``: code in C stands there.

    ``is_called``: C code calls the real function, as ``real_NAME``.
    """

    name: str
    index: int
    way: str | None
    is_called: bool


_X86_64_WAY = """\
    .hidden {way}
    .type {way}_saved, @function
{way}_saved: /* stack: index, return address, and aligned to 16; keeps every argument register */
    .cfi_startproc
    .cfi_def_cfa_offset 16
    subq $192, %rsp
    .cfi_adjust_cfa_offset 192
    movq %rax, 128(%rsp)
    movq %rdi, 136(%rsp)
    movq %rsi, 144(%rsp)
    movq %rdx, 152(%rsp)
    movq %rcx, 160(%rsp)
    movq %r8, 168(%rsp)
    movq %r9, 176(%rsp)
{save}
    movq 192(%rsp), %rdi
    call {way}
    movq %rax, %r11
{restore}
    movq 128(%rsp), %rax
    movq 136(%rsp), %rdi
    movq 144(%rsp), %rsi
    movq 152(%rsp), %rdx
    movq 160(%rsp), %rcx
    movq 168(%rsp), %r8
    movq 176(%rsp), %r9
    addq $200, %rsp
    .cfi_adjust_cfa_offset -200
    jmp *%r11
    .cfi_endproc
    .size {way}_saved, . - {way}_saved
"""
_X86_64_HEAD = """\
    .globl {name}
    .type {name}, @function
    .balign 16
{name}:
    .cfi_startproc
    endbr64
"""
_X86_64_JUMP = """\
    jmp *entry_targets+{offset}(%rip)
"""
_X86_64_SLOW = """\
    pushq ${index}
    .cfi_adjust_cfa_offset 8
    jmp {way}_saved
    .cfi_adjust_cfa_offset -8
"""
_X86_64_GATE = """\
    movq gate_word(%rip), %r11
    cmpl $0, (%r11)
    jne 1f
    jmp *entry_targets+{offset}(%rip)
1:
"""
_X86_64_TAIL = """\
    .cfi_endproc
    .size {name}, . - {name}
"""

_AARCH64_WAY = """\
    .hidden {way}
    .type {way}_saved, %function
{way}_saved: /* x17: index; keeps every argument register */
    .cfi_startproc
    stp x29, x30, [sp, #-224]!
    .cfi_def_cfa_offset 224
    .cfi_offset 29, -224
    .cfi_offset 30, -216
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    mov x0, x17
    bl {way}
    mov x16, x0
    ldp q6, q7, [sp, #192]
    ldp q4, q5, [sp, #160]
    ldp q2, q3, [sp, #128]
    ldp q0, q1, [sp, #96]
    ldr x8, [sp, #80]
    ldp x6, x7, [sp, #64]
    ldp x4, x5, [sp, #48]
    ldp x2, x3, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #224
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size {way}_saved, . - {way}_saved
"""
_AARCH64_HEAD = """\
    .globl {name}
    .type {name}, %function
    .balign 16
{name}:
    .cfi_startproc
    hint #34
"""
_AARCH64_JUMP = """\
    adrp x16, entry_targets+{offset}
    ldr x16, [x16, :lo12:entry_targets+{offset}]
    br x16
"""
_AARCH64_SLOW = """\
    mov x17, #{index}
    b {way}_saved
"""
_AARCH64_GATE = """\
    adrp x16, gate_word
    ldr x16, [x16, :lo12:gate_word]
    ldr w17, [x16]
    cbnz w17, 1f
    adrp x16, entry_targets+{offset}
    ldr x16, [x16, :lo12:entry_targets+{offset}]
    br x16
1:
"""
_AARCH64_TAIL = _X86_64_TAIL

_TEMPLATES = {
    "x86_64": (_X86_64_WAY, _X86_64_HEAD, _X86_64_JUMP, _X86_64_GATE, _X86_64_SLOW, _X86_64_TAIL),
    "aarch64": (_AARCH64_WAY, _AARCH64_HEAD, _AARCH64_JUMP, _AARCH64_GATE, _AARCH64_SLOW, _AARCH64_TAIL),
}
# A jump to the table's first content may be an indirect call's target, which begins with this.
_LANDING = {"x86_64": "    endbr64\n", "aarch64": "    hint #36\n"}
MACHINES = tuple(_TEMPLATES)


def write_assembly(machine: str, forwarders: Iterable[Forwarder], ours: Callable[[str], bool]) -> str:
    """Return the jump table, its forwarders, and the table of distances to our own (0 where ``ours`` says no)."""
    table = list(forwarders)
    template, head, jump, gate, slow, tail = _TEMPLATES[machine]
    save = "\n".join(f"    movups %xmm{i}, {16 * i}(%rsp)" for i in range(8))
    restore = "\n".join(f"    movups {16 * i}(%rsp), %xmm{i}" for i in range(8))
    ways = sorted({RESOLVE, *(row.way for row in table if row.way)})
    parts = ["    .text\n", *(template.format(way=way, save=save, restore=restore) for way in ways)]
    if GATE in ways:
        parts.append("    .hidden gate_word\n")
    bodies = {RESOLVE: jump, GATE: gate + slow, DENY: slow}
    for row in table:
        values = {"name": row.name, "index": row.index, "offset": 8 * row.index, "way": row.way}
        if row.way:
            parts.append((head + bodies[row.way] + tail).format(**values))
        if row.is_called:
            parts.append(
                f"    .hidden real_{row.name}\n" + (head + jump + tail).format(**values | {"name": f"real_{row.name}"})
            )
        first = slow.format(**(values | {"way": RESOLVE}))
        parts.append(f"first_{row.index}:\n    .cfi_startproc\n{_LANDING[machine]}{first}    .cfi_endproc\n")
    parts.append("    .data\n    .balign 64\n    .hidden entry_targets\n    .globl entry_targets\nentry_targets:\n")
    parts += [f"    .quad first_{row.index}\n" for row in table]
    parts.append("    .section .rodata\n    .balign 4\n    .hidden entry_ours_at\n")
    parts.append("    .globl entry_ours_at\nentry_ours_at:\n")
    parts += [f"    .long {f'{row.name} - .' if ours(row.name) else 0}\n" for row in table]
    parts.append('    .section .note.GNU-stack,"",%progbits\n')
    return "".join(parts)
