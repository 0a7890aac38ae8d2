#include "gate.h"

#include "activation.h"
#include "cancellation.h"
#include "driver.h"
#include "entry_points.h"
#include "log.h"
#include "page.h"
#include "session.h"

#include <errno.h>
#include <time.h>

#define FIRST_PAUSE_NANOSECONDS 50000
#define LAST_PAUSE_NANOSECONDS 1000000

static const uint32_t needs_attention = 1;
static const uint32_t is_always_open = 0;

const uint32_t *gate_word = &needs_attention;

static struct {
    uint32_t sleeps; /* the session does not tick: the next call wakes it */
} state = {.sleeps = 1};

/* Whom nobody can let in any more, production does not wait for; opportunistic work waits for the next agent. */
static bool is_held(const struct aliquot_agent_page *page)
{
    return __atomic_load_n(&page->gate, __ATOMIC_ACQUIRE) != 0 &&
           !(__atomic_load_n(&page->workload_class, __ATOMIC_RELAXED) == ALIQUOT_PRODUCTION && session_has_lost_agent());
}

static void wait_for_gate(void)
{
    struct timespec pause = {0, FIRST_PAUSE_NANOSECONDS};
    while (is_held(page_agent())) {
        nanosleep(&pause, NULL);
        pause.tv_nsec = pause.tv_nsec * 2 < LAST_PAUSE_NANOSECONDS ? pause.tv_nsec * 2 : LAST_PAUSE_NANOSECONDS;
    }
}

void gate_pass(void)
{
    int saved_errno = errno;
    DEFER_CANCELLATION;
    __atomic_store_n(&gate_word, &page_agent()->gate, __ATOMIC_RELEASE);
    if (__atomic_exchange_n(&state.sleeps, 0, __ATOMIC_ACQ_REL))
        session_wake();
    wait_for_gate();
    errno = saved_errno;
}

/* `sleeps` goes first: a call that comes between the two then wakes the session for nothing, rather than never. */
bool gate_tick(void)
{
    __atomic_store_n(&state.sleeps, 1, __ATOMIC_SEQ_CST);
    bool was_active = __atomic_exchange_n(&gate_word, &needs_attention, __ATOMIC_SEQ_CST) != &needs_attention;
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
}

bool gate_is_off(void)
{
    if (settings()->is_on)
        return false;
    __atomic_store_n(&gate_word, &is_always_open, __ATOMIC_RELAXED);
    return true;
}

void *entry_gate(unsigned index)
{
    void *target = entry_resolve(index);
    if (activation_enter()) {
        gate_pass();
        activation_leave();
    } else {
        gate_is_off();
    }
    return target;
}

static CUresult answer_not_permitted(void)
{
    return CUDA_ERROR_NOT_PERMITTED;
}

void *entry_deny(unsigned index)
{
    if (!settings()->is_on)
        return entry_resolve(index);
    LOG("event=denied name=%s", entry_name(index));
    return (void *)answer_not_permitted;
}
