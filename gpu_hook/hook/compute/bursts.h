/* The work of this process on one device, in bursts: what was launched, how long it was on the device, and whether the
 * next burst may begin. Grouping, measuring and the device's words of the hook's page; who waits, and how, is
 * pacing.c's. No state is shared between devices. Its functions are for any thread, between guard_enter and
 * guard_leave. None waits for the device but the records right before and right behind a launch, which may wait
 * for room in that launch's stream, as it does: bursts_begin, bursts_end and bursts_close.
 */
#ifndef ALIQUOT_BURSTS_H
#define ALIQUOT_BURSTS_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stdint.h>

struct bursts;
struct track;

/* One launch: what its caller says of it, and between begin and end what is noted. */
struct burst_launch {
    CUstream stream;      /* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD by these names */
    CUcontext context;    /* the current one */
    const void *function; /* or the CUgraphExec */
    uint64_t blocks;
    bool is_graph;
    bool may_wait;   /* false: it goes on, whatever the rule says */
    bool is_unknown; /* nobody knows how long it takes */
    bool is_long;    /* a burst of its own */
    bool closes, ends_burst;
    bool is_given_up; /* an interrupt ended its wait: it is not to be launched */
    struct bursts *bursts; /* NULL: not paced */
    struct track *track;     /* NULL: not measured */
    uint32_t track_number;
    uint64_t expected; /* nanoseconds */
    unsigned grid_class;
};

/* NULL: no memory. */
struct bursts *bursts_new(int device);

/* Before the driver's call; `track` is a guess. 0: it may go on, and bursts_end is due where it has a track; otherwise
 * nanoseconds after which to ask again. */
uint64_t bursts_begin(struct bursts *bursts, struct burst_launch *launch);

/* After the driver's call. True: its track is open still. */
bool bursts_end(struct bursts *bursts, struct burst_launch *launch, CUresult result);

/* After the driver's call, in place of bursts_end, for a launch that leaves its track open. */
void bursts_pass(struct track *track);

/* The track that this thread left open: nothing more goes into it for now. */
void bursts_close(struct bursts *bursts, struct track *track);

/* Looks which work is done. `is_relaxed`: this thread's calls mind no capture of other threads'. True: something is still
 * under way. */
bool bursts_poll(struct bursts *bursts, bool is_relaxed);

/* Whether one that waits might begin now, as far as the device tells. */
bool bursts_let_on(struct bursts *bursts);

/* A thread begins, goes on, or ends waiting (1, 0, -1). */
void bursts_count_waiting(struct bursts *bursts, int change);

/* Before a capture begins in the stream, after it was counted: nobody asks about a stream from now on, and what was being
 * recorded in this one is there, if it has room. */
void bursts_begin_capture(struct bursts *bursts, CUstream stream);

/* A stream was made, or used, that orders itself with the legacy one: there each launch is closed at once. */
void bursts_note_blocking(struct bursts *bursts);

/* Before the stream ends by `real`. True: a thread that records there calls `real` as soon as it has, and nobody else. */
bool bursts_end_stream(struct bursts *bursts, CUstream stream, CUresult (*real)(CUstream));

/* Around whatever may end a context: nothing of ours is touched between; then what went with it is forgotten. `ending`: the
 * context, where it is known; a record there is waited for longer. NULL: none has ended. */
void bursts_suspend(struct bursts *bursts, CUcontext ending);
void bursts_resume(struct bursts *bursts, CUcontext ended);

/* There is a new page. */
void bursts_registered(struct bursts *bursts);

/* In the child of a fork: these are the parent's. */
void bursts_abandon(struct bursts *bursts);

/* At the program's end: nothing of ours is touched from now on. Waits a bounded time. */
void bursts_stop(struct bursts *bursts);

#endif
