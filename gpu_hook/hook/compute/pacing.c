#include "compute/pacing.h"

#include "base/guard.h"
#include "base/cancellation.h"
#include "accounting/devices.h"
#include "base/guest_thread.h"
#include "agent_link/interrupts.h"
#include "base/log.h"
#include "compute/pace_rule.h"
#include "agent_link/page.h"
#include "gate/residency.h"
#include "agent_link/session.h"
#include "base/times.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NANOSECONDS 250000      /* while work is under way */
#define LINGER_LOOKS 20u             /* without work, before the thread sleeps until it is woken */
/* where launches wait longer, the thread polls less often */
#define PATIENCE_NANOSECONDS 10000000ull
/* a waiting launch that was not resumed checks all the same */
#define ASK_NANOSECONDS 20000000ull

static struct {
    struct batches *devices[DEVICES_MAX]; /* made once each, never freed */
    uint32_t sleeps;    /* the thread that looks; a futex */
    uint32_t has_thread;
    uint32_t has_failed; /* there is no thread: waiting threads look themselves */
    uint32_t waiting;    /* launches */
    uint32_t turns;      /* a futex: a waiting thread, or all of them, may check again */
    uint32_t generation; /* another one in the child of a fork */
} state;

__thread struct stream_timer *pacing_open_timer;

static __thread struct {
    struct batches *batches; /* of the current context's device; NULL: not known */
    uint32_t generation;
    CUcontext context;
    struct stream_timer *timer; /* launched into last */
    struct batches *open_batches; /* of pacing_open_timer */
} own __attribute__((tls_model("initial-exec")));

bool pacing_is_used(void)
{
    return __atomic_load_n(&state.has_thread, __ATOMIC_RELAXED) != 0;
}

bool pacing_is_on(void)
{
    return __atomic_load_n(&page_agent()->gate, __ATOMIC_ACQUIRE) == ALIQUOT_GATE_PACED;
}

static struct batches *batches_of(int device)
{
    return __atomic_load_n(&state.devices[device], __ATOMIC_ACQUIRE);
}

static void stop_at_exit(void)
{
    if (!guard_enter())
        return;
    for (int device = 0; device < DEVICES_MAX; device++)
        if (batches_of(device))
            batches_stop(batches_of(device));
    guard_leave();
}

static bool poll_all(void)
{
    bool is_busy = false;
    for (int device = 0; device < DEVICES_MAX; device++)
        if (batches_of(device))
            is_busy |= batches_poll(batches_of(device), true);
    return is_busy;
}

/* Called on the thread that polls. False: the program exits. */
static bool poll_once(bool *is_busy)
{
    if (!guest_threads_enter())
        return false;
    *is_busy = poll_all();
    guest_threads_leave();
    return true;
}

static void relax(void)
{
    /* this thread's calls do not disturb other threads' captures */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!guest_threads_enter())
        return;
    driver()->cuThreadExchangeStreamCaptureMode(&mode);
    guest_threads_leave();
}

/* Return whether the pace is void: production goes on when the agent is lost. */
static bool is_pace_void(void)
{
    return __atomic_load_n(&page_agent()->workload_class, __ATOMIC_RELAXED) == ALIQUOT_PRODUCTION &&
           session_has_lost_agent();
}

/* Resume waiting launches one after the other, because the next one's turn depends on what the one
 * before launches. */
static bool resume_waiting(void)
{
    bool is_over = !pacing_is_on() || is_pace_void(), may_begin = is_over;
    for (int device = 0; device < DEVICES_MAX; device++) {
        if (!batches_of(device))
            continue;
        batches_count_waiting(batches_of(device), 0);
        may_begin = may_begin || batches_can_begin(batches_of(device));
    }
    if (may_begin) {
        __atomic_fetch_add(&state.turns, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &state.turns, FUTEX_WAKE_PRIVATE, is_over ? INT_MAX : 1, NULL, NULL, 0);
    }
    return may_begin;
}

/* Return the time until the next poll: short while launches wait, longer where they have waited for
 * long. */
static long time_to_next_poll(uint64_t *since)
{
    uint64_t now = times_now_nanoseconds();
    if (!__atomic_load_n(&state.waiting, __ATOMIC_ACQUIRE)) {
        *since = 0;
        return LOOK_NANOSECONDS;
    }
    if (resume_waiting() || !*since)
        *since = now;
    uint64_t waited = now - *since,
             least = waited < PATIENCE_NANOSECONDS ? PACE_LOOK_NANOSECONDS : waited / 100;
    return (long)(least < PACE_REST_NANOSECONDS ? least : PACE_REST_NANOSECONDS);
}

static void *run(void *unused)
{
    uint64_t since = 0;
    unsigned idle = 0;
    bool is_busy;
    prctl(PR_SET_NAME, "aliquot-pacing");
    relax();
    while (poll_once(&is_busy)) {
        const struct timespec pause = {0, time_to_next_poll(&since)};
        idle = is_busy || since ? 0 : idle + 1;
        if (idle < LINGER_LOOKS) {
            nanosleep(&pause, NULL);
            continue;
        }
        __atomic_store_n(&state.sleeps, 1, __ATOMIC_SEQ_CST);
        if (poll_once(&is_busy) && !is_busy && !__atomic_load_n(&state.waiting, __ATOMIC_SEQ_CST))
            syscall(SYS_futex, &state.sleeps, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
        __atomic_store_n(&state.sleeps, 0, __ATOMIC_RELEASE);
        idle = 0;
    }
    return unused;
}

/* Start or wake the thread that polls. Where there is none, waiting launches and returning calls
 * poll. */
static void wake_thread(void)
{
    if (__builtin_expect(!__atomic_load_n(&state.has_thread, __ATOMIC_ACQUIRE), 0) &&
        !__atomic_exchange_n(&state.has_thread, 1, __ATOMIC_ACQ_REL)) {
        atexit(stop_at_exit);
        int failure = guest_thread_start(run, NULL);
        if (failure) {
            __atomic_store_n(&state.has_failed, 1, __ATOMIC_RELEASE);
            LOG("event=no_thread reason=\"%s\"", strerror(failure));
        }
    }
    if (__atomic_load_n(&state.sleeps, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&state.sleeps, 0, __ATOMIC_ACQ_REL))
        syscall(SYS_futex, &state.sleeps, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void pacing_forget_context(void)
{
    own.batches = NULL;
    own.timer = NULL;
}

/* Return the batches of the current context's device; NULL: there is none, or no memory. */
static struct batches *find_batches(void)
{
    if (own.batches && own.generation == state.generation)
        return own.batches;
    pacing_forget_context();
    int device = devices_current();
    if (device < 0 || device >= DEVICES_MAX ||
        driver()->cuCtxGetCurrent(&own.context) != CUDA_SUCCESS)
        return NULL;
    struct batches *found = batches_of(device), *made = found ? NULL : batches_new(device);
    if (made && __atomic_compare_exchange_n(&state.devices[device], &found, made, false,
                                            __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        found = made;
    else
        free(made);
    own.batches = found;
    own.generation = state.generation;
    return found;
}

/* Return the pause of a launch that no thread resumes. */
static uint64_t own_rest(uint64_t wait, uint64_t waited)
{
    uint64_t least = waited < PATIENCE_NANOSECONDS ? 0 : waited / 100; /* a hundredth more */
    if (least > PACE_REST_NANOSECONDS)
        least = PACE_REST_NANOSECONDS;
    return wait > least ? wait : least;
}

/* Return the nanoseconds to wait; 0: it may go on. */
static uint64_t ask(struct batch_launch *launch, bool may_wait)
{
    launch->context = own.context;
    launch->timer = own.timer;
    launch->may_wait = may_wait && pacing_is_on() && !is_pace_void();
    return batches_begin(launch->batches, launch);
}

/* The caller leaves every call that it entered: so the thread is marked again, though its memory
 * may be away. The caller touches none. */
static void give_up(struct batch_launch *launch)
{
    launch->is_given_up = true;
    launch->timer = NULL;
    threads_mark(threads_own);
}

/* A waiting thread is inside no call, so that its memory may be moved; and each time that it goes
 * on it passes the gate, which shows the kernel's activity. */
static void await_turn(struct batch_launch *launch, uint64_t wait)
{
    int saved_errno = errno;
    uint64_t since = times_now_nanoseconds();
    struct interruptible interruptible;
    DEFER_CANCELLATION;
    interrupts_begin(&interruptible);
    batches_count_waiting(launch->batches, 1);
    __atomic_fetch_add(&state.waiting, 1, __ATOMIC_SEQ_CST);
    wake_thread();
    while (wait && !launch->is_given_up) {
        bool is_alone = __atomic_load_n(&state.has_failed, __ATOMIC_ACQUIRE);
        uint32_t seen = __atomic_load_n(&state.turns, __ATOMIC_ACQUIRE);
        uint64_t length =
            is_alone ? own_rest(wait, times_now_nanoseconds() - since) : ASK_NANOSECONDS;
        residency_leave();
        launch->is_given_up = interrupts_sleep_on(&interruptible, &state.turns, seen, length);
        if (is_alone)
            batches_poll(launch->batches, false);
        if (launch->is_given_up || !residency_enter())
            give_up(launch);
        else
            wait = ask(launch, true);
    }
    __atomic_fetch_sub(&state.waiting, 1, __ATOMIC_SEQ_CST);
    batches_count_waiting(launch->batches, -1);
    interrupts_end();
    errno = saved_errno;
}

/* A call inside another, by a signal's handler, waits for nothing: the outer one could not be moved
 * meanwhile. */
static bool is_nested(void)
{
    return !threads_own || threads_own->inside > 1;
}

void pacing_begin(struct batch_launch *launch)
{
    launch->batches = find_batches();
    launch->timer = NULL;
    if (!launch->batches)
        return;
    uint64_t wait = ask(launch, launch->may_wait && !is_nested());
    if (__builtin_expect(wait != 0, 0))
        await_turn(launch, wait);
    if (!launch->timer)
        return;
    own.timer = launch->timer;
    pacing_open_timer = NULL;
    wake_thread();
}

void pacing_end(struct batch_launch *launch, CUresult result)
{
    if (!launch->timer)
        return;
    bool is_open = true;
    if (launch->closes || result != CUDA_SUCCESS)
        is_open = batches_end(launch->batches, launch, result);
    else
        batches_pass(launch->timer);
    if (is_open) {
        pacing_open_timer = launch->timer;
        own.open_batches = launch->batches;
    }
}

struct batches *pacing_begin_gate(void)
{
    bool is_closed = __atomic_load_n(&page_agent()->gate, __ATOMIC_ACQUIRE) == ALIQUOT_GATE_CLOSED;
    struct batches *batches = is_closed ? find_batches() : NULL;
    if (batches)
        batches_count_waiting(batches, 1);
    return batches;
}

void pacing_end_gate(struct batches *batches)
{
    if (batches)
        batches_count_waiting(batches, -1);
}

void pacing_close_open_timer(void)
{
    struct stream_timer *timer = pacing_open_timer;
    pacing_open_timer = NULL;
    if (own.generation == state.generation)
        batches_close(own.open_batches, timer);
}

void pacing_poll(void)
{
    if (own.batches && own.generation == state.generation && pacing_is_on())
        batches_poll(own.batches, false);
}

void pacing_note_stream(unsigned int flags)
{
    struct batches *batches = flags & CU_STREAM_NON_BLOCKING ? NULL : find_batches();
    if (!batches)
        return;
    pacing_close(); /* while a record in the legacy stream is no barrier yet */
    batches_note_blocking(batches);
}

#define FOR_EACH_DEVICE(act)                                       \
    for (int device = 0; device < DEVICES_MAX; device++) {         \
        struct batches *batches = batches_of(device);                 \
        if (batches)                                                \
            act;                                                   \
    }

void pacing_begin_capture(CUstream stream)
{
    FOR_EACH_DEVICE(batches_begin_capture(batches, stream))
}

bool pacing_end_stream(CUstream stream, CUresult (*real)(CUstream))
{
    bool is_left = false;
    pacing_close();
    FOR_EACH_DEVICE(is_left |= batches_end_stream(batches, stream, real))
    return is_left;
}

void pacing_suspend(CUcontext ending)
{
    FOR_EACH_DEVICE(batches_suspend(batches, ending))
}

void pacing_resume(CUcontext ended)
{
    FOR_EACH_DEVICE(batches_resume(batches, ended))
}

void pacing_registered(void)
{
    FOR_EACH_DEVICE(batches_registered(batches))
}

void pacing_tick(void)
{
    FOR_EACH_DEVICE(batches_count_waiting(batches, 0))
}

void pacing_abandon(void)
{
    FOR_EACH_DEVICE(batches_abandon(batches))
}

/* The memory that the parent's devices hold is not freed. */
void pacing_reset(void)
{
    pacing_abandon();
    for (int device = 0; device < DEVICES_MAX; device++)
        state.devices[device] = NULL;
    state.sleeps = state.has_thread = state.has_failed = state.waiting = 0;
    state.generation++;
}
