/* The work of this process on one device, in batches: the launches, how long each was on the
 * device, and whether the next batch may begin. This module groups and measures launches and
 * writes the device's words of the hook's page; pacing.c decides which thread waits, and how.
 * Devices share no state. Any thread may call its functions, between guard_enter and
 * guard_leave. They do not wait for the device, except that batches_begin, batches_end and
 * batches_close record right before and right behind a launch, and such a record may wait for
 * room in that launch's stream, as the launch does. */
#ifndef ALIQUOT_BATCHES_H
#define ALIQUOT_BATCHES_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stdint.h>

struct batches;
struct stream_timer;

/* One launch: what its caller fills in, and what batches_begin notes for batches_end. */
struct batch_launch {
    CUstream stream;      /* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD by these names */
    CUcontext context;    /* the current one */
    const void *function; /* or the CUgraphExec */
    uint64_t blocks;
    bool is_graph;
    bool may_wait;   /* false: it goes on, whatever the rule says */
    bool is_unknown; /* its length is not known */
    bool is_long;    /* a batch of its own */
    bool closes, ends_batch;
    bool is_given_up; /* an interrupt ended its wait: it is not to be launched */
    struct batches *batches; /* NULL: not paced */
    struct stream_timer *timer;     /* NULL: not measured */
    uint32_t timer_number;
    uint64_t expected; /* nanoseconds */
    unsigned grid_class;
};

/* Return the batches of a device. NULL: no memory. */
struct batches *batches_new(int device);

/* Called before the driver's call; `timer` is a guess. Returns 0 where the launch may go on, and
 * batches_end is due where it has a timer; otherwise nanoseconds after which to ask again. */
uint64_t batches_begin(struct batches *batches, struct batch_launch *launch);

/* Called after the driver's call. True: the launch's timer is open still. */
bool batches_end(struct batches *batches, struct batch_launch *launch, CUresult result);

/* Called after the driver's call, in place of batches_end, for a launch that leaves its timer open.
 * Takes no mutex. */
void batches_pass(struct stream_timer *timer);

/* Close the timer that this thread left open: no launch goes into it for now. */
void batches_close(struct batches *batches, struct stream_timer *timer);

/* Find out which work is done. `is_relaxed`: captures of other threads do not concern this thread's
 * calls. True: some work is still under way. */
bool batches_poll(struct batches *batches, bool is_relaxed);

/* Return whether a waiting launch might begin now, as far as the device's state shows. */
bool batches_can_begin(struct batches *batches);

/* Count a thread that begins, continues, or ends waiting (1, 0, -1). */
void batches_count_waiting(struct batches *batches, int change);

/* Called before a capture begins in the stream, after it was counted. From now on no thread asks
 * the driver about a stream, and a record on its way into this one is made, if the stream has
 * room. */
void batches_begin_capture(struct batches *batches, CUstream stream);

/* Note that a stream was made, or used, that orders itself with the legacy one. Each launch into
 * the legacy stream is closed at once from then on. */
void batches_note_blocking(struct batches *batches);

/* Called before `real` ends the stream. True: a thread that records there calls `real` as soon as
 * it has recorded; the caller does not. */
bool batches_end_stream(struct batches *batches, CUstream stream, CUresult (*real)(CUstream));

/* Called around each call that may end a context. Between the two, no event of the hook's is
 * touched; then what went with the context is forgotten. `ending`: the context, where it is known;
 * a record there is waited for longer. `ended` NULL: none has ended. */
void batches_suspend(struct batches *batches, CUcontext ending);
void batches_resume(struct batches *batches, CUcontext ended);

/* Called when there is a new page. */
void batches_registered(struct batches *batches);

/* Called in the child of a fork: the batches are the parent's. */
void batches_abandon(struct batches *batches);

/* Called at the program's exit: no event of the hook's is touched from now on. Waits a bounded
 * time. */
void batches_stop(struct batches *batches);

#endif
