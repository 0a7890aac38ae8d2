/* A request for credit that its caller waits for, and until when. Only values: session.c guards and
 * links them. */
#ifndef ALIQUOT_CREDIT_WAITER_H
#define ALIQUOT_CREDIT_WAITER_H

#include "base/times.h"

#include <stdbool.h>

#define FIRST_REQUEST_MILLISECONDS 2000
#define AWAY_MILLISECONDS 5000    /* an agent that left comes back within */
/* an agent that is connected is slow: a busy machine is no reason to run out of memory */
#define SILENT_MILLISECONDS 30000

struct waiter { /* lives on the requester's stack, linked while it waits */
    struct waiter *next;
    uint32_t sequence;
    uint32_t requested_on; /* the number of the connection; 0: not requested */
    bool is_answered;
    bool waits_for_room;
    bool has_lost_agent; /* the connection was lost, and no answer came since */
    uint64_t granted;
    struct timespec deadline;
    struct timespec agent_back_by; /* if the agent was lost */
};

static inline void waiter_requested(struct waiter *waiter, uint32_t connection)
{
    waiter->requested_on = connection;
    if (connection)
        waiter->deadline = times_after(SILENT_MILLISECONDS);
}

/* Take the agent's answer: a grant, or CREDIT_WAIT. */
static inline void waiter_answered(struct waiter *waiter, bool is_grant, uint64_t bytes)
{
    waiter->deadline = times_after(SILENT_MILLISECONDS);
    waiter->is_answered = is_grant;
    waiter->waits_for_room = true;
    waiter->has_lost_agent = false;
    waiter->granted = bytes;
}

/* Called when the connection is lost. A request that waits for room goes on through a restart of
 * the agent; an agent that disconnects again and again gets no new deadline each time. */
static inline void waiter_lost_agent(struct waiter *waiter)
{
    waiter->requested_on = 0;
    if (!waiter->has_lost_agent)
        waiter->agent_back_by =
            times_after(waiter->waits_for_room ? SILENT_MILLISECONDS : AWAY_MILLISECONDS);
    waiter->has_lost_agent = true;
    waiter->deadline = waiter->agent_back_by;
}

#endif
