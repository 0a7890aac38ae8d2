#include "copy_engine/copy_contexts.h"

#include "contexts/contexts.h"
#include "base/log.h"

#include <string.h>

static struct lane state[ALIQUOT_MAX_DEVICES]; /* by device */

int lanes_find(const struct lanes *lanes, int device)
{
    for (unsigned i = 0; i < lanes->count; i++)
        if (lanes->rows[i]->device == device)
            return (int)i;
    return -1;
}

static void set_context(struct lane *lane, CUcontext context)
{
    __atomic_store_n(&lane->context, context, __ATOMIC_RELEASE);
}

static CUresult open_one(struct lane *lane, int device)
{
    if (lane->context)
        return CUDA_SUCCESS;
    CUcontext context = contexts_find(device);
    CUresult result = CUDA_SUCCESS;
    lane->device = device;
    lane->is_borrowed = !context;
    if (!context)
        result = driver()->cuDevicePrimaryCtxRetain(&context, device);
    if (result == CUDA_SUCCESS)
        set_context(lane, context);
    return result;
}

CUresult lanes_open(struct lanes *lanes, const struct piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int device = pieces[i].device;
        if (lanes_find(lanes, device) >= 0)
            continue;
        if (device < 0 || device >= (int)ALIQUOT_MAX_DEVICES || lanes->count == ALIQUOT_MAX_DEVICES)
            return CUDA_ERROR_INVALID_DEVICE;
        CUresult result = open_one(&state[device], device);
        if (result != CUDA_SUCCESS)
            return result;
        lanes->rows[lanes->count++] = &state[device];
    }
    return CUDA_SUCCESS;
}

/* With its context current. */
static CUresult fill(struct lane *lane, unsigned streams, unsigned events)
{
    const unsigned int flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
    CUresult result = CUDA_SUCCESS;
    streams = streams < LANE_STREAMS_MAX ? streams : LANE_STREAMS_MAX;
    events = events < LANE_EVENTS_MAX ? events : LANE_EVENTS_MAX;
    while (lane->stream_count < streams && result == CUDA_SUCCESS) {
        result = driver()->cuStreamCreate(&lane->streams[lane->stream_count], CU_STREAM_NON_BLOCKING);
        lane->stream_count += result == CUDA_SUCCESS;
    }
    while (lane->event_count < events && result == CUDA_SUCCESS) {
        result = driver()->cuEventCreate(&lane->events[lane->event_count], flags);
        lane->event_count += result == CUDA_SUCCESS;
    }
    return result;
}

CUresult lanes_fill(struct lanes *lanes, unsigned streams, unsigned events)
{
    lanes->event_count = LANE_EVENTS_MAX;
    for (unsigned i = 0; i < lanes->count; i++) {
        struct lane *lane = lanes->rows[i];
        CUresult result = driver()->cuCtxSetCurrent(lane->context);
        if (result == CUDA_SUCCESS)
            result = fill(lane, streams, events);
        if (result != CUDA_SUCCESS && (!lane->stream_count || !lane->event_count))
            return result;
        if (result != CUDA_SUCCESS)
            LOG("event=few_copy_resources device=%d streams=%u events=%u code=%d", lane->device, lane->stream_count,
                lane->event_count, (int)result);
        if (lanes->event_count > lane->event_count)
            lanes->event_count = lane->event_count;
    }
    return CUDA_SUCCESS;
}

CUresult lanes_wait(const struct lanes *lanes)
{
    CUresult first = CUDA_SUCCESS;
    for (unsigned i = 0; i < lanes->count; i++) {
        const struct lane *lane = lanes->rows[i];
        CUresult result = driver()->cuCtxSetCurrent(lane->context);
        for (unsigned j = 0; j < lane->stream_count; j++) {
            CUresult waited = driver()->cuStreamSynchronize(lane->streams[j]);
            result = result != CUDA_SUCCESS ? result : waited;
        }
        first = first != CUDA_SUCCESS ? first : result;
    }
    return first;
}

static void forget(struct lane *lane)
{
    set_context(lane, NULL);
    lane->stream_count = lane->event_count = 0;
    lane->is_borrowed = false;
}

/* With its context current. */
static void destroy(struct lane *lane)
{
    for (unsigned i = 0; i < lane->event_count; i++)
        driver()->cuEventDestroy_v2(lane->events[i]);
    for (unsigned i = 0; i < lane->stream_count; i++)
        driver()->cuStreamDestroy_v2(lane->streams[i]);
    forget(lane);
}

void lanes_close(struct lanes *lanes)
{
    for (unsigned i = 0; i < lanes->count; i++) {
        struct lane *lane = lanes->rows[i];
        bool is_borrowed = lane->is_borrowed;
        if (!is_borrowed && lane->stream_count && lane->event_count)
            continue;
        driver()->cuCtxSetCurrent(lane->context);
        destroy(lane);
        if (is_borrowed)
            driver()->cuDevicePrimaryCtxRelease_v2(lane->device);
    }
    lanes->count = 0;
}

bool lanes_are_prepared(int device)
{
    return __atomic_load_n(&state[device].context, __ATOMIC_ACQUIRE) != NULL;
}

CUresult lanes_prepare(int device, CUcontext context, unsigned streams, unsigned events)
{
    struct lane *lane = &state[device];
    if (lane->context)
        return CUDA_SUCCESS;
    lane->device = device;
    CUresult result = fill(lane, streams, events);
    if (result == CUDA_SUCCESS)
        set_context(lane, context);
    else
        destroy(lane);
    return result;
}

void lanes_forget_context(CUcontext context)
{
    for (unsigned i = 0; i < ALIQUOT_MAX_DEVICES; i++)
        if (context && state[i].context == context)
            forget(&state[i]);
}

void lanes_reset(void)
{
    memset(state, 0, sizeof state);
}
