/* Waits of the program's threads that its user's interrupt ends. The call that waited answers with an error; in Python,
 * KeyboardInterrupt follows at the next bytecode. The contract is in docs/reference/hook.md. One thread of the hook
 * looks at the pages for all that wait, and rings.
 */
#ifndef ALIQUOT_INTERRUPTS_H
#define ALIQUOT_INTERRUPTS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* One wait of one thread, on its stack. */
struct interruptible {
    sigset_t handled; /* other signals that have a handler: held back while the thread sleeps */
    uint32_t told;    /* the page's `interrupts`, as this wait knows it */
    uint64_t told_at; /* when this wait saw another number; 0: it has not */
    bool is_retry;    /* this thread gave up a moment ago, and asks again */
};

/* Between them, interrupts_sleep. */
void interrupts_begin(struct interruptible *wait);
void interrupts_end(void);

/* Changes when something that threads wait for may have: the agent's page, a connection, where the memory is. A futex. */
uint32_t interrupts_bell(void);
void interrupts_ring(void);

/* Sleeps while the bell is as it was `heard`, at most so long; without `wait`, no interrupt ends that. True: the interrupt came, and the wait is to be given up.
 * May return early for no reason. Between guard_enter and guard_leave, cancellation deferred. */
bool interrupts_sleep(struct interruptible *wait, uint32_t heard, uint64_t nanoseconds);

/* The same with another futex, which the caller wakes. */
bool interrupts_sleep_on(struct interruptible *wait, const uint32_t *word, uint32_t seen, uint64_t nanoseconds);

/* Whether this thread gave up a wait since interrupts_forget. */
bool interrupts_have_ended(void);
void interrupts_forget(void);

/* The hook's threads leave the driver alone before anything that runs at the exit and is registered by now, the driver's own
 * end included; and calls that wait for those threads go on. Called again where a driver may have registered more. */
void interrupts_watch_exit(void);

/* In the child of a fork. */
void interrupts_reset(void);

#endif
