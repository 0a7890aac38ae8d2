/* dlsym in both versions. RTLD_DEFAULT (0) and RTLD_NEXT (-1) look from the caller's place in the search order, which
 * the real dlsym reads from the return address: it is jumped to, so that it still sees the caller's. No substitution
 * is due there: the shims are preloaded, so the first name found is theirs. */
    .text
    .hidden preload_real_dlsym
    .hidden preload_find_dlsym
    .hidden preload_dlsym
    .globl preload_dlsym_first
    .globl preload_dlsym_newest
#if defined(__x86_64__)
    .symver preload_dlsym_first, dlsym@GLIBC_2.2.5
    .symver preload_dlsym_newest, dlsym@@GLIBC_2.34
    .type preload_dlsym_first, @function
    .type preload_dlsym_newest, @function
preload_dlsym_first:
preload_dlsym_newest:
    .cfi_startproc
    endbr64
1:  movq preload_real_dlsym(%rip), %rax
    testq %rax, %rax
    jz 3f
    leaq 1(%rdi), %rcx
    cmpq $1, %rcx
    ja 2f
    jmp *%rax
2:  movq (%rsp), %rdx
    jmp preload_dlsym
3:  pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call preload_find_dlsym
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp 1b
    .cfi_endproc
#elif defined(__aarch64__)
    .symver preload_dlsym_first, dlsym@GLIBC_2.17
    .symver preload_dlsym_newest, dlsym@@GLIBC_2.34
    .type preload_dlsym_first, %function
    .type preload_dlsym_newest, %function
preload_dlsym_first:
preload_dlsym_newest:
    .cfi_startproc
    hint #34
1:  adrp x16, preload_real_dlsym
    ldr x16, [x16, :lo12:preload_real_dlsym]
    cbz x16, 3f
    add x17, x0, #1
    cmp x17, #1
    b.hi 2f
    br x16
2:  mov x2, x30
    b preload_dlsym
3:  stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    mov x29, sp
    stp x0, x1, [sp, #16]
    bl preload_find_dlsym
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    b 1b
    .cfi_endproc
#endif
    .size preload_dlsym_first, . - preload_dlsym_first
    .size preload_dlsym_newest, . - preload_dlsym_newest
    .section .note.GNU-stack, "", %progbits
