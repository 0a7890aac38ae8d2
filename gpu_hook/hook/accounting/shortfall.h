/* The charge that a process would have reached on a device without its quota. The next
 * allocations decide whether a refusal counts. A process that then gets as much, or at least
 * half, managed: allocators return their cache and request again, some of them less. A process
 * that gets less went on without the memory, and the refusal stands. */
#ifndef ALIQUOT_SHORTFALL_H
#define ALIQUOT_SHORTFALL_H

#include "aliquot_protocol.h"

#include <stdint.h>

/* Guarded by its account's mutex. */
struct shortfall {
    uint64_t asked;  /* in the last refusal that nothing has decided yet; 0: none */
    uint64_t needed; /* with it */
    uint64_t at_nanoseconds; /* CLOCK_MONOTONIC, coarse */
    uint64_t most;   /* of those that stand */
    uint64_t stood_at_nanoseconds; /* the last of those that stand; 0: none does */
};

/* Note that `asked` bytes were refused while `charged` ones are charged. `page_index` names the
 * device; -1: not granted, and nothing is noted. Not called where the quota was not short: the
 * device had no room, or the agent is away. */
void shortfall_refused(struct shortfall *shortfall, int page_index, uint64_t charged,
                       uint64_t asked);

/* Decide the last refusal. `asked` not 0: so many bytes were charged since. */
void shortfall_decide(struct shortfall *shortfall, int page_index, uint64_t charged);

/* Write the words to a new page. */
void shortfall_publish(const struct shortfall *shortfall, int page_index);

#endif
