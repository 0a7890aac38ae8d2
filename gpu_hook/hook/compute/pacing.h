/* The paced way of launches. Where the agent's gate says PACED, each launch goes into a batch of
 * its device, and the thread waits while the rule says so. This module owns the waiting, and the
 * thread that polls for batches that are done. Where the gate is open, launches do not come
 * here. */
#ifndef ALIQUOT_PACING_H
#define ALIQUOT_PACING_H

#include "compute/batches.h"

/* The timer that this thread launched into last, while it is open; NULL: none. */
extern __thread struct stream_timer *pacing_open_timer
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Return whether any launch was paced so far, by one load. */
bool pacing_is_used(void);

/* Return whether the agent's page says PACED. */
bool pacing_is_on(void);

/* Called inside residency (residency.h), which it leaves while it waits, and between guard_enter
 * and guard_leave. The caller fills in stream, function, blocks and may_wait. Sets is_given_up
 * where an interrupt ends the wait. */
void pacing_begin(struct batch_launch *launch);

/* Called after the driver's call, between guard_enter and guard_leave again. */
void pacing_end(struct batch_launch *launch, CUresult result);

/* Count this thread's wait at a closed gate as throttled, until pacing_end_gate. NULL: it is on no
 * device. */
struct batches *pacing_begin_gate(void);
void pacing_end_gate(struct batches *batches);

/* Called when this thread goes on with other calls than launches. */
void pacing_close_open_timer(void);

static inline void pacing_close(void)
{
    if (__builtin_expect(pacing_open_timer != NULL, 0))
        pacing_close_open_timer();
}

/* Called when a call that waited for the device has returned: poll for work that is done. */
void pacing_poll(void);

/* Note that a stream was made in the current context. */
void pacing_note_stream(unsigned int flags);

/* Called when this thread's current context may be another one. */
void pacing_forget_context(void);

/* Called on the session's thread. */
void pacing_tick(void);

/* Call the function of batches.h on all devices. A stream's end first closes what this thread left
 * open. */
void pacing_begin_capture(CUstream stream);
bool pacing_end_stream(CUstream stream, CUresult (*real)(CUstream));
void pacing_suspend(CUcontext ending);
void pacing_resume(CUcontext ended);
void pacing_registered(void);

/* Called in the fork handler: no thread gives back what the parent's threads held. */
void pacing_abandon(void);

/* Called in the child of a fork, at its own cuInit. */
void pacing_reset(void);

#endif
