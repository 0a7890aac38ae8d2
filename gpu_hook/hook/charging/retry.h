/* What the agent lent and the driver refuses: bytes of a process that died are the driver's a moment later than they seem.
 * The call waits for them, holding its charge, and asks the driver again. */
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

/* Between charge_begin and charge_end, after each call of the driver: waits, and returns whether it is to be called again.
 * Not where the driver has `bytes` and refuses all the same, nor soon after a wait that was in vain, nor after an interrupt. */
bool retry_is_due(struct retry *retry, struct charge *charge, CUresult result, uint64_t bytes);

#endif
