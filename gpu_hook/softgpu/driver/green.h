/* Green contexts: a part of a device's multiprocessors, and streams that run on it. Memory, modules
 * and events are the primary context's. Which multiprocessors they are is not modelled, only how
 * many. */
#ifndef SOFTGPU_GREEN_H
#define SOFTGPU_GREEN_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#include "driver/contexts.h"

/* The result of cuDevResourceGenerateDesc; a CUdevResourceDesc is a pointer to this. No call
 * destroys it. */
struct resource_desc {
    CUdevice device;
    CUdevResource resource;
};

/* A CUgreenCtx is a pointer to this. The struct outlives the green context, for streams may point
 * to it. The face has a handle of its own, at another address. */
struct green {
    CUdevResource resource;
    /* the result of cuCtxFromGreenCtx: stands for the primary context, with these
     * multiprocessors */
    struct context face;
    atomic_int is_destroyed;
};

/* All of a device's multiprocessors. */
CUdevResource green_whole_device(CUdevice device);
/* The green context that a context is the face of, or NULL. */
struct green *green_of_context(const struct context *context);
/* CONTEXT_IS_DESTROYED after the end of the stream's green context, else CUDA_SUCCESS. */
CUresult green_check(const struct green *green);
#endif
