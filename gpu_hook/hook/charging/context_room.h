/* Room for a context that the driver refuses, because kernels that may leave fill its device. No
 * hook charges a context's memory, so the call does not request credit: it asks the agent to make
 * room, and calls the driver again. */
#ifndef ALIQUOT_CONTEXT_ROOM_H
#define ALIQUOT_CONTEXT_ROOM_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stdint.h>

struct context_room {
    unsigned requests;
    uint64_t bytes; /* that the next request names as the least */
    uint64_t until; /* the driver is called again until then; nanoseconds of CLOCK_MONOTONIC */
    uint64_t pause; /* between two of these calls, in nanoseconds */
};

#define CONTEXT_ROOM_NONE ((struct context_room){.requests = 0})

/* Called between guard_enter and guard_leave, outside residency and without a lock, after a call
 * of the driver that makes a context on the device: wait, and return whether the driver is to be
 * called again. It is not where the agent can make no room, or after an interrupt. */
bool context_room_await(struct context_room *room, CUdevice device);

#endif
