#include "compute/stream_timers.h"

#include "gate/threads.h"

static bool is_default(CUstream stream)
{
    return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

bool stream_timer_is_of(const struct stream_timer *timer, CUstream stream, CUcontext context)
{
    return timer->is_taken && timer->events.stream == stream &&
           (!is_default(stream) || timer->events.context == context) &&
           (stream != CU_STREAM_PER_THREAD || timer->thread == threads_own);
}

bool stream_timer_enter_context(CUcontext context, bool *is_pushed)
{
    CUcontext current = NULL;
    *is_pushed = false;
    if (driver()->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)
        return true;
    *is_pushed = driver()->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    return *is_pushed;
}

void stream_timer_leave_context(bool is_pushed)
{
    CUcontext popped;
    if (is_pushed)
        driver()->cuCtxPopCurrent_v2(&popped);
}

void stream_timer_let_go(struct stream_timer *timer)
{
    timer->events.stream = NULL;
    timer->number++;
}

void stream_timer_forget(struct stream_timer *timer)
{
    CUevent gone[TIMING_EVENTS_MAX];
    timing_events_forget(&timer->events, gone);
    timer->ends = NULL;
    timer->left = NULL;
    timer->is_taken = timer->has_batch = timer->is_open = false;
    timer->number++;
}

static bool is_free(const struct stream_timer *timer)
{
    return !timer->is_taken && stream_timer_entering(timer) == 0 && !timer->recorder &&
           !timer->asker && !timer->left;
}

/* Choose a timer: one of the same context, whose events serve again; else one without events; else
 * the one whose stream has rested longest. */
static struct stream_timer *choose(struct stream_timers *timers, CUcontext context)
{
    struct stream_timer *found = NULL, *resting = NULL;
    for (unsigned i = 0; i < timers->count; i++) {
        struct stream_timer *timer = &timers->all[i];
        if (is_free(timer) && timer->events.context == context)
            return timer;
        if (is_free(timer) && !found)
            found = timer;
        bool is_resting =
            !stream_timer_is_busy(timer) && !timer->asker && !timer->has_batch && !timer->left;
        if (is_resting && (!resting || timer->launched_at < resting->launched_at))
            resting = timer;
    }
    if (found || timers->count == STREAM_TIMERS_MAX)
        return found ? found : resting;
    return &timers->all[timers->count++];
}

void left_events_end(const struct left_events *left)
{
    bool is_pushed;
    if (!left->count || !stream_timer_enter_context(left->context, &is_pushed))
        return;
    for (unsigned i = 0; i < left->count; i++)
        driver()->cuEventDestroy_v2(left->events[i]);
    stream_timer_leave_context(is_pushed);
}

struct stream_timer *stream_timers_find(struct stream_timers *timers, CUstream stream,
                                        CUcontext context)
{
    for (unsigned i = 0; i < timers->count; i++)
        if (stream_timer_is_of(&timers->all[i], stream, context))
            return &timers->all[i];
    return NULL;
}

struct stream_timer *stream_timers_take(struct stream_timers *timers, CUstream stream,
                                        CUcontext context, unsigned int flags,
                                        struct left_events *left)
{
    struct stream_timer *timer = choose(timers, context);
    left->count = 0;
    if (!timer)
        return NULL;
    left->context = timer->events.context;
    if (left->context != context)
        left->count = timing_events_forget(&timer->events, left->events);
    timing_events_drop(&timer->events);
    timer->events.context = context;
    timer->events.stream = stream;
    timer->is_taken = true;
    timer->is_blocking = stream == CU_STREAM_PER_THREAD || !(flags & CU_STREAM_NON_BLOCKING);
    timer->thread = stream == CU_STREAM_PER_THREAD ? threads_own : NULL;
    timer->number++;
    timer->has_batch = timer->is_open = false;
    timer->launched_at = timer->through_at = 0;
    timers->has_blocking |= timer->is_blocking;
    return timer;
}
