/* Retries of allocations that the agent lent and the driver refuses: the driver frees the bytes of
 * a process that died a moment later than the agent sees. The call waits, holding its charge, and
 * calls the driver again. */
#ifndef ALIQUOT_RETRY_H
#define ALIQUOT_RETRY_H

#include "charging/charge.h"
#include "agent_link/interrupts.h"

#include <stdint.h>

struct retry {
    uint64_t until; /* nanoseconds of CLOCK_MONOTONIC; 0: nothing was waited for yet */
    uint64_t pause;
    struct interruptible wait; /* where something was waited for */
};

#define RETRY_NONE ((struct retry){.until = 0})

/* Called between charge_begin and charge_end, after each call of the driver: wait, and return
 * whether the driver is to be called again. It is not where the driver has `bytes` free and refuses
 * all the same, soon after a wait that was in vain, or after an interrupt. */
bool retry_is_due(struct retry *retry, struct charge *charge, CUresult result, uint64_t bytes);

#endif
