/* The place of this process's memory: on its devices, on the host, or moving. Every call that
 * touches the memory passes here. A call that comes while the memory is swapped out, or while
 * the kernel does not hold the lease, wakes the kernel and waits. No memory moves while a call
 * is inside. */
#ifndef ALIQUOT_RESIDENCY_H
#define ALIQUOT_RESIDENCY_H

#include "aliquot_protocol.h"
#include "gate/threads.h"

#include <stdbool.h>
#include <time.h>

/* Enter before, and leave after, every driver call that touches device memory: between guard_enter
 * and guard_leave, with credit charged, before any lock of the hook's. Calls nest. False: an
 * interrupt ended the wait (interrupts.h); the thread has not entered, and the call answers out of
 * memory. */
bool residency_enter_slowly(void) __attribute__((warn_unused_result));
void residency_leave_slowly(void);

static inline __attribute__((warn_unused_result)) bool residency_enter(void)
{
    return threads_try_mark(threads_own) || residency_enter_slowly();
}

static inline void residency_leave(void)
{
    if (__builtin_expect(threads_own != NULL, 1))
        threads_unmark(threads_own);
    else
        residency_leave_slowly();
}

/* Enter for a call that needs no memory on the device, such as a free or a query. It waits for
 * the end of a move and wakes no kernel. True: resident. */
bool residency_hold(void);

static inline void residency_release(void)
{
    residency_leave();
}

/* Return where the memory is: enum aliquot_residency. */
uint32_t residency_describe(void);

/* Called by the mover alone: from now on calls wait, frees included. */
void residency_begin_move(enum aliquot_residency way);

/* Wait until no call is inside, or the deadline. Returns how many calls have not returned; 0: no
 * call touches the device. */
unsigned residency_await_calls(const struct timespec *deadline);

/* End the move, and resume the calls that may go on. */
void residency_end_move(enum aliquot_residency place);

/* Report to the agent the calls that arrived during the move. Called after MOVED was sent, which
 * the agent must receive first. */
void residency_wake(void);

/* Called by the session, on its thread. */
void residency_registered(void); /* new pages, perhaps a new agent */
void residency_tick(void);

/* Called in the child of a fork, at its own cuInit. */
void residency_reset(void);

#endif
