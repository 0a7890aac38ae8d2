/* Where this process's memory is, and the way of every call that touches it. A call that comes while the memory is away,
 * or while the kernel does not hold the lease, wakes the kernel and waits; nothing is moved while a call is inside. */
#ifndef ALIQUOT_RESIDENCY_H
#define ALIQUOT_RESIDENCY_H

#include "aliquot_protocol.h"
#include "gate/threads.h"

#include <stdbool.h>
#include <time.h>

/* Around every driver call that touches device memory: between guard_enter and guard_leave, after credit is
 * there, before any lock of the hook's. Nests. False: an interrupt ended the wait (interrupts.h); the thread has not
 * entered, and the call answers out of memory. */
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

/* The same for what needs no memory on the device (a free, a question): waits for the end of a move, wakes nobody.
 * True: resident. */
bool residency_hold(void);

static inline void residency_release(void)
{
    residency_leave();
}

/* Where the memory is: enum aliquot_residency. */
uint32_t residency_describe(void);

/* For the mover alone. From now on calls wait, and frees, too. */
void residency_begin_move(enum aliquot_residency way);

/* How many calls have not returned when the deadline passed; 0: nothing touches the device. */
unsigned residency_await_calls(const struct timespec *deadline);

/* Lets on those that may go on. */
void residency_end_move(enum aliquot_residency place);

/* Tells the agent of calls that came meanwhile. After MOVED, which is the first that it should hear. */
void residency_wake(void);

/* The session's questions, on its thread. */
void residency_registered(void); /* new pages, perhaps a new agent */
void residency_tick(void);

/* In the child of a fork, at its own cuInit. */
void residency_reset(void);

#endif
