/* Linear device memory: calls that allocate and free at once. */
#include <stdlib.h>

#include "queue/captures.h"
#include "driver/driver.h"
#include "graphs/graph_memory.h"
#include "driver/handles.h"
#include "implemented.h"
#include "managed/managed.h"
#include "pools/pools.h"
#include "queue/streams.h"
#include "memory/window.h"

#define PITCH_UNIT 512u

/* Memory that pools hold unused, or will hold when streams reach frees, is not lost to others. */
static CUresult allocate(struct context *context, size_t bytes, uint64_t *address)
{
    CUresult result = window_allocate(context, bytes, address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY &&
        pools_make_room(context->physical))
        result = window_allocate(context, bytes, address);
    return result;
}

CUresult impl_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    struct context *context;
    CUresult result = context_current(&context);
    result = result ? result : capture_check_unsafe();
    if (result || dptr == NULL || bytesize == 0)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    uint64_t address;
    result = allocate(context, bytesize, &address);
    if (result == CUDA_SUCCESS)
        *dptr = address;
    return result;
}

CUresult impl_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                                 unsigned int ElementSizeBytes)
{
    if (pPitch == NULL || WidthInBytes == 0 || Height == 0 || WidthInBytes > 1ull << 40)
        return CUDA_ERROR_INVALID_VALUE;
    if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
        return CUDA_ERROR_INVALID_VALUE;
    size_t pitch = (WidthInBytes + PITCH_UNIT - 1) / PITCH_UNIT * PITCH_UNIT, bytes;
    if (__builtin_mul_overflow(pitch, Height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = impl_cuMemAlloc_v2(dptr, bytes);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    return result;
}

/* As on hardware, a free waits for the work that may still use the memory, unless a pool owns it.
 * Memory of a context that an error has broken goes with the context. */
CUresult impl_cuMemFree_v2(CUdeviceptr dptr)
{
    struct context *context;
    CUresult result = context_current(&context);
    result = result ? result : capture_check_unsafe();
    struct allocation found;
    if (result)
        return result;
    if (dptr == 0)
        return CUDA_SUCCESS;
    struct managed_range managed;
    if (managed_find(dptr, &managed) == 0) {
        result = streams_drain(managed.context);
        return result ? result : managed_free(dptr) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (window_find(dptr, &found) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (found.kind == ALLOCATION_GRAPH) {
        result = streams_drain(context);
        return result ? result : graph_memory_free_now(dptr);
    }
    if (found.start != dptr || found.is_dying)
        return CUDA_ERROR_INVALID_VALUE;
    if (found.pool) /* an imported one's too */
        return pool_free_now(dptr) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (found.kind != ALLOCATION_PLAIN)
        return CUDA_ERROR_INVALID_VALUE;
    result = streams_drain(found.context);
    return result ? result : window_free(dptr) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct context *context;
    CUresult result = context_current(&context);
    struct allocation found;
    if (result)
        return result;
    struct managed_range managed;
    if (managed_find(dptr, &managed) == 0)
        found = (struct allocation){.start = managed.start, .bytes = managed.bytes};
    else if (window_find(dptr, &found) != 0)
        return CUDA_ERROR_NOT_FOUND;
    if (pbase)
        *pbase = found.start;
    if (psize)
        *psize = found.bytes;
    return CUDA_SUCCESS;
}
