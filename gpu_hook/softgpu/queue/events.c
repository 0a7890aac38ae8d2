/* Calls about events: records, waits, and the simulated time between two marks. */
#include "queue/events.h"

#include <stdlib.h>

#include "queue/captures.h"
#include "driver/handles.h"
#include "implemented.h"
#include "driver/resources.h"
#include "queue/work_items.h"

static int event_is_captured(struct event *event)
{
    return atomic_load_explicit(&event->captured, memory_order_relaxed) != NULL;
}

static struct {
    pthread_mutex_t mutex; /* guards every event's mark */
} events = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* A work item in a stream of its own, which goes with it: a record of another process holds up only
 * the streams that wait for it. Held; NULL without memory. */
static struct work_item *run_apart(struct context *context, struct work_item *work)
{
    struct stream *stream = work ? stream_open(context, STREAM_NON_BLOCKING, 0, 0) : NULL;
    if (stream == NULL) {
        work_drop(work);
        return NULL;
    }
    work_hold(work);
    CUresult result = stream_enqueue(stream, work);
    stream_close(stream);
    if (result)
        work_drop(work);
    return result ? NULL : work;
}

/* The latest mark, held; NULL when never recorded. */
struct work_item *event_hold_mark(struct event *event)
{
    uint64_t latest = event->share ? event_share_latest(event->share) : 0;
    pthread_mutex_lock(&events.mutex);
    struct work_item *mark = event->mark_number == latest ? event->mark : NULL;
    if (mark)
        work_hold(mark);
    pthread_mutex_unlock(&events.mutex);
    if (mark || latest == 0 || event_share_is_done(event->share, latest))
        return mark;
    return run_apart(event->context, event_share_await(event->share, latest));
}

static void set_mark(struct event *event, struct work_item *mark, uint64_t number)
{
    work_hold(mark);
    pthread_mutex_lock(&events.mutex);
    struct work_item *before = event->mark;
    event->mark = mark;
    event->mark_number = number;
    pthread_mutex_unlock(&events.mutex);
    work_drop(before);
}

void event_set_mark(struct event *event, struct work_item *mark)
{
    uint64_t number = event->share ? event_share_record(event->share) : 0;
    set_mark(event, mark, number);
    struct work_item *end = number ? event_share_end(event->share, number) : NULL;
    if (end && work_needs(end, mark) == 0)
        work_drop(run_apart(event->context, end));
}

CUresult event_record(struct event *event, struct stream *stream)
{
    uint64_t number = event->share ? event_share_record(event->share) : 0;
    struct work_item *mark = number ? event_share_end(event->share, number) : work_of_nothing();
    CUresult result = mark ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (mark) {
        work_hold(mark);
        result = stream_enqueue_short(stream, mark);
    }
    if (result == CUDA_SUCCESS)
        set_mark(event, mark, number);
    else if (number)
        event_share_give_up(event->share, number);
    work_drop(mark);
    return result;
}

struct event *event_new(struct context *context, unsigned flags, struct event_share *share)
{
    struct event *event = calloc(1, sizeof *event);
    if (event == NULL || handles_add(HANDLE_EVENT, event) != 0) {
        free(event);
        return NULL;
    }
    event->context = context;
    event->flags = flags;
    event->share = share;
    event->place.descriptor = -1;
    if (resource_take(context) != 0) {
        handles_remove(HANDLE_EVENT, event);
        free(event);
        return NULL;
    }
    return event;
}

CUresult impl_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    struct context *context;
    struct event_share *share = NULL;
    struct event_place place = {0, -1};
    CUresult result = context_current(&context);
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (result || phEvent == NULL || Flags & ~known)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (Flags & CU_EVENT_INTERPROCESS) {
        if (!(Flags & CU_EVENT_DISABLE_TIMING))
            return CUDA_ERROR_INVALID_VALUE;
        share = event_share_new(&place);
        if (share == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct event *event = event_new(context, Flags, share);
    if (event == NULL) {
        event_share_drop(share);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->place = place;
    *phEvent = (CUevent)event;
    return CUDA_SUCCESS;
}

CUresult impl_cuEventDestroy_v2(CUevent hEvent)
{
    if (!handles_remove(HANDLE_EVENT, hEvent))
        return CUDA_ERROR_INVALID_HANDLE;
    struct event *event = (struct event *)hEvent;
    captures->forget_event(event);
    work_drop(event->mark);
    event_share_drop(event->share);
    resource_give(event->context);
    free(event);
    return CUDA_SUCCESS;
}

CUresult impl_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result)
        return result;
    if (!handles_has(HANDLE_EVENT, hEvent))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    struct event *event = (struct event *)hEvent;
    if (event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (capture_takes(stream, &result))
        return flags ? captures->external_event(stream, hEvent, 0) : captures->event(stream, event);
    if (result || flags) /* external records are for captures alone */
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (event_is_captured(event))
        captures->forget_event(event);
    result = stream_await_room(stream);
    return result ? result : event_record(event, stream);
}

CUresult impl_cuEventRecord(CUevent hEvent, CUstream hStream)
{
    return impl_cuEventRecordWithFlags(hEvent, hStream, 0);
}

static CUresult check(CUevent handle)
{
    if (!handles_has(HANDLE_EVENT, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    struct event *event = (struct event *)handle;
    CUresult result = context_check(event->context);
    if (result == CUDA_SUCCESS && (capture_is_on() || event_is_captured(event)))
        result = captures->check_event(event);
    return result;
}

CUresult impl_cuEventQuery(CUevent hEvent)
{
    CUresult result = check(hEvent);
    if (result)
        return result;
    struct event *event = (struct event *)hEvent;
    if (event->share) {
        uint64_t latest = event_share_latest(event->share);
        return event_share_is_done(event->share, latest) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    }
    struct work_item *mark = event_hold_mark(event);
    int is_done = mark == NULL || work_is_done(mark, NULL);
    work_drop(mark);
    return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult impl_cuEventSynchronize(CUevent hEvent)
{
    CUresult result = check(hEvent);
    if (result)
        return result;
    struct event *event = (struct event *)hEvent;
    if (event->share)
        event_share_wait(event->share, event_share_latest(event->share));
    struct work_item *mark = event->share ? NULL : event_hold_mark(event);
    if (mark)
        work_wait(mark);
    work_drop(mark);
    streams_tell_wait();
    return context_check(((struct event *)hEvent)->context);
}

CUresult impl_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    uint64_t clocks[2];
    CUevent handles[2] = {hStart, hEnd};
    if (pMilliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 2; i++) {
        CUresult result = check(handles[i]);
        if (result)
            return result;
        struct event *event = (struct event *)handles[i];
        struct work_item *mark = event_hold_mark(event);
        int is_done = mark && work_is_done(mark, &clocks[i]);
        work_drop(mark);
        if (mark == NULL || event->flags & CU_EVENT_DISABLE_TIMING)
            return CUDA_ERROR_INVALID_HANDLE;
        if (!is_done)
            return CUDA_ERROR_NOT_READY;
    }
    *pMilliseconds = (float)(((double)clocks[1] - (double)clocks[0]) / 1e6);
    return CUDA_SUCCESS;
}

CUresult impl_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result)
        return result;
    if (!handles_has(HANDLE_EVENT, hEvent))
        return CUDA_ERROR_INVALID_HANDLE;
    if (Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    struct event *event = (struct event *)hEvent;
    if ((capture_is_on() || event_is_captured(event)) && captures->wait(stream, event, Flags, &result))
        return result;
    if (Flags) /* external waits are for captures alone */
        return CUDA_ERROR_INVALID_VALUE;
    result = stream_await_room(stream);
    if (result)
        return result;
    struct work_item *mark = event_hold_mark(event);
    if (mark == NULL)
        return CUDA_SUCCESS;
    struct work_item *wait = work_of_nothing();
    int failed = wait == NULL || work_needs(wait, mark) != 0;
    work_drop(mark);
    if (failed) {
        work_drop(wait);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return stream_enqueue_short(stream, wait);
}
