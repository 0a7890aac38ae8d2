#include "gate/gate.h"

#include "base/cancellation.h"
#include "agent_link/interrupts.h"
#include "base/log.h"
#include "base/settings.h"
#include "agent_link/page.h"
#include "agent_link/session.h"
#include "base/times.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NANOSECONDS TIMES_SECOND /* where no ring came */

static const uint32_t needs_attention = 1;
static const uint32_t is_stopped = 1;
static const uint32_t is_always_open = 0;

const uint32_t *gate_word = &needs_attention;

static struct {
    uint32_t sleeps; /* the session does not tick: the next call wakes it */
    uint32_t waiting;
    bool has_barrier;    /* set before the first call */
    uint32_t was_called; /* since the last tick, where there is no barrier */
} state = {.sleeps = 1};

static bool make_barrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

void gate_prepare(void)
{
    int saved_errno = errno;
    state.has_barrier = make_barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    if (!state.has_barrier)
        LOG("event=no_barrier reason=\"this system lacks membarrier: calls are slower\"");
    errno = saved_errno;
}

void gate_stop(void)
{
    __atomic_store_n(&gate_word, &is_stopped, __ATOMIC_SEQ_CST);
    if (state.has_barrier)
        make_barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void gate_resume(void)
{
    __atomic_store_n(&gate_word, &needs_attention, __ATOMIC_RELEASE);
}

uint32_t gate_count_waiting(int change)
{
    uint32_t count = __atomic_add_fetch(&state.waiting, (uint32_t)change, __ATOMIC_ACQ_REL);
    __atomic_store_n(&page_hook()->waiting_calls, count, __ATOMIC_RELEASE);
    return count;
}

/* Return whether calls wait at the gate. A paced gate holds no call here: launches wait elsewhere
 * (pacing.h). Once the agent is lost, production goes on, because nothing could open the gate
 * again; opportunistic work then waits for the next agent, however the gate stood. */
static bool is_held(const struct aliquot_agent_page *page)
{
    uint32_t gate = __atomic_load_n(&page->gate, __ATOMIC_ACQUIRE);
    bool is_closed = gate != ALIQUOT_GATE_OPEN && gate != ALIQUOT_GATE_PACED,
         is_lost = session_has_lost_agent();
    if (__atomic_load_n(&page->workload_class, __ATOMIC_RELAXED) == ALIQUOT_PRODUCTION)
        return is_closed && !is_lost;
    return is_closed || is_lost;
}

/* False: an interrupt ended the wait. */
static bool wait_for_gate(void)
{
    struct interruptible wait;
    bool is_given_up = false;
    if (!is_held(page_agent()))
        return true;
    interrupts_begin(&wait);
    gate_count_waiting(1);
    for (uint32_t bell = interrupts_bell(); is_held(page_agent()) && !is_given_up;
         bell = interrupts_bell())
        is_given_up = interrupts_sleep(&wait, bell, LOOK_NANOSECONDS);
    gate_count_waiting(-1);
    interrupts_end();
    if (is_given_up)
        LOG("event=wait_ended reason=interrupt what=\"the kernel's turn on the device\"");
    return !is_given_up;
}

/* Let later calls take the fast way, unless the kernel lacks the lease, which is another word, or
 * the agent is lost. */
static void show_gate(const struct aliquot_agent_page *page)
{
    const uint32_t *expected = &needs_attention, *shown = &page->gate;
    if (!state.has_barrier)
        __atomic_store_n(&state.was_called, 1, __ATOMIC_RELAXED);
    else if (__atomic_load_n(&page->lease, __ATOMIC_ACQUIRE) == ALIQUOT_LEASE_HELD)
        __atomic_compare_exchange_n(&gate_word, &expected, shown, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_RELAXED);
    if (session_has_lost_agent()) /* perhaps since the last query */
        __atomic_compare_exchange_n(&gate_word, &shown, &needs_attention, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_RELAXED);
}

void gate_lose_agent(void)
{
    const uint32_t *shown = &page_agent()->gate;
    __atomic_compare_exchange_n(&gate_word, &shown, &needs_attention, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_RELAXED);
}

bool gate_pass(void)
{
    int saved_errno = errno;
    DEFER_CANCELLATION;
    show_gate(page_agent());
    if (__atomic_exchange_n(&state.sleeps, 0, __ATOMIC_ACQ_REL))
        session_wake();
    bool has_passed = wait_for_gate();
    errno = saved_errno;
    return has_passed;
}

/* `sleeps` is set first: a call between the two steps then wakes the session for nothing, rather
 * than never. */
bool gate_tick(void)
{
    __atomic_store_n(&state.sleeps, 1, __ATOMIC_SEQ_CST);
    const uint32_t *expected = &page_agent()->gate;
    bool was_active = state.has_barrier
                          ? __atomic_compare_exchange_n(&gate_word, &expected, &needs_attention,
                                                        false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)
                          : __atomic_exchange_n(&state.was_called, 0, __ATOMIC_RELAXED) != 0;
    if (was_active)
        gate_stay_awake();
    return was_active;
}

void gate_stay_awake(void)
{
    __atomic_store_n(&state.sleeps, 0, __ATOMIC_RELEASE);
}

void gate_reset(void)
{
    gate_word = &needs_attention;
    state.sleeps = 1;
    state.waiting = 0;
}

bool gate_is_off(void)
{
    if (settings()->is_on)
        return false;
    __atomic_store_n(&gate_word, &is_always_open, __ATOMIC_RELAXED);
    return true;
}
