/* What bursts.c (before and after a launch), burst_calls.c (calls of the driver) and burst_watch.c (everything later)
 * share. */
#ifndef ALIQUOT_BURST_STATE_H
#define ALIQUOT_BURST_STATE_H

#include "compute/burst_words.h"
#include "compute/stream_timers.h"

#include <pthread.h>

struct bursts {
    /* Guards all below but `is_abandoned`; never held over a driver call. A driver's call may wait for room in a stream
     * that waits for what this thread, or another one that wants the mutex, is about to do. */
    pthread_mutex_t mutex;
    pthread_cond_t calls_end; /* a thread has come back from its driver calls */
    unsigned awaiting;        /* threads that wait for that */
    unsigned suspended;       /* calls that may end a context */
    bool is_stopped;
    bool is_abandoned; /* atomic; in the child of a fork, whose threads are gone: nobody gives the mutex back */
    struct burst_words words;
    struct tracks tracks;
};

/* A record that was decided under the mutex, and is made as soon as that is given up. One for each call from outside. */
struct burst_record {
    struct track *track; /* NULL: none */
    struct milestone_record milestone;
};

/* False: this thread has the mutex already, for a signal's handler came between. */
bool bursts_lock(struct bursts *bursts);
void bursts_unlock(struct bursts *bursts);

bool bursts_are_abandoned(const struct bursts *bursts);

/* For this thread alone, as long as it lives. */
const void *burst_self(void);

/* Below: with the mutex, which those that call the driver give up meanwhile, as each says. */
static inline bool bursts_are_touchable(const struct bursts *bursts)
{
    return !bursts->suspended && !bursts->is_stopped;
}

/* Waits for `calls_end`, or a tenth of a second. Gives up the mutex. The thread's cancellation is deferred. */
void bursts_await_calls(struct bursts *bursts);

/* Whether a milestone may be recorded now: none is on its way, and so many (`places`) have room. */
bool burst_can_record(const struct track *track, const struct burst_record *record, unsigned places);

/* Decides to record a milestone behind the track's work; burst_make_record is due. The caller launches into the stream. */
void burst_reserve(struct track *track, const struct timed_work *work, uint64_t now, struct burst_record *record);

/* Makes the record that was decided, if one was: gives up the mutex meanwhile. The track's context is current. */
void burst_make_record(struct bursts *bursts, struct burst_record *record);

/* Ends the streams that were left while a call might end their context: gives up the mutex meanwhile. */
void bursts_end_left_streams(struct bursts *bursts);

/* What is open ends with a milestone, if one may be recorded. */
void burst_close_track(struct track *track, uint64_t now, struct burst_record *record);

/* The same where nothing may follow soon: without room, the newest milestone is recorded anew. */
void burst_close_last(struct track *track, uint64_t now, struct burst_record *record);

/* Lets this thread ask the driver about the track. False: another one does. */
bool burst_begin_questions(struct track *track);
void burst_end_questions(struct bursts *bursts, struct track *track);

/* Counts the work behind milestones that the stream has passed: gives up the mutex meanwhile. The track's context is
 * current, and this thread is the one that asks. */
void burst_take_passed(struct bursts *bursts, struct track *track, uint64_t now);

/* What the driver refused to measure: all that is under way in the track counts as done, and nobody is held back. */
void burst_give_up(struct bursts *bursts, struct track *track, CUresult reason);

/* Its launches have all been closed, or nothing happens. */
void burst_end(struct bursts *bursts, struct track *track);

#endif
