/* The streams of one device that launches go to: each has a timer with its timing events. A timer
 * is found by its stream; when the stream has ended, another stream takes the timer over. The mutex
 * of the batches guards all timers. It is never held over a driver call: during such a call a timer
 * names the thread that records, or the one that asks, and other threads leave both to it. */
#ifndef ALIQUOT_STREAM_TIMERS_H
#define ALIQUOT_STREAM_TIMERS_H

#include "compute/timing_events.h"

#define STREAM_TIMERS_MAX 128u /* launches into more streams at once are not measured */

struct stream_timer {
    struct timing_events events;
    bool is_taken;
    bool is_blocking;  /* orders itself with the legacy stream */
    const void *thread; /* the thread that this default stream belongs to; NULL: any thread's */
    uint32_t number;   /* another one for each stream */
    uint32_t entering; /* launches on their way to the driver; taken back without the mutex */
    /* The thread that records in the stream, perhaps waiting for room there; it also launches into
     * it. NULL: none */
    const void *recorder;
    /* the thread that queries the driver about it, and waits for nothing there; NULL: none */
    const void *asker;
    CUresult (*ends)(CUstream); /* how the recorder ends the stream afterwards; NULL: not at all */
    CUstream left; /* that it could not end, as a context was about to; NULL: none */
    bool has_batch;
    bool is_open;               /* launches since the last timing event */
    uint64_t opened_at;
    uint64_t batch_expected;    /* of the batch's launches */
    uint64_t launched_at;       /* the last time, or a few launches before */
    uint64_t through_at; /* when the device is expected to be through with all launches */
    /* after its last launch, where nothing could be recorded behind that */
    uint64_t running_at;
    bool is_dense;              /* the clock is read for some launches only */
    uint32_t without_clock;     /* launches, so far */
    struct timed_work work;    /* since the last timing event */
};

struct stream_timers {
    unsigned count;
    bool has_blocking; /* some stream orders itself with the legacy one */
    struct stream_timer all[STREAM_TIMERS_MAX];
};

/* The legacy stream is the same for all threads, unlike a thread's default stream. */
static inline bool stream_timer_is_legacy(const struct stream_timer *timer)
{
    return timer->events.stream == CU_STREAM_LEGACY;
}

static inline uint32_t stream_timer_entering(const struct stream_timer *timer)
{
    return __atomic_load_n(&timer->entering, __ATOMIC_ACQUIRE);
}

/* Return whether work of the stream is, or may soon be, on the device. */
static inline bool stream_timer_is_busy(const struct stream_timer *timer)
{
    return timer->events.count || timer->is_open || stream_timer_entering(timer) || timer->recorder;
}

/* Return whether the timer belongs to the stream; `context` is the current one. */
bool stream_timer_is_of(const struct stream_timer *timer, CUstream stream, CUcontext context);

/* The events of a timer that another context's stream takes over; they are to be destroyed. */
struct left_events {
    CUcontext context;
    unsigned count;
    CUevent events[TIMING_EVENTS_MAX];
};

/* Return the timer of the stream, whose context is current. NULL: it has none. */
struct stream_timer *stream_timers_find(struct stream_timers *timers, CUstream stream,
                                        CUcontext context);

/* Take a timer for a stream that has none. `flags`: the stream's, from the driver. NULL: all timers
 * are busy. */
struct stream_timer *stream_timers_take(struct stream_timers *timers, CUstream stream,
                                        CUcontext context, unsigned int flags,
                                        struct left_events *left);

/* Destroy the events. Calls the driver. */
void left_events_end(const struct left_events *left);

/* Release the timer, because its stream ends: it takes no more launches. */
void stream_timer_let_go(struct stream_timer *timer);

/* Forget the events, because their context has ended. */
void stream_timer_forget(struct stream_timer *timer);

/* Make the context current in this thread, if it is not. Calls the driver. *is_pushed:
 * stream_timer_leave_context is due. False: the context has ended. */
bool stream_timer_enter_context(CUcontext context, bool *is_pushed);
void stream_timer_leave_context(bool is_pushed);

#endif
