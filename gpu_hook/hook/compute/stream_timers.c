#include "compute/stream_timers.h"

#include "gate/threads.h"

static bool is_default(CUstream stream)
{
    return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

bool track_is_of(const struct track *track, CUstream stream, CUcontext context)
{
    return track->is_taken && track->milestones.stream == stream &&
           (!is_default(stream) || track->milestones.context == context) &&
           (stream != CU_STREAM_PER_THREAD || track->thread == threads_own);
}

bool track_enter_context(CUcontext context, bool *is_pushed)
{
    CUcontext current = NULL;
    *is_pushed = false;
    if (driver()->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)
        return true;
    *is_pushed = driver()->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    return *is_pushed;
}

void track_leave_context(bool is_pushed)
{
    CUcontext popped;
    if (is_pushed)
        driver()->cuCtxPopCurrent_v2(&popped);
}

void track_let_go(struct track *track)
{
    track->milestones.stream = NULL;
    track->number++;
}

void track_forget(struct track *track)
{
    CUevent gone[MILESTONES_MOST];
    milestones_forget(&track->milestones, gone);
    track->ends = NULL;
    track->left = NULL;
    track->is_taken = track->has_burst = track->is_open = false;
    track->number++;
}

static bool is_free(const struct track *track)
{
    return !track->is_taken && track_entering(track) == 0 && !track->recorder && !track->asker && !track->left;
}

/* Of the same context: its events serve again. Otherwise one that has none. Otherwise one whose stream rests longest. */
static struct track *choose(struct tracks *tracks, CUcontext context)
{
    struct track *found = NULL, *resting = NULL;
    for (unsigned i = 0; i < tracks->count; i++) {
        struct track *track = &tracks->all[i];
        if (is_free(track) && track->milestones.context == context)
            return track;
        if (is_free(track) && !found)
            found = track;
        bool is_resting = !track_is_busy(track) && !track->asker && !track->has_burst && !track->left;
        if (is_resting && (!resting || track->launched_at < resting->launched_at))
            resting = track;
    }
    if (found || tracks->count == TRACKS_MOST)
        return found ? found : resting;
    return &tracks->all[tracks->count++];
}

void left_events_end(const struct left_events *left)
{
    bool is_pushed;
    if (!left->count || !track_enter_context(left->context, &is_pushed))
        return;
    for (unsigned i = 0; i < left->count; i++)
        driver()->cuEventDestroy_v2(left->events[i]);
    track_leave_context(is_pushed);
}

struct track *tracks_find(struct tracks *tracks, CUstream stream, CUcontext context)
{
    for (unsigned i = 0; i < tracks->count; i++)
        if (track_is_of(&tracks->all[i], stream, context))
            return &tracks->all[i];
    return NULL;
}

struct track *tracks_take(struct tracks *tracks, CUstream stream, CUcontext context, unsigned int flags,
                          struct left_events *left)
{
    struct track *track = choose(tracks, context);
    left->count = 0;
    if (!track)
        return NULL;
    left->context = track->milestones.context;
    if (left->context != context)
        left->count = milestones_forget(&track->milestones, left->events);
    milestones_drop(&track->milestones);
    track->milestones.context = context;
    track->milestones.stream = stream;
    track->is_taken = true;
    track->is_blocking = stream == CU_STREAM_PER_THREAD || !(flags & CU_STREAM_NON_BLOCKING);
    track->thread = stream == CU_STREAM_PER_THREAD ? threads_own : NULL;
    track->number++;
    track->has_burst = track->is_open = false;
    track->launched_at = 0;
    tracks->has_blocking |= track->is_blocking;
    return track;
}
