/* ALIQUOT_SOFTGPU_STRICT: the software GPU aborts the process, with a line on stderr, at calls that
 * it otherwise forgives and at which a real driver may crash. */
#ifndef SOFTGPU_STRICT_H
#define SOFTGPU_STRICT_H

#include <cuda.h>

/* Called by cuInit where the setting is on. */
void strict_begin(void);

/* Called when a call names a context that has ended or never was. */
void strict_on_dead_context(const void *context);

#endif
