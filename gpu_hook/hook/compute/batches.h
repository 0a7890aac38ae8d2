/* The work of this process on one device, in bursts: the launches, how long each was on the
 * device, and whether the next burst may begin. This module groups and measures launches and
 * writes the device's words of the hook's page; pacing.c decides which thread waits, and how.
 * Devices share no state. Any thread may call its functions, between guard_enter and
 * guard_leave. They do not wait for the device, except that bursts_begin, bursts_end and
 * bursts_close record right before and right behind a launch, and such a record may wait for
 * room in that launch's stream, as the launch does. */
#ifndef ALIQUOT_BURSTS_H
#define ALIQUOT_BURSTS_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stdint.h>

struct bursts;
struct stream_timer;

/* One launch: what its caller fills in, and what bursts_begin notes for bursts_end. */
struct burst_launch {
    CUstream stream;      /* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD by these names */
    CUcontext context;    /* the current one */
    const void *function; /* or the CUgraphExec */
    uint64_t blocks;
    bool is_graph;
    bool may_wait;   /* false: it goes on, whatever the rule says */
    bool is_unknown; /* its length is not known */
    bool is_long;    /* a burst of its own */
    bool closes, ends_burst;
    bool is_given_up; /* an interrupt ended its wait: it is not to be launched */
    struct bursts *bursts; /* NULL: not paced */
    struct stream_timer *timer;     /* NULL: not measured */
    uint32_t timer_number;
    uint64_t expected; /* nanoseconds */
    unsigned grid_class;
};

/* Return the bursts of a device. NULL: no memory. */
struct bursts *bursts_new(int device);

/* Called before the driver's call; `timer` is a guess. Returns 0 where the launch may go on, and
 * bursts_end is due where it has a timer; otherwise nanoseconds after which to ask again. */
uint64_t bursts_begin(struct bursts *bursts, struct burst_launch *launch);

/* Called after the driver's call. True: the launch's timer is open still. */
bool bursts_end(struct bursts *bursts, struct burst_launch *launch, CUresult result);

/* Called after the driver's call, in place of bursts_end, for a launch that leaves its timer open.
 * Takes no mutex. */
void bursts_pass(struct stream_timer *timer);

/* Close the timer that this thread left open: no launch goes into it for now. */
void bursts_close(struct bursts *bursts, struct stream_timer *timer);

/* Find out which work is done. `is_relaxed`: captures of other threads do not concern this thread's
 * calls. True: some work is still under way. */
bool bursts_poll(struct bursts *bursts, bool is_relaxed);

/* Return whether a waiting launch might begin now, as far as the device's state shows. */
bool bursts_can_begin(struct bursts *bursts);

/* Count a thread that begins, continues, or ends waiting (1, 0, -1). */
void bursts_count_waiting(struct bursts *bursts, int change);

/* Called before a capture begins in the stream, after it was counted. From now on no thread asks
 * the driver about a stream, and a record on its way into this one is made, if the stream has
 * room. */
void bursts_begin_capture(struct bursts *bursts, CUstream stream);

/* Note that a stream was made, or used, that orders itself with the legacy one. Each launch into
 * the legacy stream is closed at once from then on. */
void bursts_note_blocking(struct bursts *bursts);

/* Called before `real` ends the stream. True: a thread that records there calls `real` as soon as
 * it has recorded; the caller does not. */
bool bursts_end_stream(struct bursts *bursts, CUstream stream, CUresult (*real)(CUstream));

/* Called around each call that may end a context. Between the two, no event of the hook's is
 * touched; then what went with the context is forgotten. `ending`: the context, where it is known;
 * a record there is waited for longer. `ended` NULL: none has ended. */
void bursts_suspend(struct bursts *bursts, CUcontext ending);
void bursts_resume(struct bursts *bursts, CUcontext ended);

/* Called when there is a new page. */
void bursts_registered(struct bursts *bursts);

/* Called in the child of a fork: the bursts are the parent's. */
void bursts_abandon(struct bursts *bursts);

/* Called at the program's exit: no event of the hook's is touched from now on. Waits a bounded
 * time. */
void bursts_stop(struct bursts *bursts);

#endif
