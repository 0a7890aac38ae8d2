/* What the rest of the library does with the life of contexts. */
#ifndef SOFTGPU_CONTEXT_LIVES_H
#define SOFTGPU_CONTEXT_LIVES_H

#include "driver/contexts.h"

/* What each context takes of its device from then on, apart from what programs allocate in it. */
void contexts_set_footprint(uint64_t bytes);
CUresult context_retain_primary(CUdevice device, struct context **context);

#endif
