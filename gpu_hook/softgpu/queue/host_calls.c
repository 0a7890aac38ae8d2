/* Host functions and callbacks: the user's code, run by a stream's worker in the order of the
 * stream. */
#include "implemented.h"
#include "device/machine.h"
#include "queue/captures.h"
#include "queue/streams.h"
#include "queue/work_items.h"

struct host_call {
    CUhostFn function;
    CUstreamCallback callback;
    void *data;
    CUstream handle;
};

static CUresult run_host_call(struct work_item *work, uint64_t *clock)
{
    struct host_call *call = (struct host_call *)work->payload;
    if (call->function)
        call->function(call->data);
    else
        call->callback(call->handle, CUDA_SUCCESS, call->data);
    uint64_t now = machine_now();
    if (now > *clock)
        *clock = now;
    return CUDA_SUCCESS;
}

static struct work_item *work_of(struct host_call call)
{
    struct work_item *work = work_new(run_host_call, sizeof call);
    if (work)
        *(struct host_call *)work->payload = call;
    return work;
}

struct work_item *work_of_host_call(CUhostFn function, void *data)
{
    return work_of((struct host_call){.function = function, .data = data});
}

static CUresult enqueue(CUstream handle, struct host_call call)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(handle, &stream, &context);
    if (result)
        return result;
    if (capture_takes(stream, &result))
        return call.function ? captures->host_call(stream, call.function, call.data) : captures->refuse(stream);
    result = result ? result : stream_await_room(stream);
    if (result)
        return result;
    struct work_item *work = work_of(call);
    return work ? stream_enqueue(stream, work) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult impl_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    return fn ? enqueue(hStream, (struct host_call){.function = fn, .data = userData}) : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
    if (callback == NULL || flags)
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue(hStream, (struct host_call){.callback = callback, .data = userData, .handle = hStream});
}
