/* The kernel's gate. A call that touches the device looks at one word;
 * not 0 means the slow way, which waits while the agent holds the gate closed. */
#ifndef ALIQUOT_GATE_H
#define ALIQUOT_GATE_H

#include <stdbool.h>
#include <stdint.h>

/* Points to the gate in the agent's page; to a word that is not 0 where the next call is to take the slow way: before
 * the hook acts, and after each tick, so that calls show activity without writing anything. */
extern const uint32_t *gate_word __attribute__((visibility("hidden")));

/* As of now, for a thread that has marked its record: what is read counts as gate_is_open's answer does. */
static inline uint32_t gate_read(void)
{
    return __atomic_load_n(__atomic_load_n(&gate_word, __ATOMIC_ACQUIRE), __ATOMIC_RELAXED);
}

static inline bool gate_is_open(void)
{
    return __atomic_load_n(__atomic_load_n(&gate_word, __ATOMIC_ACQUIRE), __ATOMIC_RELAXED) == 0;
}

/* Once, before the first call: whether the system has a barrier for all threads of a process. Where it has none, every
 * call takes the slow way, which has a fence of its own. */
void gate_prepare(void);

/* From now on every call takes the slow way, whoever passes; and every call that did not see it has left a mark that is
 * seen after the return (threads.h). Until gate_let_on. */
void gate_stop(void);
void gate_let_on(void);

/* Threads that wait for the gate or the lease: +1, -1; 0 writes the number to a new page. Returns the number. */
uint32_t gate_count_waiting(int change);

/* Between guard_enter and guard_leave: marks activity, and waits while the gate is closed. False: an interrupt
 * ended the wait (interrupts.h). What gives memory back goes on all the same. */
bool gate_pass(void);

/* Called on the session's thread: the agent is lost. Calls take the slow way, where opportunistic work waits. */
void gate_lose_agent(void);

/* Called on the session's thread: whether a call passed since the last time. */
bool gate_tick(void);

/* The tick found work after all, by other signs: calls need not wake the session. */
void gate_stay_awake(void);

/* In the child of a fork. */
void gate_reset(void);

/* The hook does not act: no call need take the slow way again. Returns whether that is so. */
bool gate_is_off(void);

#endif
