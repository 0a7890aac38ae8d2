/* The life of green contexts, and their streams. */
#include <stdlib.h>

#include "contexts/context_lives.h"
#include "driver/driver.h"
#include "driver/green.h"
#include "driver/handles.h"
#include "implemented.h"
#include "queue/streams.h"

/* NULL: of the calling thread's context. */
static CUresult resolve(CUgreenCtx handle, struct green **green)
{
    *green = handle ? (struct green *)handle : green_of_context(context_current_or_null());
    if (!handles_has(HANDLE_GREEN, *green))
        return CUDA_ERROR_INVALID_CONTEXT;
    return context_check(&(*green)->face);
}

static CUresult make(const struct resource_desc *desc, struct context *primary, struct green **made)
{
    struct green *green = calloc(1, sizeof *green);
    if (green == NULL || handles_add(HANDLE_GREEN, green) != 0) {
        free(green);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    green->resource = desc->resource;
    context_put_before(&green->face, primary, green);
    if (handles_add(HANDLE_CONTEXT, &green->face) != 0) {
        handles_remove(HANDLE_GREEN, green);
        free(green);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = green;
    return CUDA_SUCCESS;
}

CUresult impl_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
    const struct resource_desc *resources = (const struct resource_desc *)desc;
    struct context *primary;
    struct green *green;
    CUresult result = driver_check_device(dev);
    if (result)
        return result;
    if (phCtx == NULL || flags != CU_GREEN_CTX_DEFAULT_STREAM || !handles_has(HANDLE_RESOURCES, resources) ||
        resources->device != dev)
        return CUDA_ERROR_INVALID_VALUE;
    result = context_retain_primary(dev, &primary);
    if (result)
        return result;
    result = make(resources, primary, &green);
    if (result)
        impl_cuDevicePrimaryCtxRelease_v2(dev);
    else
        *phCtx = (CUgreenCtx)green;
    return result;
}

CUresult impl_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    struct green *green = (struct green *)hCtx;
    if (!handles_remove(HANDLE_GREEN, green))
        return CUDA_ERROR_INVALID_CONTEXT;
    handles_remove(HANDLE_CONTEXT, &green->face);
    atomic_store_explicit(&green->face.is_closed, 1, memory_order_release);
    atomic_store_explicit(&green->is_destroyed, 1, memory_order_release);
    impl_cuDevicePrimaryCtxRelease_v2(green->face.device);
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    struct green *green;
    if (pContext == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = hCtx ? resolve(hCtx, &green) : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        *pContext = (CUcontext)&green->face;
    return result;
}

CUresult impl_cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
    struct green *green;
    if (greenCtxId == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = resolve(greenCtx, &green);
    if (result == CUDA_SUCCESS)
        *greenCtxId = green->face.id;
    return result;
}

CUresult impl_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
    struct green *green;
    if (phStream == NULL || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = greenCtx ? resolve(greenCtx, &green) : CUDA_ERROR_INVALID_CONTEXT;
    if (result)
        return result;
    int clamped = priority > 0 ? 0 : priority < STREAM_HIGHEST_PRIORITY ? STREAM_HIGHEST_PRIORITY : priority;
    struct stream *stream = stream_open(green->face.behind, STREAM_NON_BLOCKING, clamped, 1);
    if (stream == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->green = green;
    *phStream = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUresult impl_cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || phCtx == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *phCtx = (CUgreenCtx)(stream->kind == STREAM_LEGACY ? green_of_context(context_current_or_null()) : stream->green);
    return CUDA_SUCCESS;
}
