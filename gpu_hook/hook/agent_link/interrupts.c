#include "agent_link/interrupts.h"

#include "base/guard.h"
#include "base/guest_thread.h"
#include "base/log.h"
#include "agent_link/page.h"
#include "base/times.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST_LOOK_NANOSECONDS 1000000
#define LAST_LOOK_NANOSECONDS 5000000 /* sleep of a thread that has waited long */
/* for so long a handled signal is held back; then the thread sleeps anew */
#define SLICE_NANOSECONDS 250000000ull
/* the same where no thread could be started to read the page */
#define UNWATCHED_NANOSECONDS 5000000ull
/* for the signal to find a waiting thread; then every wait is given up */
#define GRACE_NANOSECONDS 200000000ull
/* the agent may report an interrupt so much later than its signal came */
#define TAKEN_NANOSECONDS 2000000000ull
#define RETRY_NANOSECONDS 300000000ull  /* frameworks free memory, and request again */

enum watch { WATCH_NONE, WATCH_RUNS, WATCH_FAILED };

static struct {
    uint32_t bell;     /* a futex */
    uint32_t waiting;  /* threads; a futex */
    uint32_t watch;    /* enum watch */
    uint64_t taken_at; /* when a thread's wait was last ended by the signal itself; 0: never */
    uint32_t taken;    /* the page's `interrupts` with that one in it; written before taken_at */
} state;

static __thread struct {
    uint64_t gave_up_at;
    bool has_ended;
} own __attribute__((tls_model("initial-exec")));

static long futex(const uint32_t *word, int what, uint32_t value, const struct timespec *limit)
{
    return syscall(SYS_futex, word, what, value, limit, NULL, 0);
}

uint32_t interrupts_bell(void)
{
    return __atomic_load_n(&state.bell, __ATOMIC_ACQUIRE);
}

void interrupts_ring(void)
{
    __atomic_fetch_add(&state.bell, 1, __ATOMIC_RELEASE);
    futex(&state.bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

static uint32_t read_reported(void)
{
    return __atomic_load_n(&page_agent()->interrupts, __ATOMIC_ACQUIRE);
}

/* The words of the page that hold threads here. */
struct words {
    uint32_t lease, gate, workload_class, reported;
};

static struct words read_words(void)
{
    const struct aliquot_agent_page *page = page_agent();
    return (struct words){__atomic_load_n(&page->lease, __ATOMIC_ACQUIRE),
                          __atomic_load_n(&page->gate, __ATOMIC_ACQUIRE),
                          __atomic_load_n(&page->workload_class, __ATOMIC_ACQUIRE),
                          read_reported()};
}

/* Called while threads wait. Its last reading is from before any of them looked: a change since
 * then rings the bell. */
static void *watch(void *unused)
{
    struct words seen = {0}, now;
    long pause = FIRST_LOOK_NANOSECONDS;
    prctl(PR_SET_NAME, "aliquot-waits");
    for (;;) {
        if (!__atomic_load_n(&state.waiting, __ATOMIC_ACQUIRE)) {
            futex(&state.waiting, FUTEX_WAIT_PRIVATE, 0, NULL);
            pause = FIRST_LOOK_NANOSECONDS;
            continue;
        }
        const struct timespec length = {0, pause};
        nanosleep(&length, NULL);
        now = read_words();
        pause += pause < LAST_LOOK_NANOSECONDS ? pause / 256 : 0;
        if (memcmp(&seen, &now, sizeof now) == 0)
            continue;
        seen = now;
        pause = FIRST_LOOK_NANOSECONDS;
        interrupts_ring();
    }
    return unused;
}

static void start_watch(void)
{
    uint32_t none = WATCH_NONE;
    if (!__atomic_compare_exchange_n(&state.watch, &none, WATCH_RUNS, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return;
    int failure = guest_thread_start(watch, NULL);
    if (!failure)
        return;
    __atomic_store_n(&state.watch, WATCH_FAILED, __ATOMIC_RELEASE);
    LOG("event=no_thread reason=\"%s\"", strerror(failure));
}

/* The signal's action as the system call knows it; the handler comes first everywhere. */
struct kernel_action {
    uintptr_t handler;
    uint64_t rest[7];
};

/* Find the signals that have a handler. A signal with its default action still stops or ends the
 * program at once, and a signal of the thread's own fault is never held back. */
static void find_handled(sigset_t *handled)
{
    sigemptyset(handled);
    for (int number = 1; number < NSIG; number++) {
        struct kernel_action action = {0};
        bool is_fault = number == SIGSEGV || number == SIGBUS || number == SIGFPE ||
                        number == SIGILL || number == SIGTRAP || number == SIGABRT ||
                        number == SIGSYS;
        /* queries, and sets nothing */
        bool is_found = syscall(SYS_rt_sigaction, number, NULL, &action, sizeof(uint64_t)) == 0;
        if (number != SIGINT && !is_fault && is_found &&
            action.handler > 1 /* neither SIG_DFL nor SIG_IGN */)
            sigaddset(handled, number);
    }
}

void interrupts_begin_unknown(struct interruptible *wait)
{
    uint64_t now = times_now_nanoseconds();
    wait->reported = read_reported();
    wait->reported_at = 0;
    wait->is_retry = own.gave_up_at && now - own.gave_up_at < RETRY_NANOSECONDS;
    find_handled(&wait->handled);
}

void interrupts_begin(struct interruptible *wait)
{
    interrupts_begin_unknown(wait);
    if (__atomic_fetch_add(&state.waiting, 1, __ATOMIC_ACQ_REL) == 0)
        futex(&state.waiting, FUTEX_WAKE_PRIVATE, 1, NULL);
    start_watch();
}

void interrupts_end(void)
{
    __atomic_fetch_sub(&state.waiting, 1, __ATOMIC_ACQ_REL);
}

static bool give_up(uint64_t now)
{
    own.gave_up_at = now;
    own.has_ended = true;
    return true;
}

/* A thread that requests again and again gives up until RETRY_NANOSECONDS after the interrupt,
 * and waits then. */
static bool give_up_again(void)
{
    own.has_ended = true;
    return true;
}

/* Counts wrap. */
static bool is_above(uint32_t one, uint32_t other)
{
    return (int32_t)(one - other) > 0;
}

/* One take accounts for one count: for the one that the agent wrote since this wait began, or
 * else for the next one. */
static void take(const struct interruptible *wait, uint64_t now)
{
    uint32_t reported = read_reported(), last = __atomic_load_n(&state.taken, __ATOMIC_ACQUIRE);
    bool is_counted = is_above(reported, wait->reported) && reported != last;
    __atomic_store_n(&state.taken, is_counted ? reported : reported + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&state.taken_at, now, __ATOMIC_RELEASE);
}

/* The agent reports an interrupt whose signal may have gone to a thread that does not wait here.
 * Where the signal found a waiting thread, that thread alone gives up: the user does not see the
 * others' work running. An agent that started anew counts from 0: a lower number reports no
 * interrupt. */
static bool is_reported(struct interruptible *wait, uint64_t now)
{
    uint32_t reported = read_reported();
    if (!is_above(reported, wait->reported)) {
        wait->reported = reported;
        wait->reported_at = 0;
        return false;
    }
    if (!wait->reported_at)
        wait->reported_at = now;
    uint64_t taken_at = __atomic_load_n(&state.taken_at, __ATOMIC_ACQUIRE);
    bool is_recent = taken_at && taken_at + TAKEN_NANOSECONDS > wait->reported_at;
    if (is_recent && !is_above(reported, __atomic_load_n(&state.taken, __ATOMIC_ACQUIRE))) {
        wait->reported = reported;
        wait->reported_at = 0;
        return false;
    }
    return now - wait->reported_at >= GRACE_NANOSECONDS;
}

/* A handler ran, and every other signal that has one is held back: it was the interrupt's
 * handler. Futexes that wait with a limit return so, too, where the handler was installed with
 * SA_RESTART. */
static bool sleep_once(const struct interruptible *wait, const uint32_t *word, uint32_t seen,
                       uint64_t nanoseconds)
{
    const struct timespec limit = {(time_t)(nanoseconds / TIMES_SECOND),
                                   (long)(nanoseconds % TIMES_SECOND)};
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &wait->handled, &before);
    long result = futex(word, FUTEX_WAIT_PRIVATE, seen, &limit);
    bool is_interrupted = result != 0 && errno == EINTR && !sigismember(&before, SIGINT);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_interrupted;
}

/* Return how long to sleep. A thread that saw an interrupt wakes again when the grace is over. */
static uint64_t longest_sleep(const struct interruptible *wait)
{
    if (__atomic_load_n(&state.watch, __ATOMIC_RELAXED) != WATCH_RUNS)
        return UNWATCHED_NANOSECONDS;
    return wait->reported_at ? GRACE_NANOSECONDS / 10 : SLICE_NANOSECONDS;
}

bool interrupts_sleep_on(struct interruptible *wait, const uint32_t *word, uint32_t seen,
                         uint64_t nanoseconds)
{
    uint64_t now = times_now_nanoseconds();
    if (wait->is_retry)
        return give_up_again();
    if (is_reported(wait, now))
        return give_up(now);
    uint64_t longest = longest_sleep(wait);
    if (!sleep_once(wait, word, seen, nanoseconds < longest ? nanoseconds : longest))
        return false;
    now = times_now_nanoseconds();
    take(wait, now);
    return give_up(now);
}

bool interrupts_sleep(struct interruptible *wait, uint32_t bell, uint64_t nanoseconds)
{
    const struct timespec limit = {(time_t)(nanoseconds / TIMES_SECOND),
                                   (long)(nanoseconds % TIMES_SECOND)};
    if (wait)
        return interrupts_sleep_on(wait, &state.bell, bell, nanoseconds);
    futex(&state.bell, FUTEX_WAIT_PRIVATE, bell, &limit);
    return false;
}

bool interrupts_have_ended(void)
{
    return own.has_ended;
}

void interrupts_forget(void)
{
    own.has_ended = false;
}

void interrupts_reset(void)
{
    state.waiting = state.watch = 0;
    state.taken_at = own.gave_up_at = 0;
    state.taken = 0;
}

/* The exit may come from within a call of the hook, by a signal's handler. */
static void stop_at_exit(void)
{
    if (!guard_is_ours())
        return;
    guest_threads_stop();
    interrupts_ring();
}

void interrupts_watch_exit(void)
{
    atexit(stop_at_exit);
}
