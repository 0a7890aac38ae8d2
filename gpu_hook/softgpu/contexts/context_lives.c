/* The life of contexts: the primary one of each device, and created ones. A context that ends takes
 * what it owns with it. */
#include "contexts/context_lives.h"

#include <stdlib.h>
#include <string.h>

#include "arrays/arrays.h"
#include "device/slots.h"
#include "driver/driver.h"
#include "driver/handles.h"
#include "driver/resources.h"
#include "graphs/graph_memory.h"
#include "implemented.h"
#include "managed/managed.h"
#include "memory/ipc_memory.h"
#include "memory/window.h"
#include "modules/modules.h"
#include "pools/pools.h"
#include "queue/streams.h"

static struct {
    pthread_mutex_t mutex; /* guards the primary contexts' counts and the table */
    struct context *primary[MACHINE_DEVICES];
    unsigned primary_flags[MACHINE_DEVICES];
    int primary_retains[MACHINE_DEVICES]; /* a reset leaves them */
    uint64_t footprint_bytes; /* set once, before the first context */
} contexts = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void contexts_set_footprint(uint64_t bytes)
{
    contexts.footprint_bytes = bytes;
}

/* Counts a context on the device, and takes the memory that it has there. */
static CUresult enter_device(unsigned physical)
{
    if (slots_add_context(&driver.attachment, physical) != 0)
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (contexts.footprint_bytes && slots_charge(&driver.attachment, physical, contexts.footprint_bytes) != 0) {
        slots_drop_context(&driver.attachment, physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static void leave_device(unsigned physical)
{
    if (contexts.footprint_bytes)
        slots_refund(&driver.attachment, physical, contexts.footprint_bytes);
    slots_drop_context(&driver.attachment, physical);
}

static CUresult context_open(CUdevice device, unsigned flags, int is_primary, struct context **made)
{
    static const size_t limits[CU_LIMIT_MAX] = {[CU_LIMIT_STACK_SIZE] = 1024, [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
                                                [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20};
    unsigned physical = driver.physical[device];
    CUresult result = enter_device(physical);
    if (result != CUDA_SUCCESS)
        return result;
    struct context *context = calloc(1, sizeof *context);
    if (context == NULL || handles_add(HANDLE_CONTEXT, context) != 0) {
        leave_device(physical);
        free(context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->device = device;
    context->physical = physical;
    context->flags = flags;
    context->is_primary = is_primary;
    context->id = context_new_id();
    memcpy(context->limits, limits, sizeof limits);
    context->legacy = stream_open(context, STREAM_LEGACY, 0, 0);
    if (context->legacy == NULL) {
        handles_remove(HANDLE_CONTEXT, context);
        leave_device(physical);
        free(context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = context;
    return CUDA_SUCCESS;
}

static void context_close(struct context *context)
{
    atomic_store_explicit(&context->is_closed, 1, memory_order_release);
    handles_remove(HANDLE_CONTEXT, context);
    streams_close_all(context);
    modules_close_all(context);
    arrays_close_all(context);
    ipc_forget_context(context);
    window_free_context(context);
    managed_free_context(context);
    resources_give_all(context);
    leave_device(context->physical);
    /* these belong to no context, but to what a device holds in this process */
    if (context->is_primary) {
        pools_close_device(context->physical);
        graph_memory_close_device(context->physical);
    }
    /* The struct stays: other threads may have it on their stacks, and compare it. It is a few
     * hundred bytes. */
}

CUresult context_retain_primary(CUdevice device, struct context **context)
{
    if (driver_is_lost(device))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&contexts.mutex);
    struct context **primary = &contexts.primary[device];
    if (*primary == NULL)
        result = context_open(device, contexts.primary_flags[device], 1, primary);
    if (result == CUDA_SUCCESS)
        contexts.primary_retains[device]++;
    *context = *primary;
    pthread_mutex_unlock(&contexts.mutex);
    return result;
}

/* Takes a retain back, or with `is_reset` none, and closes the context at the last or a reset. */
static CUresult drop_primary(CUdevice device, int is_reset)
{
    CUresult result = driver_check_device(device);
    if (result != CUDA_SUCCESS)
        return result;
    struct context *closed = NULL;
    pthread_mutex_lock(&contexts.mutex);
    int *retains = &contexts.primary_retains[device];
    if (!is_reset && *retains == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (is_reset || --*retains == 0) {
        closed = contexts.primary[device];
        contexts.primary[device] = NULL;
    }
    pthread_mutex_unlock(&contexts.mutex);
    if (closed)
        context_close(closed);
    return result;
}

CUresult impl_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    if (pctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return result ? result : context_retain_primary(dev, (struct context **)pctx);
}

CUresult impl_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    return drop_primary(dev, 0);
}

CUresult impl_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    return drop_primary(dev, 1);
}

CUresult impl_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    CUresult result = driver_check_device(dev);
    if (result || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&contexts.mutex);
    contexts.primary_flags[dev] = flags;
    if (contexts.primary[dev])
        contexts.primary[dev]->flags = flags;
    pthread_mutex_unlock(&contexts.mutex);
    return CUDA_SUCCESS;
}

CUresult impl_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    CUresult result = driver_check_device(dev);
    if (result)
        return result;
    pthread_mutex_lock(&contexts.mutex);
    if (flags)
        *flags = contexts.primary_flags[dev];
    if (active)
        *active = contexts.primary[dev] != NULL;
    pthread_mutex_unlock(&contexts.mutex);
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *pctx, unsigned flags, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    if (pctx == NULL || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && driver_is_lost(dev))
        result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    struct context *context;
    if (result == CUDA_SUCCESS && contexts_is_stack_full())
        result = CUDA_ERROR_OUT_OF_MEMORY;
    result = result ? result : context_open(dev, flags, 0, &context);
    result = result ? result : context_push(context);
    if (result == CUDA_SUCCESS)
        *pctx = (CUcontext)context;
    return result;
}

CUresult impl_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    return create(pctx, flags, dev);
}

CUresult impl_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                             CUdevice dev)
{
    return numParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(pctx, flags, dev);
}

CUresult impl_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
    int is_plain =
        ctxCreateParams == NULL || (ctxCreateParams->numExecAffinityParams == 0 && !ctxCreateParams->cigParams);
    return is_plain ? create(pctx, flags, dev) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult impl_cuCtxDestroy_v2(CUcontext ctx)
{
    struct context *context = (struct context *)ctx;
    if (!context_is_live(context) || context->is_primary || !handles_remove(HANDLE_CONTEXT, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    context_pop_if_current(context);
    context_close(context);
    return CUDA_SUCCESS;
}

CUresult impl_cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || pctx == NULL || flags)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_add(&context->attachments, 1);
    *pctx = (CUcontext)context;
    return CUDA_SUCCESS;
}

/* The last use takes the context with it. */
CUresult impl_cuCtxDetach(CUcontext ctx)
{
    struct context *context = (struct context *)ctx;
    if (!context_is_live(context) || context_current_or_null() != context)
        return CUDA_ERROR_INVALID_CONTEXT;
    unsigned attachments = atomic_load(&context->attachments);
    while (attachments)
        if (atomic_compare_exchange_weak(&context->attachments, &attachments, attachments - 1))
            return CUDA_SUCCESS;
    return impl_cuCtxDestroy_v2(ctx);
}
