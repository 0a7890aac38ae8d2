/* Options of the compiler and the linker. None changes what happens here; some are places for what they would say. */
#ifndef SOFTGPU_JIT_OPTIONS_H
#define SOFTGPU_JIT_OPTIONS_H

#include <cuda.h>

/* Answers the options that ask for something: empty logs, no time. */
void jit_options_say_nothing(unsigned count, const CUjit_option *options, void **values);

#endif
