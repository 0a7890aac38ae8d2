/* The paced way of launches: where the agent's gate says PACED, each goes into a burst of its device, and the thread
 * waits while the rule says so. Owns the thread that looks which bursts are done, and the waiting; where the gate is
 * open none of this is on a launch's way.
 */
#ifndef ALIQUOT_PACING_H
#define ALIQUOT_PACING_H

#include "compute/bursts.h"

/* This thread's track that it launched into last, while it is open; NULL: none. */
extern __thread struct track *pacing_open_track __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Some launch was paced so far: one load. */
bool pacing_is_used(void);

/* The agent's page says PACED. */
bool pacing_is_on(void);

/* Inside residency (residency.h), which it leaves while it waits, and between guard_enter and guard_leave.
 * Stream, function, blocks and may_wait are filled in. Sets is_given_up where an interrupt ends its wait. */
void pacing_begin(struct burst_launch *launch);

/* After the driver's call, between guard_enter and guard_leave again. */
void pacing_end(struct burst_launch *launch, CUresult result);

/* The gate is closed before this thread's launch: the wait counts as throttled. NULL: on no device. */
struct bursts *pacing_begin_gate(void);
void pacing_end_gate(struct bursts *bursts);

/* This thread goes on with other calls than launches. */
void pacing_close_open_track(void);

static inline void pacing_close(void)
{
    if (__builtin_expect(pacing_open_track != NULL, 0))
        pacing_close_open_track();
}

/* A call that waited for the device has returned. */
void pacing_look(void);

/* A stream was made in the current context. */
void pacing_note_stream(unsigned int flags);

/* This thread's context may be another. */
void pacing_forget_context(void);

/* Called on the session's thread. */
void pacing_tick(void);

/* See bursts.h; on all devices. A stream's end first closes what this thread left open. */
void pacing_begin_capture(CUstream stream);
bool pacing_end_stream(CUstream stream, CUresult (*real)(CUstream));
void pacing_suspend(CUcontext ending);
void pacing_resume(CUcontext ended);
void pacing_registered(void);

/* In the fork handler: nobody gives back what the parent's threads held. */
void pacing_abandon(void);

/* In the child of a fork, at its own cuInit. */
void pacing_reset(void);

#endif
