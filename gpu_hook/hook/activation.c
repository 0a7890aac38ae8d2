#include "activation.h"

#include "accounting/allocations.h"
#include "memory/arrays.h"
#include "agent_link/board.h"
#include "agent_link/board_notices.h"
#include "streams/captures.h"
#include "accounting/contexts.h"
#include "swap/drain.h"
#include "swap/elastic.h"
#include "swap/gate.h"
#include "memory/graph_memory.h"
#include "streams/green_owners.h"
#include "base/guest_thread.h"
#include "agent_link/interrupts.h"
#include "streams/launch.h"
#include "base/log.h"
#include "swap/managed_mode.h"
#include "copy_engine/mover_lanes.h"
#include "swap/moves.h"
#include "agent_link/neighbours.h"
#include "compute/pacing.h"
#include "agent_link/page.h"
#include "swap/pieces.h"
#include "memory/pools.h"
#include "accounting/quota.h"
#include "swap/residency.h"
#include "copy_engine/ring.h"
#include "compute/samples.h"
#include "copy_engine/segments.h"
#include "base/settings.h"
#include "memory/sparse.h"
#include "swap/staying.h"
#include "interpose/unknown_functions.h"
#include "vmm/vmm.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex; /* guards a change of `owner` */
    pid_t owner;           /* the process that the hook started in; 0: none yet */
    /* 1 in that process. In a page that the kernel wipes at fork, however the child was made, so that no call needs
     * to ask for its pid. NULL: not started, or a kernel before 4.14. */
    uint32_t *is_owner;
    bool has_fork_handler, has_exit_handler;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static __thread bool is_inside __attribute__((tls_model("initial-exec")));

/* The inherited socket would keep the parent's registration alive after the parent's death. The counters are given
 * back when the thread ends, before any cuInit of the child, under a lock that nobody may hold for ever. */
static void leave_in_child(void)
{
    guest_threads_reset();
    session_leave();
    segments_leave();
    page_forget();
    board_forget();
    neighbours_forget();
    green_owners_reset();
    drain_reset();
    pacing_abandon();
    pthread_mutex_init(&state.mutex, NULL);
    threads_reset();
}

static void forget_parent(void)
{
    LOG("event=restarted_after_fork parent=%d", (int)state.owner);
    page_forget();
    board_forget();
    neighbours_forget();
    session_reset();
    segments_reset();
    ring_reset();
    lanes_reset();
    quota_reset();
    allocations_reset();
    elastic_reset();
    pieces_reset();
    managed_mode_reset();
    staying_reset();
    vmm_reset();
    sparse_reset();
    pools_reset();
    arrays_reset();
    captures_reset();
    green_owners_reset();
    graph_memory_reset();
    contexts_reset();
    gate_reset();
    interrupts_reset();
    residency_reset();
    moves_reset();
    unknown_functions_reset();
    drain_reset();
    threads_reset();
    launch_reset();
    pacing_reset();
    samples_reset();
}

/* With the mutex. */
static void mark_owner(pid_t self)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (!state.is_owner) {
        void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED && madvise(page, bytes, MADV_WIPEONFORK) == 0) {
            *(uint32_t *)page = 1;
            __atomic_store_n(&state.is_owner, page, __ATOMIC_RELEASE);
        } else if (page != MAP_FAILED) {
            munmap(page, bytes);
        }
    } else {
        *state.is_owner = 1;
    }
    __atomic_store_n(&state.owner, self, __ATOMIC_RELEASE);
}

/* What the session's thread does that may ask the driver; nothing any more when the program exits. */
#define WITH_DRIVER(work)           \
    do {                            \
        if (guest_threads_enter()) { \
            work;                   \
            guest_threads_leave();  \
        }                           \
    } while (0)

static uint32_t describe(struct aliquot_hello_device devices[ALIQUOT_HELLO_ENTRIES])
{
    uint32_t count = 0;
    WITH_DRIVER(count = quota_describe(devices));
    return count;
}

static void show_registered(void)
{
    quota_registered();
    residency_registered();
    moves_registered();
    unknown_functions_registered();
    board_notices_registered();
    samples_registered();
    pacing_registered();
}

static void tell_registered(void)
{
    WITH_DRIVER(show_registered());
}

static void take_grant(uint32_t device, uint64_t bytes)
{
    WITH_DRIVER(quota_granted(device, bytes));
}

static void answer_recall(const struct aliquot_credit *recall)
{
    WITH_DRIVER(quota_recalled(recall));
}

static void take_order(const struct aliquot_swap *order)
{
    WITH_DRIVER(moves_ordered(order));
}

static bool tick_all(void)
{
    residency_tick();
    moves_tick();
    pacing_tick();
    return launch_tick();
}

static bool tick(void)
{
    bool is_due = false;
    WITH_DRIVER(is_due = tick_all());
    return is_due;
}

static bool is_ours(void)
{
    const uint32_t *is_owner = __atomic_load_n(&state.is_owner, __ATOMIC_ACQUIRE);
    return is_owner ? *is_owner : __atomic_load_n(&state.owner, __ATOMIC_ACQUIRE) == getpid();
}

/* Also where the exit comes from within a call of the hook's, by a signal's handler. */
static void stop_at_exit(void)
{
    if (!is_ours())
        return;
    guest_threads_stop();
    interrupts_ring(); /* what waits for those threads need not */
}

void activation_watch_exit(void)
{
    atexit(stop_at_exit);
}

void activation_begin(void)
{
    static const struct session_owner owner = {
        .describe = describe,
        .place = moves_place,
        .registered = tell_registered,
        .lost = gate_lose_agent,
        .granted = take_grant,
        .recalled = answer_recall,
        .segment = moves_segment,
        .swap = take_order,
        .board = board_notices_handle,
        .tick = tick,
    };
    if (!settings()->is_on)
        return;
    pthread_mutex_lock(&state.mutex);
    pid_t self = getpid();
    pid_t previous = __atomic_load_n(&state.owner, __ATOMIC_RELAXED);
    bool is_ready = true;
    if (previous != self) {
        if (previous)
            forget_parent();
        is_ready = page_prepare() && board_prepare();
        gate_prepare();
        if (!state.has_fork_handler)
            state.has_fork_handler = pthread_atfork(NULL, NULL, leave_in_child) == 0;
        if (!state.has_exit_handler)
            activation_watch_exit();
        state.has_exit_handler = true;
        if (is_ready)
            mark_owner(self);
        else
            LOG("event=not_started reason=\"no memory for the pages\"");
    }
    pthread_mutex_unlock(&state.mutex);
    if (is_ready && previous != self)
        LOG("event=started");
    if (is_ready)
        session_start(&owner);
}

bool activation_enter(void)
{
    if (is_inside || !settings()->is_on || !is_ours())
        return false;
    is_inside = true;
    return true;
}

void activation_leave(void)
{
    is_inside = false;
}
