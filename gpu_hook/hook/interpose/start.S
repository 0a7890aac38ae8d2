/* Where aliquot-kernel-start begins. The C runtime's own start file asks for the version of __libc_start_main that
 * glibc 2.34 brought; this one asks for the first. It runs no constructors, and the program has none. */
    .text
    .globl _start
    .hidden main
#if defined(__x86_64__)
    .symver __libc_start_main, __libc_start_main@GLIBC_2.2.5
    .type _start, @function
_start:
    .cfi_startproc
    .cfi_undefined rip
    endbr64
    xorl %ebp, %ebp
    movq %rdx, %r9   /* the loader's exit function */
    popq %rsi        /* argc */
    movq %rsp, %rdx  /* argv */
    andq $-16, %rsp
    pushq %rax
    pushq %rsp       /* end of the stack */
    xorl %r8d, %r8d  /* no fini */
    xorl %ecx, %ecx  /* no init */
    leaq main(%rip), %rdi
    call *__libc_start_main@GOTPCREL(%rip)
    hlt
    .cfi_endproc
#elif defined(__aarch64__)
    .symver __libc_start_main, __libc_start_main@GLIBC_2.17
    .type _start, %function
_start:
    .cfi_startproc
    .cfi_undefined x30
    hint #34
    mov x29, #0
    mov x30, #0
    mov x5, x0       /* the loader's exit function */
    ldr x1, [sp]     /* argc */
    add x2, sp, #8   /* argv */
    mov x6, sp       /* end of the stack */
    adrp x0, main
    add x0, x0, :lo12:main
    mov x3, #0       /* no init */
    mov x4, #0       /* no fini */
    bl __libc_start_main
    brk #0
    .cfi_endproc
#endif
    .size _start, . - _start
    .section .note.GNU-stack, "", %progbits
