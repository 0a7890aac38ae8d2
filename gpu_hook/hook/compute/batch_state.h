/* State that batches.c (before and after a launch), batch_calls.c (calls of the driver) and
 * batch_watch.c (everything later) share. */
#ifndef ALIQUOT_BATCH_STATE_H
#define ALIQUOT_BATCH_STATE_H

#include "compute/batch_words.h"
#include "compute/stream_timers.h"

#include <pthread.h>

/* a pause between launches that counts as work */
#define SHARED_NANOSECONDS 20000ull
/* of the host's time in which launches come one after the other, without a timing event, where the
 * agent wants samples only */
#define SAMPLED_NANOSECONDS 10000000ull

struct batches {
    /* Guards all below but `is_abandoned`; never held over a driver call. A driver's call may wait
     * for room in a stream that waits for what this thread, or another one that wants the mutex, is
     * about to do. */
    pthread_mutex_t mutex;
    pthread_cond_t calls_end; /* a thread has come back from its driver calls */
    unsigned awaiting;        /* threads that wait for that */
    unsigned suspended;       /* calls that may end a context */
    bool is_stopped;
    /* atomic; set in the child of a fork, where the thread that holds the mutex may be gone */
    bool is_abandoned;
    struct batch_words words;
    struct stream_timers timers;
};

/* A record that is decided under the mutex, and made as soon as the mutex is released. Each call
 * from outside has one. */
struct batch_record {
    struct stream_timer *timer; /* NULL: none */
    struct timing_event_record event;
};

/* False: this thread has the mutex already, because a signal's handler interrupted it. */
bool batches_lock(struct batches *batches);
void batches_unlock(struct batches *batches);

bool batches_are_abandoned(const struct batches *batches);

/* Return a value that no other thread has while this one lives. */
const void *batch_self(void);

/* The functions below are called with the mutex. Those that call the driver release it meanwhile,
 * as each says. */
static inline bool batches_are_touchable(const struct batches *batches)
{
    return !batches->suspended && !batches->is_stopped;
}

/* Wait for `calls_end`, or a tenth of a second. Releases the mutex meanwhile. The thread's
 * cancellation is deferred. */
void batches_await_calls(struct batches *batches);

/* Return whether a timing event may be recorded now: none is on its way, and the ring has so many
 * free `places`. */
bool batch_can_record(const struct stream_timer *timer, const struct batch_record *record,
                      unsigned places);

/* Decide to record a timing event behind the timer's work; batch_make_record is due. The caller
 * launches into the stream. */
void batch_reserve(struct stream_timer *timer, const struct timed_work *work, uint64_t now,
                   struct batch_record *record);

/* Make the record that was decided, if one was. Releases the mutex meanwhile. The timer's context
 * is current. */
void batch_make_record(struct batches *batches, struct batch_record *record);

/* End the streams that were left while a call might end their context. Releases the mutex
 * meanwhile. */
void batches_end_left_streams(struct batches *batches);

/* Close the open work with a timing event, if one may be recorded. */
void batch_close_timer(struct stream_timer *timer, uint64_t now, struct batch_record *record);

/* Close the open work where no launch may follow soon: if the ring has no room, record its newest
 * timing event anew. */
void batch_close_last(struct stream_timer *timer, uint64_t now, struct batch_record *record);

/* Return the expected time, up to now, in which the stream has been idle since its last launch, or
 * since its last timing event. */
uint64_t batch_idle_before(struct stream_timer *timer, uint64_t now);

/* Leave that time out of the open work, if it is sampled. */
void batch_note_idle(struct stream_timer *timer, uint64_t now);

/* Return whether sampled work is open for so long that a timing event is to end it. */
static inline bool batch_is_sample_due(const struct stream_timer *timer, uint64_t now)
{
    return now - timer->opened_at > SAMPLED_NANOSECONDS;
}

/* Let this thread ask the driver about the timer. False: another thread does. */
bool batch_begin_questions(struct stream_timer *timer);
void batch_end_questions(struct batches *batches, struct stream_timer *timer);

/* Count the work before each timing event that the stream has passed. Releases the mutex meanwhile.
 * The timer's context is current, and this thread is the one that asks. */
void batch_take_passed(struct batches *batches, struct stream_timer *timer, uint64_t now);

/* Give up a measurement that the driver refused: all work under way in the timer counts as done,
 * and no launch is held back. */
void batch_give_up(struct batches *batches, struct stream_timer *timer, CUresult reason);

/* End the timer's batch, if all of its launches are closed. */
void batch_end(struct batches *batches, struct stream_timer *timer);

#endif
