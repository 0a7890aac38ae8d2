"""The instructions of a shim's forwarders, as templates for x86-64 and aarch64.

entry_points_assembly.py fills them.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    cmpq $0, entry_targets+{offset}(%rip)
    je 3f
    jmp *entry_targets+{offset}(%rip)
3:
"""
_X86_64_SLOW = """\
    pushq ${index}
    .cfi_adjust_cfa_offset 8
    jmp {way}_saved
    .cfi_adjust_cfa_offset -8
"""
_X86_64_GATE = """\
    cmpq $0, entry_targets+{offset}(%rip)
    je 2f
    movq threads_own@gottpoff(%rip), %r11
    movq %fs:(%r11), %r11
    testq %r11, %r11
    je 2f
    incl (%r11)
    movq gate_word(%rip), %r10
    cmpl $0, (%r10)
    jne 1f
    subq ${frame}, %rsp
    .cfi_adjust_cfa_offset {frame}
{copy}
    call *entry_targets+{offset}(%rip)
    movq threads_own@gottpoff(%rip), %r11
    movq %fs:(%r11), %r11
    decl (%r11)
    addq ${frame}, %rsp
    .cfi_adjust_cfa_offset -{frame}
    ret
1:
    decl (%r11)
2:
"""
_X86_64_GATE_WAY = """\
    .hidden entry_gate
    .hidden entry_gate_leave
    .type entry_gate_saved, @function
entry_gate_saved: /* stack: index, return address, and aligned to 16; calls, with all arguments, and returns */
    .cfi_startproc
    .cfi_def_cfa_offset 16
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rbp, -24
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq $328, %rsp /* from below: the copied arguments, xmm0 to xmm7, seven registers, the mark */
    movq %rax, -16(%rbp)
    movq %rdi, -24(%rbp)
    movq %rsi, -32(%rbp)
    movq %rdx, -40(%rbp)
    movq %rcx, -48(%rbp)
    movq %r8, -56(%rbp)
    movq %r9, -64(%rbp)
{save}
    movq 8(%rbp), %rdi
    leaq -8(%rbp), %rsi
    call entry_gate
    movq %rax, %r11
{restore}
    movq -16(%rbp), %rax
    movq -24(%rbp), %rdi
    movq -32(%rbp), %rsi
    movq -40(%rbp), %rdx
    movq -48(%rbp), %rcx
    movq -56(%rbp), %r8
    movq -64(%rbp), %r9
{copy}
    call *%r11
    movq %rax, -16(%rbp)
    movl -8(%rbp), %edi
    call entry_gate_leave
    movq -16(%rbp), %rax
    leave
    .cfi_def_cfa %rsp, 16
    .cfi_restore %rbp
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size entry_gate_saved, . - entry_gate_saved
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
    cbz x16, 3f
    br x16
3:
"""
_AARCH64_SLOW = """\
    mov x17, #{index}
    b {way}_saved
"""
_AARCH64_GATE = """\
    adrp x16, entry_targets+{offset}
    ldr x16, [x16, :lo12:entry_targets+{offset}]
    cbz x16, 2f
    mrs x16, tpidr_el0
    adrp x17, :gottprel:threads_own
    ldr x17, [x17, :gottprel_lo12:threads_own]
    ldr x16, [x16, x17]
    cbz x16, 2f
    ldr w17, [x16]
    add w17, w17, #1
    str w17, [x16]
    adrp x17, gate_word
    add x17, x17, :lo12:gate_word
    ldar x17, [x17]
    ldr w17, [x17]
    cbnz w17, 1f
    stp x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset 29, -16
    .cfi_offset 30, -8
    mov x29, sp
    .cfi_def_cfa_register 29
    sub sp, sp, #{bytes}
{copy}
    adrp x16, entry_targets+{offset}
    ldr x16, [x16, :lo12:entry_targets+{offset}]
    blr x16
    mov sp, x29
    .cfi_def_cfa_register 31
    ldp x29, x30, [sp], #16
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    mrs x16, tpidr_el0
    adrp x17, :gottprel:threads_own
    ldr x17, [x17, :gottprel_lo12:threads_own]
    ldr x16, [x16, x17]
    ldr w17, [x16]
    sub w17, w17, #1
    stlr w17, [x16]
    ret
1:
    ldr w17, [x16]
    sub w17, w17, #1
    str w17, [x16]
2:
"""
_AARCH64_GATE_WAY = """\
    .hidden entry_gate
    .hidden entry_gate_leave
    .type entry_gate_saved, %function
entry_gate_saved: /* x17: index; calls, with all arguments, and returns */
    .cfi_startproc
    stp x29, x30, [sp, #-224]!
    .cfi_def_cfa_offset 224
    .cfi_offset 29, -224
    .cfi_offset 30, -216
    mov x29, sp
    .cfi_def_cfa_register 29
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
{save}
    mov x0, x17
    add x1, sp, #88
    bl entry_gate
    mov x16, x0
{restore}
    ldr x8, [sp, #80]
    ldp x6, x7, [sp, #64]
    ldp x4, x5, [sp, #48]
    ldp x2, x3, [sp, #32]
    ldp x0, x1, [sp, #16]
    sub sp, sp, #128
{copy}
    blr x16
    mov sp, x29
    .cfi_def_cfa_register 31
    str x0, [sp, #16]
    ldr w0, [sp, #88]
    bl entry_gate_leave
    ldr x0, [sp, #16]
    ldp x29, x30, [sp], #224
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
    .size entry_gate_saved, . - entry_gate_saved
"""
_AARCH64_TAIL = _X86_64_TAIL

# A spare forwarder is the target of a call: "hint #34" allows calls, "hint #36" jumps.
SPARE_LANDING = {"x86_64": "    endbr64\n", "aarch64": "    hint #34\n"}


@dataclass(frozen=True)
class Machine:
    """The templates of one machine: the slow ways, and the parts of a forwarder."""

    way: str
    gate_way: str
    head: str
    jump: str
    gate: str
    slow: str
    tail: str


TEMPLATES = {
    "x86_64": Machine(
        _X86_64_WAY, _X86_64_GATE_WAY, _X86_64_HEAD, _X86_64_JUMP, _X86_64_GATE, _X86_64_SLOW, _X86_64_TAIL
    ),
    "aarch64": Machine(
        _AARCH64_WAY, _AARCH64_GATE_WAY, _AARCH64_HEAD, _AARCH64_JUMP, _AARCH64_GATE, _AARCH64_SLOW, _AARCH64_TAIL
    ),
}
