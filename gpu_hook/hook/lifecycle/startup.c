/* Joins the parts: the hook starts when the real cuInit succeeded, sleeps in the child of a fork
 * until that child's own cuInit, and leaves the driver alone when the program exits. */
#include "accounting/allocations.h"
#include "accounting/devices.h"
#include "memory/arrays.h"
#include "agent_link/activity_page.h"
#include "agent_link/entrance.h"
#include "compute/peer_notices.h"
#include "contexts/captures.h"
#include "lifecycle/context_calls.h"
#include "contexts/contexts.h"
#include "contexts/drain.h"
#include "swappable/swappable.h"
#include "gate/gate.h"
#include "charging/graph_memory.h"
#include "contexts/green_owners.h"
#include "base/guard.h"
#include "interpose/driver.h"
#include "base/guest_thread.h"
#include "agent_link/interrupts.h"
#include "streams/launch.h"
#include "base/log.h"
#include "swappable/managed_mode.h"
#include "copy_engine/copy_contexts.h"
#include "swap/moves.h"
#include "compute/peers.h"
#include "compute/pacing.h"
#include "agent_link/page.h"
#include "swap/extents.h"
#include "charging/pools.h"
#include "accounting/quota.h"
#include "ordered/ordered_pools.h"
#include "gate/residency.h"
#include "copy_engine/ring.h"
#include "compute/samples.h"
#include "copy_engine/segments.h"
#include "base/settings.h"
#include "memory/sparse.h"
#include "accounting/pin_reasons.h"
#include "accounting/swappability.h"
#include "interpose/unknown_functions.h"
#include "interpose/visible.h"
#include "vmm/vmm.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex; /* guards a change of guard_owner */
    pthread_once_t once;
    bool has_exit_handler;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* The inherited socket would keep the parent's registration alive after the parent's death. The
 * counters are given back when the thread ends, before any cuInit of the child, under a lock that
 * no thread may hold for ever. */
static void leave_in_child(void)
{
    guest_threads_reset();
    session_leave();
    segments_leave();
    page_forget();
    activity_page_forget();
    peers_forget();
    green_owners_reset();
    drain_reset();
    pacing_abandon();
    pthread_mutex_init(&state.mutex, NULL);
    threads_reset();
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, leave_in_child);
}

static void forget_parent(void)
{
    LOG("event=restarted_after_fork parent=%d", (int)guard_owner());
    page_forget();
    activity_page_forget();
    peers_forget();
    session_reset();
    segments_reset();
    ring_reset();
    copy_contexts_reset();
    quota_reset();
    allocations_reset();
    swappable_reset();
    swappability_reset();
    extents_reset();
    managed_mode_reset();
    pin_reasons_reset();
    vmm_reset();
    sparse_reset();
    pools_reset();
    ordered_reset();
    arrays_reset();
    captures_reset();
    green_owners_reset();
    graph_memory_reset();
    contexts_reset();
    context_calls_reset();
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

/* Do work of the session's thread that may ask the driver; when the program exits, do nothing. */
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
    devices_registered();
    quota_registered();
    residency_registered();
    moves_registered();
    unknown_functions_registered();
    peer_notices_registered();
    samples_registered();
    pacing_registered();
}

static void tell_registered(void)
{
    entrance_registered();
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

static void start(void)
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
        .activity = peer_notices_handle,
        .tick = tick,
    };
    if (!settings()->is_on)
        return;
    pthread_once(&state.once, watch_forks); /* before the lock: a fork may come at any time */
    pthread_mutex_lock(&state.mutex);
    pid_t self = getpid();
    pid_t previous = guard_owner();
    if (previous != self) {
        if (previous)
            forget_parent();
        gate_prepare();
        if (!state.has_exit_handler)
            interrupts_watch_exit();
        state.has_exit_handler = true;
        guard_set_owner(self);
    }
    pthread_mutex_unlock(&state.mutex);
    if (previous != self)
        LOG("event=started");
    session_start(&owner);
}

CUresult cuInit(unsigned int flags)
{
    if (!entrance_enter())
        return CUDA_ERROR_SYSTEM_NOT_READY;
    bool has_chosen = visible_begin();
    CUresult result = driver()->cuInit(flags);
    if (has_chosen)
        visible_end();
    if (result == CUDA_SUCCESS)
        start();
    entrance_leave(result == CUDA_SUCCESS);
    return result;
}
