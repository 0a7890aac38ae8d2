#include "compute/pace_rule.h"

#include "aliquot_protocol.h"

#define MOST_SHORT 4 /* batches */

static uint64_t smaller(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* Return 0 where work may begin in the present pause of the peers; otherwise the nanoseconds until
 * it might. */
static uint64_t wait_in_pause(const struct pace_order *order, const struct pace_state *state,
                              uint64_t now)
{
    /* A peer's clock reads are not ordered with ours: a pause that begins later than now has just
     * begun. */
    uint64_t age = now > state->idle_since ? now - state->idle_since : 0;
    uint64_t from = order->idle_window_min * 1000ull, until = order->idle_window_max * 1000ull,
             again = order->idle_resume * 1000ull;
    if (age >= again || (age >= from && age < until))
        return 0;
    return (age < from ? smaller(from, again) : again) - age;
}

/* A cap of one is about long launches: others may follow short ones, whose end is seen late. Not if
 * one is unknown. */
static bool is_soon_done(const struct pace_order *order, const struct pace_state *state)
{
    return state->expected && !state->unknown && state->expected < PACE_SOON_NANOSECONDS &&
           order->in_flight_cap == 1 && state->in_flight < MOST_SHORT;
}

uint64_t pace_wait(const struct pace_order *order, const struct pace_state *state, uint64_t now)
{
    if (order->pace != ALIQUOT_PACE_TIME)
        return 0;
    if (order->in_flight_cap && state->in_flight >= order->in_flight_cap &&
        !is_soon_done(order, state))
        return PACE_LOOK_NANOSECONDS;
    uint64_t used = state->occupied + state->expected;
    if (used >= order->allowed)
        return PACE_LOOK_NANOSECONDS;
    if (!state->has_peers || used < order->allowed_with_busy_peers)
        return 0;
    if (state->are_active)
        return PACE_LOOK_NANOSECONDS;
    uint64_t wait = wait_in_pause(order, state, now);
    return smaller(wait, PACE_LOOK_NANOSECONDS);
}
