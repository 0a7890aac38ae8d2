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
    uint32_t asked_on; /* the number of the connection; 0: not asked */
    bool is_answered;
    bool waits_for_room;
    bool was_left; /* the agent went, and has not spoken to us since */
    uint64_t granted;
    struct timespec deadline;
    struct timespec back_by; /* if it was left */
};

static inline void waiter_asked(struct waiter *waiter, uint32_t connection)
{
    waiter->asked_on = connection;
    if (connection)
        waiter->deadline = times_after(SILENT_MILLISECONDS);
}

/* The grant, or the word that it has to wait for room. */
static inline void waiter_told(struct waiter *waiter, bool is_grant, uint64_t bytes)
{
    waiter->deadline = times_after(SILENT_MILLISECONDS);
    waiter->is_answered = is_grant;
    waiter->waits_for_room = true;
    waiter->was_left = false;
    waiter->granted = bytes;
}

/* Called when the connection is lost. A request that waits for room goes on through a restart of
 * the agent; an agent that disconnects again and again gets no new deadline each time. */
static inline void waiter_left(struct waiter *waiter)
{
    waiter->asked_on = 0;
    if (!waiter->was_left)
        waiter->back_by =
            times_after(waiter->waits_for_room ? SILENT_MILLISECONDS : AWAY_MILLISECONDS);
    waiter->was_left = true;
    waiter->deadline = waiter->back_by;
}

#endif
