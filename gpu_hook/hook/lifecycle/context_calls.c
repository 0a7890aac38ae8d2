#include "lifecycle/context_calls.h"

#include "contexts/contexts.h"

#include "base/guard.h"
#include "accounting/allocations.h"
#include "contexts/captures.h"
#include "charging/charge.h"
#include "charging/context_room.h"
#include "accounting/devices.h"
#include "contexts/drain.h"
#include "interpose/driver.h"
#include "swappable/swappable.h"
#include "charging/graph_memory.h"
#include "contexts/green_owners.h"
#include "streams/launch.h"
#include "swappable/managed_mode.h"
#include "copy_engine/copy_contexts.h"
#include "compute/pacing.h"
#include "charging/pools.h"
#include "gate/residency.h"
#include "copy_engine/ring.h"
#include "memory/sparse.h"
#include "ordered/ordered_pools.h"
#include "vmm/vmm.h"

#include <stdlib.h>

static struct {
    /* a context may have taken some memory with it, while there was no other to query the driver
     * in */
    bool has_doubts;
} state;

void context_calls_reset(void)
{
    state.has_doubts = false;
}

static bool begin_change(void)
{
    bool acts = guard_enter();
    if (acts) {
        residency_hold();
        contexts_hold();
    }
    return acts;
}

/* One call that makes a context, which takes memory of its device. */
struct creation {
    CUdevice device;
    bool acts;
    struct context_room room;
};

/* The wait comes before the lock: meanwhile other threads may end theirs. The call does not wait
 * for the agent's first answer, which would delay a program's first context. False: the call
 * answers out of memory. */
static bool begin_creation(struct creation *creation, CUdevice device)
{
    *creation = (struct creation){device, guard_enter(), CONTEXT_ROOM_NONE};
    if (!creation->acts)
        return true;
    if (!residency_enter()) {
        guard_leave();
        return false;
    }
    contexts_hold();
    return true;
}

static CUresult end_change(bool acts, CUresult result)
{
    launch_forget_device();
    if (acts) {
        contexts_release();
        swappable_sweep();
        swappable_contexts_changed();
        residency_leave();
        guard_leave();
    }
    return result;
}

/* Called after the driver's answer: wait for room, and return whether to call the driver again.
 * Meanwhile the process may move, and other threads may end their contexts. */
static bool is_due_again(struct creation *creation, CUresult result)
{
    if (!creation->acts || result != CUDA_ERROR_OUT_OF_MEMORY)
        return false;
    contexts_release();
    residency_leave();
    bool is_due = context_room_await(&creation->room, creation->device);
    creation->acts = residency_enter();
    if (!creation->acts) {
        guard_leave();
        return false;
    }
    contexts_hold();
    return is_due;
}

/* Called before a context may end; NULL: before the device's primary one may; a device of -1:
 * any. A move that this call waits for may leave a wait behind in that very context. */
static bool begin_end(CUcontext context, CUdevice device)
{
    for (;;) {
        drain_await_end();
        bool acts = begin_change();
        if (acts && drain_is_left()) {
            end_change(true, CUDA_SUCCESS);
            continue;
        }
        if (acts)
            pacing_suspend(pacing_is_used() && !context && device >= 0
                               ? contexts_find_primary(device)
                               : context);
        return acts;
    }
}

struct ended {
    CUcontext context;
    /* the device whose primary context ended, so that green contexts' memory went too; else -1 */
    int device;
};

static bool is_gone(const struct allocation *allocation, const void *argument)
{
    const struct ended *ended = argument;
    bool is_own = allocation->context == ended->context;
    if (allocation->kind == ALLOCATION_ORDERED)
        return allocation->device == ended->device;
    bool may_be_gone =
        is_own || allocation->kind == ALLOCATION_POOL || allocation->device == ended->device;
    if (!may_be_gone || allocation->kind == ALLOCATION_HANDLE)
        return false;
    /* The driver does not tell about arrays, and swappable memory outlives every context. */
    if (allocation->kind == ALLOCATION_ARRAY || allocation->kind == ALLOCATION_SWAPPABLE)
        return is_own;
    void *answer = NULL;
    CUpointer_attribute attribute = allocation->kind == ALLOCATION_POOL
                                        ? CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
                                        : CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    CUresult result = driver()->cuPointerGetAttribute(&answer, attribute, allocation->key);
    if (result == CUDA_SUCCESS) /* another allocation's by now, if it is of no pool */
        return allocation->kind == ALLOCATION_POOL && !answer;
    if (result == CUDA_ERROR_INVALID_VALUE)
        return true;
    if (allocation->kind != ALLOCATION_POOL)
        return is_own;
    __atomic_store_n(&state.has_doubts, true, __ATOMIC_RELAXED);
    return false;
}

static void refund_gone(const struct allocation *allocation)
{
    if (allocation->kind == ALLOCATION_SWAPPABLE) {
        swappable_free_contextless(allocation);
        return;
    }
    if (allocation->kind == ALLOCATION_ORDERED)
        ordered_forget(allocation);
    if (allocation->kind == ALLOCATION_PAGED)
        managed_mode_forget(allocation->key, allocation->context);
    charge_refund(allocation);
}

static void refund_context(CUcontext context, int device)
{
    struct ended ended = {context, device};
    context_list_remove(context);
    copy_contexts_forget_context(context);
    ring_forget_context(context);
    captures_forget_context(context);
    allocations_sweep(is_gone, refund_gone, &ended);
    if (context)
        ordered_context_ended(context, device);
    if (context && swappable_has_pending_frees())
        swappable_forget_context(context);
    pools_refresh_all();
    graph_memory_refresh();
    if (sparse_is_used()) {
        vmm_lock();
        sparse_forget_context(context);
        vmm_unlock();
    }
}

/* `ended`: the context that this call ended; NULL: none. The hook never queries the driver about
 * an ended context: the driver may crash, or mean another context. */
static CUresult end_end(bool acts, CUresult result, CUcontext ended, int device)
{
    if (acts && ended)
        refund_context(ended, device);
    if (acts) {
        pacing_resume(ended);
        green_owners_forget_primary(ended);
    }
    return end_change(acts, result);
}

/* After the thread got a current context: earlier failed queries are possible now. */
static CUresult now_current(CUresult result)
{
    launch_forget_device();
    if (result != CUDA_SUCCESS || !__atomic_load_n(&state.has_doubts, __ATOMIC_RELAXED) ||
        !begin_change())
        return result;
    if (__atomic_exchange_n(&state.has_doubts, false, __ATOMIC_RELAXED))
        refund_context(NULL, -1);
    return end_change(true, result);
}

static CUresult created(const struct creation *creation, CUresult result, const CUcontext *context)
{
    if (creation->acts && result == CUDA_SUCCESS) {
        context_list_add(*context, creation->device);
        green_owners_forget(*context);
    }
    return now_current(end_change(creation->acts, result));
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    struct creation creation;
    if (!begin_creation(&creation, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = driver()->cuCtxCreate(context, flags, device);
    while (is_due_again(&creation, result));
    return created(&creation, result, context);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    struct creation creation;
    if (!begin_creation(&creation, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = driver()->cuCtxCreate_v2(context, flags, device);
    while (is_due_again(&creation, result));
    return created(&creation, result, context);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *parameters, int count,
                        unsigned int flags, CUdevice device)
{
    struct creation creation;
    if (!begin_creation(&creation, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = driver()->cuCtxCreate_v3(context, parameters, count, flags, device);
    while (is_due_again(&creation, result));
    return created(&creation, result, context);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags,
                        CUdevice device)
{
    struct creation creation;
    if (!begin_creation(&creation, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = driver()->cuCtxCreate_v4(context, parameters, flags, device);
    while (is_due_again(&creation, result));
    return created(&creation, result, context);
}

static CUresult destroy(CUcontext context, CUresult (*real)(CUcontext))
{
    bool acts = begin_end(context, -1);
    CUresult result = real(context);
    return end_end(acts, result, acts && result == CUDA_SUCCESS ? context : NULL, -1);
}

CUresult cuCtxDestroy(CUcontext context)
{
    return destroy(context, driver()->cuCtxDestroy);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return destroy(context, driver()->cuCtxDestroy_v2);
}

/* The driver does not report how many uses a context has, so the hook counts them, from the first
 * one that cuCtxCreate makes. */
CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    bool acts = begin_change();
    CUresult result = driver()->cuCtxAttach(context, flags);
    if (acts && result == CUDA_SUCCESS)
        context_list_attach(*context);
    return end_change(acts, result);
}

CUresult cuCtxDetach(CUcontext context)
{
    bool acts = begin_end(context, -1);
    CUresult result = driver()->cuCtxDetach(context);
    bool has_ended = acts && result == CUDA_SUCCESS && context_list_detach(context);
    return end_end(acts, result, has_ended ? context : NULL, -1);
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    return now_current(driver()->cuCtxSetCurrent(context));
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    return now_current(driver()->cuCtxPushCurrent(context));
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    return now_current(driver()->cuCtxPushCurrent_v2(context));
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    return now_current(driver()->cuCtxPopCurrent(context));
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    return now_current(driver()->cuCtxPopCurrent_v2(context));
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    struct creation creation;
    if (!begin_creation(&creation, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    do
        result = driver()->cuDevicePrimaryCtxRetain(context, device);
    while (is_due_again(&creation, result));
    if (creation.acts && result == CUDA_SUCCESS && green_owner(*context) != *context)
        green_owners_forget(*context); /* it had the address before */
    if (creation.acts && result == CUDA_SUCCESS)
        devices_use(device);
    return end_change(creation.acts, result);
}

static CUresult end_primary(CUdevice device, CUresult (*real)(CUdevice))
{
    bool acts = begin_end(NULL, device);
    CUcontext context = acts ? contexts_find_primary(device) : NULL;
    CUresult result = real(device);
    bool has_ended = context && result == CUDA_SUCCESS && !contexts_is_primary_active(device);
    return end_end(acts, result, has_ended ? context : NULL, device);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return end_primary(device, driver()->cuDevicePrimaryCtxRelease);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return end_primary(device, driver()->cuDevicePrimaryCtxRelease_v2);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return end_primary(device, driver()->cuDevicePrimaryCtxReset);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return end_primary(device, driver()->cuDevicePrimaryCtxReset_v2);
}

/* Takes device memory, so that it waits as contexts do that are made. */
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    if (!guard_enter())
        return driver()->cuCtxFromGreenCtx(context, green);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (residency_enter()) {
        contexts_hold();
        result = driver()->cuCtxFromGreenCtx(context, green);
        if (result == CUDA_SUCCESS)
            green_owners_remember(green, *context);
        contexts_release();
        swappable_contexts_changed();
        residency_leave();
    }
    guard_leave();
    return result;
}

/* A green context is one more use of its device's primary one, which owns the memory. */
CUresult cuGreenCtxDestroy(CUgreenCtx context)
{
    CUcontext primaries[DEVICES_MAX] = {NULL};
    bool acts = begin_end(NULL, -1);
    for (int device = 0; acts && device < devices_count(); device++)
        primaries[device] = contexts_find_primary(device);
    CUresult result = driver()->cuGreenCtxDestroy(context);
    CUcontext ended = acts && result == CUDA_SUCCESS ? green_owners_end(context) : NULL;
    for (int device = 0; acts && device < devices_count(); device++)
        if (primaries[device] && !contexts_is_primary_active(device)) {
            ended = primaries[device];
            refund_context(ended, device);
        }
    return end_end(acts, result, ended, -1); /* a second refund finds nothing */
}
