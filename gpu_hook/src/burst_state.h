/* What bursts.c (before and after a launch) and burst_watch.c (everything later) share. */
#ifndef ALIQUOT_BURST_STATE_H
#define ALIQUOT_BURST_STATE_H

#include "burst_words.h"
#include "bursts.h"
#include "captures.h"

#include <pthread.h>

struct bursts {
    pthread_mutex_t mutex; /* guards all */
    unsigned suspended;    /* calls that may end a context */
    bool is_stopped;
    struct burst_words words;
    struct tracks tracks;
};

/* Whoever has the mutex may be waiting in the driver, for room in a stream that waits for what this thread is about to
 * do. False: after a while this one goes on without it, and without being measured. */
bool bursts_lock_soon(struct bursts *bursts);

/* Below: with the mutex. The driver may be asked for what is known of tracks. */
static inline bool bursts_are_touchable(const struct bursts *bursts)
{
    return !bursts->suspended && !bursts->is_stopped;
}

/* Records a milestone behind the track's work. False: there is none, and the track's work counts as done. */
bool burst_record(struct bursts *bursts, struct track *track, const struct timed_work *work, uint64_t now);

/* Counts the work behind milestones that the stream has passed. The track's context is current. */
void burst_take_passed(struct bursts *bursts, struct track *track, uint64_t now);

/* The track's context is current. `at_most`: see timed_work. */
void burst_close_track(struct bursts *bursts, struct track *track, uint64_t now, uint64_t at_most);

/* Its launches have all been closed, or nothing happens. */
void burst_end(struct bursts *bursts, struct track *track);

/* In whichever context; for the ones that `is_wanted` names, NULL for all. */
void burst_close_tracks(struct bursts *bursts, bool (*is_wanted)(const struct track *track), uint64_t now);

#endif
