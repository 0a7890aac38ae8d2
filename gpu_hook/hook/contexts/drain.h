/* Waits until the device has done what it was given, for a bounded time: a kernel that never ends, or a callback that
 * waits for a call that we stopped, must not hold the program for ever. */
#ifndef ALIQUOT_DRAIN_H
#define ALIQUOT_DRAIN_H

#include "contexts/context_list.h"

#include <stdint.h>
#include <time.h>

enum drain_outcome {
    DRAIN_DONE,
    DRAIN_LATE, /* something still runs; the wait for it is left behind */
    DRAIN_LOST, /* a context is broken: *failed says how */
    DRAIN_NO_THREAD,
};

/* With calls stopped and no capture under way. */
enum drain_outcome drain_contexts(const struct live_context *contexts, size_t count, const struct timespec *deadline,
                                  CUresult *failed);

/* Before a context ends, without any lock: returns when no wait that was left behind is in a context any more. One load
 * where there is none. */
void drain_await_end(void);

/* Whether there is such a wait. While no move is under way there comes none. */
bool drain_is_left(void);

/* In the child of a fork. */
void drain_reset(void);

#endif
