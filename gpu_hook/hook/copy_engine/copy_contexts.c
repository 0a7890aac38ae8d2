#include "copy_engine/copy_contexts.h"

#include "contexts/contexts.h"
#include "base/log.h"

#include <string.h>

static struct copy_context state[ALIQUOT_MAX_DEVICES]; /* by device */

int copy_contexts_find(const struct copy_contexts *contexts, int device)
{
    for (unsigned i = 0; i < contexts->count; i++)
        if (contexts->rows[i]->device == device)
            return (int)i;
    return -1;
}

static void set_context(struct copy_context *row, CUcontext context)
{
    __atomic_store_n(&row->context, context, __ATOMIC_RELEASE);
}

static CUresult open_one(struct copy_context *row, int device)
{
    if (row->context)
        return CUDA_SUCCESS;
    CUcontext context = contexts_find(device);
    CUresult result = CUDA_SUCCESS;
    row->device = device;
    row->is_borrowed = !context;
    if (!context)
        result = driver()->cuDevicePrimaryCtxRetain(&context, device);
    if (result == CUDA_SUCCESS)
        set_context(row, context);
    return result;
}

CUresult copy_contexts_open(struct copy_contexts *contexts, const struct extent *extents,
                            size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int device = extents[i].device;
        if (copy_contexts_find(contexts, device) >= 0)
            continue;
        if (device < 0 || device >= (int)ALIQUOT_MAX_DEVICES ||
            contexts->count == ALIQUOT_MAX_DEVICES)
            return CUDA_ERROR_INVALID_DEVICE;
        CUresult result = open_one(&state[device], device);
        if (result != CUDA_SUCCESS)
            return result;
        contexts->rows[contexts->count++] = &state[device];
    }
    return CUDA_SUCCESS;
}

/* With its context current. */
static CUresult fill(struct copy_context *row, unsigned streams, unsigned events)
{
    const unsigned int flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
    CUresult result = CUDA_SUCCESS;
    streams = streams < COPY_CONTEXT_STREAMS_MAX ? streams : COPY_CONTEXT_STREAMS_MAX;
    events = events < COPY_CONTEXT_EVENTS_MAX ? events : COPY_CONTEXT_EVENTS_MAX;
    while (row->stream_count < streams && result == CUDA_SUCCESS) {
        result = driver()->cuStreamCreate(&row->streams[row->stream_count], CU_STREAM_NON_BLOCKING);
        row->stream_count += result == CUDA_SUCCESS;
    }
    while (row->event_count < events && result == CUDA_SUCCESS) {
        result = driver()->cuEventCreate(&row->events[row->event_count], flags);
        row->event_count += result == CUDA_SUCCESS;
    }
    return result;
}

CUresult copy_contexts_fill(struct copy_contexts *contexts, unsigned streams, unsigned events)
{
    contexts->event_count = COPY_CONTEXT_EVENTS_MAX;
    for (unsigned i = 0; i < contexts->count; i++) {
        struct copy_context *row = contexts->rows[i];
        CUresult result = driver()->cuCtxSetCurrent(row->context);
        if (result == CUDA_SUCCESS)
            result = fill(row, streams, events);
        if (result != CUDA_SUCCESS && (!row->stream_count || !row->event_count))
            return result;
        if (result != CUDA_SUCCESS)
            LOG("event=few_copy_resources device=%d streams=%u events=%u code=%d", row->device,
                row->stream_count, row->event_count, (int)result);
        if (contexts->event_count > row->event_count)
            contexts->event_count = row->event_count;
    }
    return CUDA_SUCCESS;
}

CUresult copy_contexts_wait(const struct copy_contexts *contexts)
{
    CUresult first = CUDA_SUCCESS;
    for (unsigned i = 0; i < contexts->count; i++) {
        const struct copy_context *row = contexts->rows[i];
        CUresult result = driver()->cuCtxSetCurrent(row->context);
        for (unsigned j = 0; j < row->stream_count; j++) {
            CUresult waited = driver()->cuStreamSynchronize(row->streams[j]);
            result = result != CUDA_SUCCESS ? result : waited;
        }
        first = first != CUDA_SUCCESS ? first : result;
    }
    return first;
}

static void forget(struct copy_context *row)
{
    set_context(row, NULL);
    row->stream_count = row->event_count = 0;
    row->is_borrowed = false;
}

/* With its context current. */
static void destroy(struct copy_context *row)
{
    for (unsigned i = 0; i < row->event_count; i++)
        driver()->cuEventDestroy_v2(row->events[i]);
    for (unsigned i = 0; i < row->stream_count; i++)
        driver()->cuStreamDestroy_v2(row->streams[i]);
    forget(row);
}

void copy_contexts_close(struct copy_contexts *contexts)
{
    for (unsigned i = 0; i < contexts->count; i++) {
        struct copy_context *row = contexts->rows[i];
        bool is_borrowed = row->is_borrowed;
        if (!is_borrowed && row->stream_count && row->event_count)
            continue;
        driver()->cuCtxSetCurrent(row->context);
        destroy(row);
        if (is_borrowed)
            driver()->cuDevicePrimaryCtxRelease_v2(row->device);
    }
    contexts->count = 0;
}

bool copy_contexts_are_prepared(int device)
{
    return __atomic_load_n(&state[device].context, __ATOMIC_ACQUIRE) != NULL;
}

CUresult copy_contexts_prepare(int device, CUcontext context, unsigned streams, unsigned events)
{
    struct copy_context *row = &state[device];
    if (row->context)
        return CUDA_SUCCESS;
    row->device = device;
    CUresult result = fill(row, streams, events);
    if (result == CUDA_SUCCESS)
        set_context(row, context);
    else
        destroy(row);
    return result;
}

void copy_contexts_forget_context(CUcontext context)
{
    for (unsigned i = 0; i < ALIQUOT_MAX_DEVICES; i++)
        if (context && state[i].context == context)
            forget(&state[i]);
}

void copy_contexts_reset(void)
{
    memset(state, 0, sizeof state);
}
