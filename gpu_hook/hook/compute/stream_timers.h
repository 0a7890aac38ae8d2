/* The streams of one device that launches go to, each with its milestones. A track is found by its stream, and goes on with
 * another stream's work when its own has ended. Guarded by the mutex of the bursts that they belong to, which is never
 * held over a driver call: for the time of such calls a track has a thread that records, or one that asks, and other
 * threads leave those to it.
 */
#ifndef ALIQUOT_STREAM_TIMERS_H
#define ALIQUOT_STREAM_TIMERS_H

#include "compute/timing_events.h"

#define TRACKS_MOST 128u /* launches into more streams at once are not measured */

struct track {
    struct milestones milestones;
    bool is_taken;
    bool is_blocking;  /* orders itself with the legacy stream */
    const void *thread; /* whose default stream it is; NULL: any thread's */
    uint32_t number;   /* another one for each stream */
    uint32_t entering; /* launches on their way to the driver; taken back without the mutex */
    /* The thread that records in the stream, perhaps waiting for room there: always one that launches into it. NULL: none */
    const void *recorder;
    const void *asker; /* the thread that asks the driver about it, and waits for nothing there; NULL: none */
    CUresult (*ends)(CUstream); /* how the recorder ends the stream afterwards; NULL: not at all */
    CUstream left; /* that it could not end, as a context was about to; NULL: none */
    bool has_burst;
    bool is_open;               /* launches since the last milestone */
    uint64_t burst_expected;    /* of the burst's launches */
    uint64_t launched_at;       /* the last time, or a few launches before */
    uint64_t running_at;        /* after its last launch, where nothing could be recorded behind that */
    bool is_dense;              /* the clock is read for some launches only */
    uint32_t without_clock;     /* launches, so far */
    struct timed_work work;    /* since the last milestone */
};

struct tracks {
    unsigned count;
    bool has_blocking; /* some stream orders itself with the legacy one */
    struct track all[TRACKS_MOST];
};

/* The same for all threads: not a thread's default stream. */
static inline bool track_is_legacy(const struct track *track)
{
    return track->milestones.stream == CU_STREAM_LEGACY;
}

static inline uint32_t track_entering(const struct track *track)
{
    return __atomic_load_n(&track->entering, __ATOMIC_ACQUIRE);
}

/* Something of it is, or may soon be, on the device. */
static inline bool track_is_busy(const struct track *track)
{
    return track->milestones.count || track->is_open || track_entering(track) || track->recorder;
}

/* Whether the track is that of the stream; `context` is the current one. */
bool track_is_of(const struct track *track, CUstream stream, CUcontext context);

/* The events of a track that goes on with another context's stream, which are to be destroyed. */
struct left_events {
    CUcontext context;
    unsigned count;
    CUevent events[MILESTONES_MOST];
};

/* The track of the stream, of which the context is current. NULL: it has none. */
struct track *tracks_find(struct tracks *tracks, CUstream stream, CUcontext context);

/* One for a stream that has none. `flags`: the stream's, as the driver says. NULL: all are busy. */
struct track *tracks_take(struct tracks *tracks, CUstream stream, CUcontext context, unsigned int flags,
                          struct left_events *left);

/* Calls the driver. */
void left_events_end(const struct left_events *left);

/* The stream ends: its track takes no more launches. */
void track_let_go(struct track *track);

/* The context ended, and the events with it. */
void track_forget(struct track *track);

/* Calls the driver: makes the context current in this thread, if it is not; *is_pushed: track_leave_context is due. False: it has gone. */
bool track_enter_context(CUcontext context, bool *is_pushed);
void track_leave_context(bool is_pushed);

#endif
