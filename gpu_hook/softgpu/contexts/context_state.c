/* The properties of a context that a program can ask for or change. */
#include "driver/contexts.h"

#include "queue/captures.h"
#include "driver/driver.h"
#include "driver/handles.h"
#include "implemented.h"
#include "queue/streams.h"

/* NULL asks for the calling thread's context. */
static CUresult resolve(CUcontext ctx, struct context **context)
{
    if (ctx == NULL)
        return context_current(context);
    CUresult result = context_check((struct context *)ctx);
    if (result == CUDA_SUCCESS) /* a handle that is not live may point anywhere */
        *context = ((struct context *)ctx)->behind ? ((struct context *)ctx)->behind : (struct context *)ctx;
    return result;
}

CUresult impl_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    struct context *context = ctx ? (struct context *)ctx : context_current_or_null();
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (ctx ? !context_is_live(context) : !handles_has(HANDLE_CONTEXT, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxGetDevice(CUdevice *device)
{
    return impl_cuCtxGetDevice_v2(device, NULL);
}

CUresult impl_cuCtxSynchronize_v2(CUcontext ctx)
{
    struct context *context;
    CUresult result = resolve(ctx, &context);
    if (result == CUDA_SUCCESS && capture_is_on())
        result = captures->check_context(context);
    if (result)
        return result;
    result = streams_drain(context);
    streams_tell_wait();
    return result;
}

CUresult impl_cuCtxSynchronize(void)
{
    return impl_cuCtxSynchronize_v2(NULL);
}

CUresult impl_cuCtxGetFlags(unsigned int *flags)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || flags == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxSetFlags(unsigned int flags)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    struct context *context;
    CUresult result = resolve(ctx, &context);
    if (result || ctxId == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *ctxId = context->id;
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    struct context *context;
    CUresult result = resolve(ctx, &context);
    if (result || version == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *version = 3020; /* the version of the context API, not of the driver */
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || pvalue == NULL || (unsigned)limit >= CU_LIMIT_MAX)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *pvalue = context->limits[limit];
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || (unsigned)limit >= CU_LIMIT_MAX)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result)
        return result;
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = STREAM_HIGHEST_PRIORITY;
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || pconfig == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *pconfig = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxSetCacheConfig(CUfunc_cache config)
{
    struct context *context;
    CUresult result = context_current(&context);
    return result || (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuCtxResetPersistingL2Cache(void)
{
    struct context *context;
    return context_current(&context);
}

/* As on every GPU that still runs: banks are four bytes wide, and a wish for others changes
 * nothing. */
CUresult impl_cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || pConfig == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result)
        return result;
    return (unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether a profiler listens or not, these succeed. */
CUresult impl_cuProfilerStart(void)
{
    struct context *context;
    return context_current(&context);
}

CUresult impl_cuProfilerStop(void)
{
    struct context *context;
    return context_current(&context);
}
