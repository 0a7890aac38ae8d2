/* Waits of the program's threads that the user's interrupt ends. The call that waited answers with
 * an error; in Python, KeyboardInterrupt follows at the next bytecode. The contract is in
 * docs/reference/hook.md. One thread of the hook reads the pages for all waiting threads, and rings
 * the bell. */
#ifndef ALIQUOT_INTERRUPTS_H
#define ALIQUOT_INTERRUPTS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* One wait of one thread, on its stack. */
struct interruptible {
    sigset_t handled; /* other signals that have a handler: held back while the thread sleeps */
    uint32_t reported;    /* the page's `interrupts`, as this wait last read it */
    uint64_t reported_at; /* when this wait saw another number; 0: it has not */
    bool is_retry;    /* this thread gave up a moment ago, and requests again */
};

/* Begin and end a wait; interrupts_sleep is called between them. */
void interrupts_begin(struct interruptible *wait);
void interrupts_end(void);

/* Begin a wait of a process that the agent does not know: no count ends it, but the signal that finds
 * this thread. It has no end. */
void interrupts_begin_unknown(struct interruptible *wait);

/* A futex that changes when a condition that threads wait for may have changed: the agent's page, a
 * connection, where the memory is. */
uint32_t interrupts_bell(void);
void interrupts_ring(void);

/* Sleep while the bell is still at `bell`, at most so long; without `wait`, no interrupt ends the
 * sleep. True: the interrupt came, and the caller gives up. May return early for no reason. Called
 * between guard_enter and guard_leave, cancellation deferred. */
bool interrupts_sleep(struct interruptible *wait, uint32_t bell, uint64_t nanoseconds);

/* Sleep on another futex, which the caller wakes. */
bool interrupts_sleep_on(struct interruptible *wait, const uint32_t *word, uint32_t seen,
                         uint64_t nanoseconds);

/* Return whether this thread gave up a wait since interrupts_forget. */
bool interrupts_have_ended(void);
void interrupts_forget(void);

/* Make the hook's threads leave the driver alone before any exit handler that is registered by
 * now runs, the driver's own included, and resume calls that wait for those threads. Called
 * again where a driver may have registered more handlers. */
void interrupts_watch_exit(void);

/* Called in the child of a fork. */
void interrupts_reset(void);

#endif
