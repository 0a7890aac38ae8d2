/* Waits until the device has completed its work, for a bounded time: a kernel that never ends, or a
 * callback that waits for a stopped call, must not hold the program for ever. */
#ifndef ALIQUOT_DRAIN_H
#define ALIQUOT_DRAIN_H

#include "contexts/context_list.h"

#include <stdint.h>
#include <time.h>

enum drain_outcome {
    DRAIN_DONE,
    DRAIN_LATE, /* some work still runs; the wait for it is left behind */
    DRAIN_LOST, /* a context is broken: *failed says how */
    DRAIN_NO_THREAD,
};

/* Wait for the contexts, with calls stopped and no capture under way. */
enum drain_outcome drain_contexts(const struct live_context *contexts, size_t count,
                                  const struct timespec *deadline, CUresult *failed);

/* Called before a context ends, without any lock: return when no wait that was left behind is in a
 * context any more. One load where there is none. */
void drain_await_end(void);

/* Return whether a wait was left behind. While no move is under way, none is added. */
bool drain_is_left(void);

/* Called in the child of a fork. */
void drain_reset(void);

#endif
