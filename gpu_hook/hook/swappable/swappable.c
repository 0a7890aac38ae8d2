#include "swappable/swappable.h"

#include "contexts/captures.h"
#include "charging/charge.h"
#include "accounting/devices.h"
#include "contexts/green_owners.h"
#include "base/log.h"
#include "copy_engine/mover.h"
#include "gate/residency.h"
#include "accounting/pin_reasons.h"
#include "accounting/swappability.h"

#include <pthread.h>
#include <stdlib.h>

#define IDENTITIES (1ull << 60) /* apart from the driver's own BUFFER_IDs */

static struct {
    /* held over no call of the driver that may take long, save the moves of extents.c */
    pthread_mutex_t mutex;
    struct spans table;
    struct swappable *pending_frees;
    uint32_t count; /* of the table; read without the mutex */
    uint64_t last_identity;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

bool swappable_is_used(void)
{
    return __atomic_load_n(&state.count, __ATOMIC_RELAXED) != 0;
}

struct spans *swappable_lock(void)
{
    pthread_mutex_lock(&state.mutex);
    return &state.table;
}

void swappable_unlock(void)
{
    pthread_mutex_unlock(&state.mutex);
}

void swappable_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    /* the parent's records; its memory is not this process's */
    state.table = (struct spans){NULL, 0};
    state.pending_frees = NULL;
    state.count = 0;
}

static struct swappable *make(int device, CUcontext context, size_t bytes)
{
    size_t reserved = swappability_rounded(device, bytes),
           chunk_bytes = swappability_chunk_bytes(device);
    size_t count = (reserved + chunk_bytes - 1) / chunk_bytes;
    struct swappable *swappable =
        calloc(1, sizeof *swappable + count * sizeof swappable->chunks[0]);
    if (swappable) {
        swappable->span.bytes = reserved;
        swappable->asked_bytes = bytes;
        swappable->device = device;
        swappable->context = context;
        swappable->chunk_bytes = chunk_bytes;
        swappable->chunk_count = count;
    }
    return swappable;
}

static CUresult build(struct swappable *swappable)
{
    CUdeviceptr start = 0;
    CUresult result = driver()->cuMemAddressReserve(&start, swappable->span.bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    swappable->span.start = start;
    result = swappable_create_chunks(swappable);
    if (result == CUDA_SUCCESS) {
        result = swappable_map_chunks(swappable);
        if (result != CUDA_SUCCESS)
            swappable_release_chunks(swappable);
    }
    if (result != CUDA_SUCCESS)
        driver()->cuMemAddressFree(start, swappable->span.bytes);
    return result;
}

CUresult swappable_allocate(int device, CUcontext context, size_t bytes, CUdeviceptr *address)
{
    CUresult prepared = mover_prepare(device);
    if (prepared != CUDA_SUCCESS)
        return prepared;
    struct swappable *swappable = make(device, context, bytes);
    if (!swappable) {
        LOG("event=no_memory_for_record bytes=%zu", bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = build(swappable);
    if (result != CUDA_SUCCESS) {
        free(swappable);
        return result;
    }
    swappable->is_mapped = true;
    *address = swappable->span.start;
    pthread_mutex_lock(&state.mutex);
    swappable->id = IDENTITIES | ++state.last_identity;
    spans_add(&state.table, &swappable->span);
    /* a context may have begun since the mapping, without access to it */
    swappable_open_to_used(swappable);
    __atomic_fetch_add(&state.count, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&state.mutex);
    return CUDA_SUCCESS;
}

/* With the process held where it is: while it is out there is an address to give back, and nothing
 * behind it. */
static void let_go(struct swappable *swappable)
{
    pthread_mutex_lock(&state.mutex);
    spans_remove(&state.table, &swappable->span);
    __atomic_fetch_sub(&state.count, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&state.mutex);
    CUresult result = CUDA_SUCCESS;
    if (swappable->is_out) {
        pin_reasons_change_out(swappable->device, -(int64_t)swappable->span.bytes);
    } else {
        result = swappable_unmap_chunks(swappable);
        swappable_release_chunks(swappable);
    }
    if (swappable->pin_reasons) { /* as it was charged, for the refund */
        pin_reasons_change(swappable->device, swappable->pin_reasons,
                           -(int64_t)swappable->span.bytes);
        pin_reasons_change(swappable->device, PIN_NONE, (int64_t)swappable->span.bytes);
    }
    if (result == CUDA_SUCCESS)
        result = driver()->cuMemAddressFree(swappable->span.start, swappable->span.bytes);
    if (result != CUDA_SUCCESS)
        LOG("event=not_unmapped key=%llx code=%d", (unsigned long long)swappable->span.start,
            (int)result);
    free(swappable);
}

static struct swappable *find_start(CUdeviceptr address)
{
    struct swappable *swappable = spans_at(&state.table, address);
    return swappable && swappable->span.start == address ? swappable : NULL;
}

void swappable_undo(CUdeviceptr address)
{
    pthread_mutex_lock(&state.mutex);
    struct swappable *swappable = find_start(address);
    pthread_mutex_unlock(&state.mutex);
    if (swappable)
        let_go(swappable);
}

/* Work that may still use the memory is done when its context is. */
static CUresult finish_work(CUcontext context)
{
    CUcontext popped;
    CUresult result = driver()->cuCtxPushCurrent_v2(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuCtxSynchronize();
    driver()->cuCtxPopCurrent_v2(&popped);
    return result;
}

bool swappable_has_pending_frees(void)
{
    return __atomic_load_n(&state.pending_frees, __ATOMIC_ACQUIRE) != NULL;
}

/* Called with the mutex. */
static bool mark_free_pending(const struct allocation *allocation, CUevent done,
                              bool is_contextless)
{
    struct swappable *swappable = find_start(allocation->key);
    if (!swappable || swappable->is_free_pending)
        return false;
    swappable->is_free_pending = true;
    swappable->charge = *allocation;
    swappable->done = done;
    if (done) {
        driver()->cuCtxGetCurrent(&swappable->done_context);
        swappable->done_context = green_owner(swappable->done_context);
    }
    if (is_contextless)
        swappable->context = NULL;
    swappable->next = state.pending_frees;
    __atomic_store_n(&state.pending_frees, swappable, __ATOMIC_RELEASE);
    return true;
}

static bool mark_free_pending_locked(const struct allocation *allocation, CUevent done,
                                     bool is_contextless)
{
    pthread_mutex_lock(&state.mutex);
    bool is_marked = mark_free_pending(allocation, done, is_contextless);
    pthread_mutex_unlock(&state.mutex);
    return is_marked;
}

void swappable_free_contextless(const struct allocation *allocation)
{
    if (!mark_free_pending_locked(allocation, NULL, true))
        charge_refund(allocation);
}

void swappable_forget_context(CUcontext context)
{
    pthread_mutex_lock(&state.mutex);
    for (struct swappable *swappable = state.pending_frees; swappable;
         swappable = swappable->next) {
        if (swappable->done_context == context)
            swappable->done = NULL; /* the context ended, and so did the work before it */
        if (swappable->context == context) /* work in another context may still use the memory */
            swappable->context = swappable->done ? swappable->done_context : NULL;
    }
    pthread_mutex_unlock(&state.mutex);
}

/* A wait for a context while a stream captures makes that capture invalid, so a pending free that
 * has a context waits until no capture is on. */
static bool may_go(const struct swappable *swappable, bool may_wait)
{
    if (!swappable->context)
        return true;
    return may_wait &&
           (!swappable->done || driver()->cuEventQuery(swappable->done) != CUDA_ERROR_NOT_READY);
}

static struct swappable *take_pending_free(bool may_wait)
{
    pthread_mutex_lock(&state.mutex);
    struct swappable **link = &state.pending_frees, *taken = NULL;
    while (*link && !taken) {
        if (may_go(*link, may_wait)) {
            taken = *link;
            /* the head is read without the mutex */
            __atomic_store_n(link, taken->next, __ATOMIC_RELEASE);
        } else {
            link = &(*link)->next;
        }
    }
    pthread_mutex_unlock(&state.mutex);
    return taken;
}

void swappable_sweep(void)
{
    struct swappable *swappable;
    while (swappable_has_pending_frees() && (swappable = take_pending_free(!captures_are_on()))) {
        struct allocation charge = swappable->charge;
        if (swappable->done)
            driver()->cuEventDestroy_v2(swappable->done);
        else if (swappable->context)
            finish_work(
                swappable
                    /* a context that cannot be waited for has no work that could be hurt */
                    ->context);
        residency_hold();
        let_go(swappable);
        residency_release();
        charge_refund(&charge);
    }
}

CUresult swappable_free(const struct allocation *allocation)
{
    CUresult result = swappable_ask_context();
    bool must_wait = captures_are_on();
    if (result == CUDA_SUCCESS && !must_wait)
        result = finish_work(allocation->context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!mark_free_pending_locked(allocation, NULL, !must_wait))
        charge_refund(allocation);
    swappable_sweep();
    return CUDA_SUCCESS;
}

CUresult swappable_free_async(const struct allocation *allocation, CUstream stream,
                            CUresult (*record)(CUevent, CUstream))
{
    CUevent done;
    CUresult result = driver()->cuEventCreate(&done, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    result = record(done, stream);
    if (result != CUDA_SUCCESS || !mark_free_pending_locked(allocation, done, false))
        driver()->cuEventDestroy_v2(done);
    swappable_sweep();
    return result;
}

bool swappable_find(CUdeviceptr address, struct swappable_view *view)
{
    pthread_mutex_lock(&state.mutex);
    const struct swappable *found = spans_at(&state.table, address);
    if (found)
        *view =
            (struct swappable_view){.start = found->span.start,
                                    .bytes = found->asked_bytes,
                                    .device = found->device,
                                    .context = found->context,
                                    .id = found->id,
                                    .syncs = found->syncs,
                                    .is_beyond = found->is_free_pending ||
                                                 address - found->span.start >= found->asked_bytes};
    pthread_mutex_unlock(&state.mutex);
    return found;
}

bool swappable_hold(CUdeviceptr address, uint32_t reason)
{
    pthread_mutex_lock(&state.mutex);
    struct swappable *found = spans_at(&state.table, address);
    bool is_here = found && !found->is_out && !found->is_free_pending;
    if (is_here && !found->pin_reasons) {
        pin_reasons_change(found->device, PIN_NONE, -(int64_t)found->span.bytes);
        pin_reasons_change(found->device, reason, (int64_t)found->span.bytes);
        found->pin_reasons = reason;
    }
    pthread_mutex_unlock(&state.mutex);
    return is_here;
}

bool swappable_set_syncs(CUdeviceptr address, bool syncs)
{
    pthread_mutex_lock(&state.mutex);
    struct swappable *found = spans_at(&state.table, address);
    bool is_known =
        found && !found->is_free_pending && address - found->span.start < found->asked_bytes;
    if (is_known)
        found->syncs = syncs;
    pthread_mutex_unlock(&state.mutex);
    return is_known;
}

void swappable_contexts_changed(void)
{
    /* memory that is out is opened when it is back */
    if (!swappable_is_used() || residency_describe() != ALIQUOT_RESIDENT)
        return;
    pthread_mutex_lock(&state.mutex);
    for (struct swappable *each = spans_from(&state.table, 0); each;
         each = spans_from(&state.table, span_end(&each->span)))
        if (each->is_mapped)
            swappable_open_to_used(each);
    pthread_mutex_unlock(&state.mutex);
    for (int device = 0; device < devices_count(); device++)
        if (pin_reasons_bytes(device, PIN_NONE))
            mover_prepare(device);
}
