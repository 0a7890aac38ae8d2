/* The one rule by which a batch of work may begin. Pure: the plant simulator loads it, too. The
 * agent's page holds the orders; time is CLOCK_MONOTONIC, in nanoseconds. */
#ifndef ALIQUOT_PACE_RULE_H
#define ALIQUOT_PACE_RULE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_LOOK_NANOSECONDS 100000ull    /* how soon a change of peers or of the order is seen */
#define PACE_REST_NANOSECONDS 1000000ull   /* the same, for a thread that has waited long */
#define PACE_SOON_NANOSECONDS 500000ull    /* of work: the hook sees an end up to so late */

/* The order for one device, from the agent's page (aliquot_pages.h has what each word means). */
struct pace_order {
    uint32_t pace; /* enum aliquot_pace */
    uint32_t in_flight_cap;
    uint64_t allowed;
    uint64_t allowed_with_busy_peers;
    uint32_t idle_window_min, idle_window_max, idle_resume; /* microseconds */
    uint32_t reserved;
};

/* The state of this process on that device now. */
struct pace_state {
    uint64_t occupied;           /* nanoseconds, of batches that ended */
    uint64_t expected;           /* nanoseconds, of those in flight */
    uint32_t in_flight;          /* batches */
    uint32_t has_peers;     /* activity pages of production on the device are known */
    uint32_t are_active;         /* one of these shows work */
    /* launches in flight that were never measured: `expected` says little of these */
    uint32_t unknown;
    uint64_t idle_since;         /* when the last of them became idle */
};

/* Return 0 where a batch may begin now; otherwise the nanoseconds until the next check, at least
 * 1. A cap of one batch allows up to four in flight, as long as their known expected time is
 * less than PACE_SOON_NANOSECONDS. */
uint64_t pace_wait(const struct pace_order *order, const struct pace_state *state, uint64_t now);

#endif
