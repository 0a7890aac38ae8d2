"""Writes the forwarders of a shim library: one entry point for each function that the vendor's headers declare.

Reads the headers as text (they are not vendored) and driver_calls.h for the names that C code replaces. Refuses
headers in which a replaced name is missing: then the hook was written for another release.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

_PROTOTYPE = {
    "cuda": re.compile(r"\b(?:CUresult|CUDAAPI)\s+(cu[A-Z]\w*)\s*\("),
    "nvml": re.compile(r"\bDECLDIR\s+(?:char\s*\*\s*)?(nvml[A-Z]\w*)\s*\("),
}
_RENAME = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+((?:cu|nvml)[A-Z]\w*)[ \t]+(?:__CUDA_API_PT(DS|SZ)\()?((?:cu|nvml)[A-Z]\w*)", re.M
)
_PROFILER = re.compile(r"\*PFN_(cuProfiler\w+)_v\d+\)")
_REPLACED = re.compile(r"^\s*(?:REPLACED|COUNTED)\((\w+)\)", re.M)
# Exported by the real library and declared nowhere: nvidia-smi does not start without it.
_UNDECLARED = {"cuda": set[str](), "nvml": {"nvmlInternalGetExportTable"}}
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_WINDOWS = re.compile(r"cuWGL")
_SUFFIX = {"DS": "_ptds", "SZ": "_ptsz", "": ""}

_X86_64 = """\
    .text
    .hidden entry_resolve
    .type resolve_common, @function
resolve_common: /* stack: index, return address, and aligned to 16; keeps every argument register */
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
    call entry_resolve
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
    .size resolve_common, . - resolve_common
"""
_X86_64_ENTRY = """\
    .globl {name}
    .type {name}, @function
    .balign 16
{name}:
    .cfi_startproc
    endbr64
    jmp *entry_targets+{offset}(%rip)
    .cfi_endproc
    .size {name}, . - {name}
"""
_X86_64_FIRST = """\
first_{index}:
    .cfi_startproc
    endbr64
    pushq ${index}
    .cfi_adjust_cfa_offset 8
    jmp resolve_common
    .cfi_endproc
"""

_AARCH64 = """\
    .text
    .hidden entry_resolve
    .type resolve_common, %function
resolve_common: /* x17: index; keeps every argument register */
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
    bl entry_resolve
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
    .size resolve_common, . - resolve_common
"""
_AARCH64_ENTRY = """\
    .globl {name}
    .type {name}, %function
    .balign 16
{name}:
    .cfi_startproc
    hint #34
    adrp x16, entry_targets+{offset}
    ldr x16, [x16, :lo12:entry_targets+{offset}]
    br x16
    .cfi_endproc
    .size {name}, . - {name}
"""
_AARCH64_FIRST = """\
first_{index}:
    .cfi_startproc
    hint #36
    mov x17, #{index}
    b resolve_common
    .cfi_endproc
"""


def read_names(kind: str, headers: list[Path]) -> list[str]:
    """Return every function that the headers declare, under each name that a library exports it by."""
    names = set(_UNDECLARED[kind])
    for header in headers:
        text = _COMMENT.sub("", header.read_text(encoding="utf-8", errors="replace"))
        declared = set(_PROTOTYPE[kind].findall(text))
        names |= declared | set(_PROFILER.findall(text))
        names |= {name + _SUFFIX[suffix] for alias, suffix, name in _RENAME.findall(text) if alias in declared}
    return sorted(name for name in names if not _WINDOWS.match(name))


def write_assembly(machine: str, names: list[str], replaced: set[str]) -> str:
    """Return the jump table and its forwarders. A slot first leads to the resolver, later to the real function."""
    common, entry, first = {
        "x86_64": (_X86_64, _X86_64_ENTRY, _X86_64_FIRST),
        "aarch64": (_AARCH64, _AARCH64_ENTRY, _AARCH64_FIRST),
    }[machine]
    save = "\n".join(f"    movups %xmm{i}, {16 * i}(%rsp)" for i in range(8))
    restore = "\n".join(f"    movups {16 * i}(%rsp), %xmm{i}" for i in range(8))
    parts = [common.format(save=save, restore=restore)]
    for index, name in enumerate(names):
        parts.append(first.format(index=index))
        if name not in replaced:
            parts.append(entry.format(name=name, offset=8 * index))
    parts.append("    .data\n    .balign 64\n    .hidden entry_targets\n    .globl entry_targets\nentry_targets:\n")
    parts += [f"    .quad first_{index}\n" for index in range(len(names))]
    parts.append('    .section .note.GNU-stack,"",%progbits\n')
    return "".join(parts)


def write_table(names: list[str]) -> str:
    """Return the C source of the list of names, in the order of the jump table."""
    rows = "".join(f'    "{name}",\n' for name in names)
    return (
        '#include "entry_points.h"\n\n'
        f"const unsigned entry_count = {len(names)};\n"
        f"const char *const entry_names[] = {{\n{rows}}};\n"
    )


def write_version_script(names: list[str]) -> str:
    """Return the linker's export list: the entry points and the marker of the hook, nothing else."""
    rows = "".join(f"    {name};\n" for name in names)
    return f"{{\n  global:\n    aliquot_hook_version;\n{rows}  local:\n    *;\n}};\n"


def main() -> int:
    """Called by the build, once for each shim library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(_PROTOTYPE))
    parser.add_argument("machine", choices=["x86_64", "aarch64"])
    parser.add_argument("calls", type=Path, help="the C header that names the replaced functions")
    parser.add_argument("output", type=Path, help="folder and stem of the files to write")
    parser.add_argument("headers", type=Path, nargs="+")
    asked = parser.parse_args()
    names = read_names(asked.kind, [header for header in asked.headers if header.exists()])
    replaced = set(_REPLACED.findall(asked.calls.read_text(encoding="utf-8")))
    missing = sorted(replaced - set(names))
    if missing or not names:
        found = ", ".join(map(str, asked.headers))
        print(f"asked to replace {', '.join(missing)}; not declared in {found}", file=sys.stderr)
        return 1
    asked.output.with_suffix(".S").write_text(write_assembly(asked.machine, names, replaced))
    asked.output.with_suffix(".c").write_text(write_table(names))
    asked.output.with_suffix(".map").write_text(write_version_script(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
