/* Options of the compiler and the linker. None changes what happens here; some name places for
 * output. */
#ifndef SOFTGPU_JIT_OPTIONS_H
#define SOFTGPU_JIT_OPTIONS_H

#include <cuda.h>

/* Writes empty logs and a time of 0 where options ask for output. */
void jit_options_say_nothing(unsigned count, const CUjit_option *options, void **values);

#endif
