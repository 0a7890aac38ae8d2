/* The life of contexts, for the rest of the library. */
#ifndef SOFTGPU_CONTEXT_LIVES_H
#define SOFTGPU_CONTEXT_LIVES_H

#include "driver/contexts.h"

/* Sets what each later context takes of its device, in addition to what programs allocate in it. */
void contexts_set_footprint(uint64_t bytes);
CUresult context_retain_primary(CUdevice device, struct context **context);

#endif
