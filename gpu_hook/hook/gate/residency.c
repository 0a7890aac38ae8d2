#include "gate/residency.h"

#include "base/cancellation.h"
#include "gate/gate.h"
#include "base/guest_thread.h"
#include "agent_link/interrupts.h"
#include "base/log.h"
#include "agent_link/page.h"
#include "agent_link/session.h"
#include "base/times.h"

#include <errno.h>
#include <time.h>

#define FIRST_PAUSE_NANOSECONDS 10000
#define LAST_PAUSE_NANOSECONDS 1000000
#define LOOK_NANOSECONDS 5000000   /* at a move's end, which rings */
/* an agent that was too slow to receive a WAKE is sent another */
#define AGAIN_NANOSECONDS 50000000

static struct {
    uint32_t place;     /* enum aliquot_residency; written by the mover alone */
    uint32_t untracked; /* threads without a record, inside a call */
    uint32_t has_woken; /* the kernel, since the memory or the lease went away */
} state;

static uint32_t place(void)
{
    return __atomic_load_n(&state.place, __ATOMIC_ACQUIRE);
}

/* Return whether calls have to wait. Production does not wait for a lease that no agent can give
 * back any more. Bytes that are swapped out need an agent. */
static bool is_out(void)
{
    const struct aliquot_agent_page *page = page_agent();
    if (place() != ALIQUOT_RESIDENT)
        return true;
    return __atomic_load_n(&page->lease, __ATOMIC_ACQUIRE) != ALIQUOT_LEASE_HELD &&
           !(__atomic_load_n(&page->workload_class, __ATOMIC_RELAXED) == ALIQUOT_PRODUCTION &&
             session_has_lost_agent());
}

static bool is_moving(void)
{
    uint32_t now = place();
    return now == ALIQUOT_SWAPPING_OUT || now == ALIQUOT_SWAPPING_IN;
}

/* Send WAKE once per swap-out, after it completed. A move that fails restores the process without
 * it. */
static void wake_kernel(uint32_t waiting)
{
    union socket_message message = {.wake = {.waiting_calls = waiting}};
    if (is_moving() || __atomic_exchange_n(&state.has_woken, 1, __ATOMIC_ACQ_REL))
        return;
    if (!session_send(&message, ALIQUOT_WAKE, sizeof message.wake))
        __atomic_store_n(&state.has_woken, 0, __ATOMIC_RELEASE);
}

/* Withdraw the last WAKE, because no call waits any more. The next call sends another. */
static void withdraw_wake(void)
{
    union socket_message message = {.wake = {.waiting_calls = 0}};
    __atomic_store_n(&state.has_woken, 0, __ATOMIC_RELEASE);
    session_send(&message, ALIQUOT_WAKE, sizeof message.wake);
}

/* False: an interrupt ended the wait, or the program exits and the memory stays swapped out. */
static bool await_residency(void)
{
    int saved_errno = errno;
    struct interruptible wait;
    bool is_given_up = false;
    DEFER_CANCELLATION;
    interrupts_begin(&wait);
    uint32_t waiting = gate_count_waiting(1), bell = interrupts_bell();
    while (is_out() && !is_given_up) {
        wake_kernel(waiting);
        is_given_up = interrupts_sleep(&wait, bell, AGAIN_NANOSECONDS) || guest_threads_are_over();
        bell = interrupts_bell();
    }
    interrupts_end();
    bool is_last = gate_count_waiting(-1) == 0;
    if (!is_given_up)
        __atomic_store_n(&state.has_woken, 0, __ATOMIC_RELEASE);
    else if (is_last)
        withdraw_wake();
    if (is_given_up)
        LOG("event=wait_ended reason=%s what=\"the kernel's memory\"",
            guest_threads_are_over() ? "exit" : "interrupt");
    errno = saved_errno;
    return !is_given_up;
}

/* Mark a call. NULL: the thread is untracked. */
static void mark(struct thread_record *own)
{
    if (own)
        threads_mark(own);
    else
        __atomic_fetch_add(&state.untracked, 1, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void unmark(struct thread_record *own)
{
    if (own)
        threads_unmark(own);
    else
        __atomic_fetch_sub(&state.untracked, 1, __ATOMIC_RELEASE);
}

/* Mark a call inside another one, made by a signal's handler. Memory does not move before the outer
 * call returns. */
static bool enter_nested(struct thread_record *own)
{
    if (!own || own->inside == 0)
        return false;
    threads_mark(own);
    return true;
}

bool residency_enter_slowly(void)
{
    struct thread_record *own = threads_take();
    if (enter_nested(own))
        return true;
    for (;;) {
        if ((is_out() && !await_residency()) || !gate_pass())
            return false;
        mark(own);
        if (!is_out())
            return true;
        unmark(own);
    }
}

void residency_leave_slowly(void)
{
    unmark(NULL);
}

bool residency_hold(void)
{
    struct thread_record *own = threads_take();
    if (enter_nested(own))
        return place() == ALIQUOT_RESIDENT;
    for (;;) {
        uint32_t bell = interrupts_bell();
        mark(own);
        if (!is_moving())
            return place() == ALIQUOT_RESIDENT;
        unmark(own);
        interrupts_sleep(NULL, bell, LOOK_NANOSECONDS);
    }
}

/* Write the residency to the page. Two threads may do so at a time; the later residency is what
 * remains. */
static void publish(void)
{
    uint32_t written;
    do {
        written = place();
        __atomic_store_n(&page_hook()->residency, written, __ATOMIC_SEQ_CST);
    } while (written != place());
}

static void move_to(enum aliquot_residency next)
{
    __atomic_store_n(&state.place, next, __ATOMIC_SEQ_CST);
    publish();
}

void residency_begin_move(enum aliquot_residency way)
{
    move_to(way);
    gate_stop();
}

static unsigned calls_inside(void)
{
    return threads_inside() + __atomic_load_n(&state.untracked, __ATOMIC_ACQUIRE);
}

unsigned residency_await_calls(const struct timespec *deadline)
{
    struct timespec pause = {0, FIRST_PAUSE_NANOSECONDS};
    unsigned inside;
    while ((inside = calls_inside()) && times_until(deadline).tv_sec >= 0 &&
           !guest_threads_are_over()) {
        nanosleep(&pause, NULL);
        pause.tv_nsec =
            pause.tv_nsec * 2 < LAST_PAUSE_NANOSECONDS ? pause.tv_nsec * 2 : LAST_PAUSE_NANOSECONDS;
    }
    return inside;
}

void residency_end_move(enum aliquot_residency next)
{
    /* until residency_wake: the agent gets the report of the move first */
    if (next != ALIQUOT_RESIDENT)
        __atomic_store_n(&state.has_woken, 1, __ATOMIC_RELEASE);
    move_to(next);
    if (next == ALIQUOT_RESIDENT)
        gate_resume();
    interrupts_ring();
}

void residency_wake(void)
{
    uint32_t waiting = gate_count_waiting(0);
    __atomic_store_n(&state.has_woken, 0, __ATOMIC_RELEASE);
    if (waiting && is_out())
        wake_kernel(waiting);
}

uint32_t residency_describe(void)
{
    return place();
}

void residency_registered(void)
{
    publish();
    gate_count_waiting(0);
    __atomic_store_n(&state.has_woken, 0, __ATOMIC_RELEASE); /* this agent has no report of it */
}

void residency_tick(void)
{
    __atomic_store_n(&page_hook()->calls_inside, calls_inside(), __ATOMIC_RELEASE);
}

void residency_reset(void)
{
    state.place = ALIQUOT_RESIDENT;
    state.untracked = state.has_woken = 0;
}
