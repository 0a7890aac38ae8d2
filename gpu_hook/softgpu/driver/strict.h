/* ALIQUOT_SOFTGPU_STRICT: the software GPU ends the process by abort(), with a line on stderr, where it otherwise forgives
 * what a real driver is free to crash at. */
#ifndef SOFTGPU_STRICT_H
#define SOFTGPU_STRICT_H

#include <cuda.h>

/* At cuInit, where the setting is on. */
void strict_begin(void);

/* A handle of a context that has ended, or never was, is named in a call. */
void strict_on_dead_context(const void *context);

#endif
