/* The kernel's gate. A call that touches the device reads one word. Any value but 0 sends it the
 * slow way, which waits while the agent holds the gate closed. */
#ifndef ALIQUOT_GATE_H
#define ALIQUOT_GATE_H

#include <stdbool.h>
#include <stdint.h>

/* Points to the gate in the agent's page. Where the next call is to take the slow way, it points to
 * a word that is not 0: before the hook acts, and after each tick, so that calls show activity
 * without writing anything. */
extern const uint32_t *gate_word __attribute__((visibility("hidden")));

/* Return the gate for a thread that has marked its record. The value counts as gate_is_open's
 * answer does. */
static inline uint32_t gate_read(void)
{
    return __atomic_load_n(__atomic_load_n(&gate_word, __ATOMIC_ACQUIRE), __ATOMIC_RELAXED);
}

static inline bool gate_is_open(void)
{
    return __atomic_load_n(__atomic_load_n(&gate_word, __ATOMIC_ACQUIRE), __ATOMIC_RELAXED) == 0;
}

/* Called once, before the first call: finds out whether the system has a barrier for all threads of
 * a process. Where it has none, every call takes the slow way, which has a fence of its own. */
void gate_prepare(void);

/* Send every call the slow way until gate_resume. Each call that did not see this has left a mark,
 * which is visible after the return (threads.h). */
void gate_stop(void);
void gate_resume(void);

/* Add `change` to the number of threads that wait for the gate or the lease, and write it to the
 * page; 0 writes it to a new page. Returns the number. */
uint32_t gate_count_waiting(int change);

/* Mark activity, and wait while the gate is closed. Called between guard_enter and guard_leave.
 * False: an interrupt ended the wait (interrupts.h). Calls that give memory back go on all the
 * same. */
bool gate_pass(void);

/* Called on the session's thread when the agent is lost: calls take the slow way, where
 * opportunistic work waits. */
void gate_lose_agent(void);

/* Called on the session's thread. Returns whether a call passed since the last time. */
bool gate_tick(void);

/* Called when the tick found work by other signs: calls need not wake the session. */
void gate_stay_awake(void);

/* Called in the child of a fork. */
void gate_reset(void);

/* Stop sending calls the slow way where the hook does not act. Returns whether that is so. */
bool gate_is_off(void);

#endif
