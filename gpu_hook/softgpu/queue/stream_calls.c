/* The stream functions of the driver API, and the meaning of a stream handle. */
#include <stdlib.h>
#include <string.h>

#include "queue/captures.h"
#include "driver/driver.h"
#include "driver/enter.h"
#include "driver/green.h"
#include "driver/handles.h"
#include "implemented.h"
#include "driver/resources.h"
#include "queue/streams.h"

/* A thread's own default streams: the latest context's is enough, others are found again by their
 * handle. */
static __thread struct {
    struct context *context;
    unsigned long long context_id;
    stream_note stream;
} own;

static struct {
    pthread_once_t once;
    pthread_key_t key; /* its destructor closes the stream of a thread that ends */
} threads = {.once = PTHREAD_ONCE_INIT};

static void close_at_thread_end(void *stream)
{
    /* A forked child's copy of the queues may be in any state. */
    if (!(atomic_load(&enter_watch) & WATCH_FORKED))
        stream_close_kept(&own.stream);
}

static void make_key(void)
{
    pthread_key_create(&threads.key, close_at_thread_end);
}

static struct stream *own_stream(struct context *context)
{
    struct stream *kept = atomic_load(&own.stream);
    if (kept && own.context == context && own.context_id == context->id)
        return kept;
    pthread_once(&threads.once, make_key);
    stream_close_kept(&own.stream);
    own.context = context;
    own.context_id = context->id;
    kept = stream_open(context, STREAM_BLOCKING, 0, 1);
    if (kept) {
        stream_keep(kept, &own.stream);
        pthread_setspecific(threads.key, kept);
    }
    return kept;
}

CUresult stream_resolve(CUstream handle, struct stream **stream, struct context **context)
{
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        CUresult result = context_current(context);
        if (result)
            return result;
        int is_own = handle == CU_STREAM_PER_THREAD || (handle == NULL && enter_per_thread);
        *stream = is_own ? own_stream(*context) : (*context)->legacy;
        return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!handles_has(HANDLE_STREAM, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    *stream = (struct stream *)handle;
    *context = (*stream)->context;
    CUresult result = context_check(*context);
    return result ? result : green_check((*stream)->green);
}

CUresult stream_check(CUstream handle)
{
    struct stream *stream;
    struct context *context;
    return stream_resolve(handle, &stream, &context);
}

CUresult impl_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || phStream == NULL || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (priority > 0)
        priority = 0;
    if (priority < STREAM_HIGHEST_PRIORITY)
        priority = STREAM_HIGHEST_PRIORITY;
    enum stream_kind kind = flags & CU_STREAM_NON_BLOCKING ? STREAM_NON_BLOCKING : STREAM_BLOCKING;
    struct stream *stream = resource_take(context) == 0 ? stream_open(context, kind, priority, 1) : NULL;
    if (stream)
        stream->is_charged = 1;
    if (stream)
        stream->green = green_of_context(context_current_or_null());
    *phStream = (CUstream)stream;
    return stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult impl_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return impl_cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult impl_cuStreamDestroy_v2(CUstream hStream)
{
    if (!handles_has(HANDLE_STREAM, hStream))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = green_check(((struct stream *)hStream)->green);
    if (result || !handles_remove(HANDLE_STREAM, hStream))
        return result ? result : CUDA_ERROR_INVALID_HANDLE;
    struct stream *stream = (struct stream *)hStream;
    if (stream->is_charged)
        resource_give(stream->context);
    stream_close(stream);
    return CUDA_SUCCESS;
}

CUresult impl_cuStreamSynchronize(CUstream hStream)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result == CUDA_SUCCESS && capture_is_on())
        result = captures->check_stream(stream);
    if (result)
        return result;
    /* The end of the legacy stream comes after the work of all blocking streams, as an operation on
     * it would. */
    result = stream->kind == STREAM_LEGACY ? streams_drain_blocking(context) : stream_drain(stream);
    streams_tell_wait();
    return result;
}

CUresult impl_cuStreamQuery(CUstream hStream)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result == CUDA_SUCCESS && capture_is_on())
        result = captures->check_stream(stream);
    if (result)
        return result;
    struct work_item *last = stream_last(stream);
    int is_done = last == NULL || work_is_done(last, NULL);
    work_drop(last);
    return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult impl_cuStreamGetPriority(CUstream hStream, int *priority)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || priority == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult impl_cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || flags == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *flags = stream->kind == STREAM_NON_BLOCKING ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    return CUDA_SUCCESS;
}

CUresult impl_cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || streamId == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *streamId = stream->id;
    return CUDA_SUCCESS;
}

CUresult impl_cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || device == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult impl_cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || pctx == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    int is_special = stream->kind == STREAM_LEGACY || hStream == NULL || hStream == CU_STREAM_PER_THREAD;
    if (is_special)
        *pctx = (CUcontext)context_current_or_null();
    else
        *pctx = stream->green ? (CUcontext)&stream->green->face : (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult impl_cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || pCtx == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *pCtx = (CUcontext)context;
    if (pGreenCtx)
        *pGreenCtx = (CUgreenCtx)(stream->kind == STREAM_LEGACY ? green_of_context(context_current_or_null())
                                                                : stream->green);
    return CUDA_SUCCESS;
}
