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
    pthread_mutex_t mutex; /* held over no call of the driver that may take long, save the moves of pieces.c */
    struct spans table;
    struct elastic *dying;
    uint32_t count; /* of the table; read without the mutex */
    uint64_t last_identity;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

bool elastic_is_used(void)
{
    return __atomic_load_n(&state.count, __ATOMIC_RELAXED) != 0;
}

struct spans *elastic_lock(void)
{
    pthread_mutex_lock(&state.mutex);
    return &state.table;
}

void elastic_unlock(void)
{
    pthread_mutex_unlock(&state.mutex);
}

void elastic_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    state.table = (struct spans){NULL, 0}; /* the parent's records; its memory is not this process's */
    state.dying = NULL;
    state.count = 0;
}

static struct elastic *make(int device, CUcontext context, size_t bytes)
{
    size_t reserved = swappability_rounded(device, bytes), chunk_bytes = swappability_chunk_bytes(device);
    size_t count = (reserved + chunk_bytes - 1) / chunk_bytes;
    struct elastic *elastic = calloc(1, sizeof *elastic + count * sizeof elastic->chunks[0]);
    if (elastic) {
        elastic->span.bytes = reserved;
        elastic->asked_bytes = bytes;
        elastic->device = device;
        elastic->context = context;
        elastic->chunk_bytes = chunk_bytes;
        elastic->chunk_count = count;
    }
    return elastic;
}

static CUresult build(struct elastic *elastic)
{
    CUdeviceptr start = 0;
    CUresult result = driver()->cuMemAddressReserve(&start, elastic->span.bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    elastic->span.start = start;
    result = elastic_create_chunks(elastic);
    if (result == CUDA_SUCCESS) {
        result = elastic_map_chunks(elastic);
        if (result != CUDA_SUCCESS)
            elastic_release_chunks(elastic);
    }
    if (result != CUDA_SUCCESS)
        driver()->cuMemAddressFree(start, elastic->span.bytes);
    return result;
}

CUresult elastic_allocate(int device, CUcontext context, size_t bytes, CUdeviceptr *address)
{
    CUresult prepared = mover_prepare(device);
    if (prepared != CUDA_SUCCESS)
        return prepared;
    struct elastic *elastic = make(device, context, bytes);
    if (!elastic) {
        LOG("event=no_memory_for_record bytes=%zu", bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = build(elastic);
    if (result != CUDA_SUCCESS) {
        free(elastic);
        return result;
    }
    elastic->is_mapped = true;
    *address = elastic->span.start;
    pthread_mutex_lock(&state.mutex);
    elastic->id = IDENTITIES | ++state.last_identity;
    spans_add(&state.table, &elastic->span);
    elastic_open_to_used(elastic); /* a context may have begun since it was mapped, and not found it here */
    __atomic_fetch_add(&state.count, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&state.mutex);
    return CUDA_SUCCESS;
}

/* With the process held where it is: while it is out there is an address to give back, and nothing behind it. */
static void let_go(struct elastic *elastic)
{
    pthread_mutex_lock(&state.mutex);
    spans_remove(&state.table, &elastic->span);
    __atomic_fetch_sub(&state.count, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&state.mutex);
    CUresult result = CUDA_SUCCESS;
    if (elastic->is_out) {
        staying_change_out(elastic->device, -(int64_t)elastic->span.bytes);
    } else {
        result = elastic_unmap_chunks(elastic);
        elastic_release_chunks(elastic);
    }
    if (elastic->staying) { /* as it was charged, for the refund */
        staying_change(elastic->device, elastic->staying, -(int64_t)elastic->span.bytes);
        staying_change(elastic->device, STAYING_NOT, (int64_t)elastic->span.bytes);
    }
    if (result == CUDA_SUCCESS)
        result = driver()->cuMemAddressFree(elastic->span.start, elastic->span.bytes);
    if (result != CUDA_SUCCESS)
        LOG("event=not_unmapped key=%llx code=%d", (unsigned long long)elastic->span.start, (int)result);
    free(elastic);
}

static struct elastic *find_start(CUdeviceptr address)
{
    struct elastic *elastic = spans_at(&state.table, address);
    return elastic && elastic->span.start == address ? elastic : NULL;
}

void elastic_undo(CUdeviceptr address)
{
    pthread_mutex_lock(&state.mutex);
    struct elastic *elastic = find_start(address);
    pthread_mutex_unlock(&state.mutex);
    if (elastic)
        let_go(elastic);
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

bool elastic_has_dying(void)
{
    return __atomic_load_n(&state.dying, __ATOMIC_ACQUIRE) != NULL;
}

/* With the mutex. */
static bool mark_dying(const struct allocation *allocation, CUevent done, bool is_orphan)
{
    struct elastic *elastic = find_start(allocation->key);
    if (!elastic || elastic->is_dying)
        return false;
    elastic->is_dying = true;
    elastic->charge = *allocation;
    elastic->done = done;
    if (done) {
        driver()->cuCtxGetCurrent(&elastic->done_context);
        elastic->done_context = green_owner(elastic->done_context);
    }
    if (is_orphan)
        elastic->context = NULL;
    elastic->next = state.dying;
    __atomic_store_n(&state.dying, elastic, __ATOMIC_RELEASE);
    return true;
}

static bool mark_dying_alone(const struct allocation *allocation, CUevent done, bool is_orphan)
{
    pthread_mutex_lock(&state.mutex);
    bool is_marked = mark_dying(allocation, done, is_orphan);
    pthread_mutex_unlock(&state.mutex);
    return is_marked;
}

void elastic_orphan(const struct allocation *allocation)
{
    if (!mark_dying_alone(allocation, NULL, true))
        charge_refund(allocation);
}

void elastic_forget_context(CUcontext context)
{
    pthread_mutex_lock(&state.mutex);
    for (struct elastic *elastic = state.dying; elastic; elastic = elastic->next) {
        if (elastic->done_context == context)
            elastic->done = NULL; /* it ended, too, and so did the work before it */
        if (elastic->context == context) /* whose memory work in another one may still use */
            elastic->context = elastic->done ? elastic->done_context : NULL;
    }
    pthread_mutex_unlock(&state.mutex);
}

/* Whoever waits for a context while a stream captures makes that capture invalid: what has a context waits, too. */
static bool may_go(const struct elastic *elastic, bool may_wait)
{
    if (!elastic->context)
        return true;
    return may_wait && (!elastic->done || driver()->cuEventQuery(elastic->done) != CUDA_ERROR_NOT_READY);
}

static struct elastic *take_dying(bool may_wait)
{
    pthread_mutex_lock(&state.mutex);
    struct elastic **link = &state.dying, *taken = NULL;
    while (*link && !taken) {
        if (may_go(*link, may_wait)) {
            taken = *link;
            __atomic_store_n(link, taken->next, __ATOMIC_RELEASE); /* the head is read without the mutex */
        } else {
            link = &(*link)->next;
        }
    }
    pthread_mutex_unlock(&state.mutex);
    return taken;
}

void elastic_sweep(void)
{
    struct elastic *elastic;
    while (elastic_has_dying() && (elastic = take_dying(!captures_are_on()))) {
        struct allocation charge = elastic->charge;
        if (elastic->done)
            driver()->cuEventDestroy_v2(elastic->done);
        else if (elastic->context)
            finish_work(elastic->context); /* one that cannot be waited for has no work that could be hurt */
        residency_hold();
        let_go(elastic);
        residency_release();
        charge_refund(&charge);
    }
}

CUresult elastic_free(const struct allocation *allocation)
{
    CUresult result = elastic_ask_context();
    bool must_wait = captures_are_on();
    if (result == CUDA_SUCCESS && !must_wait)
        result = finish_work(allocation->context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!mark_dying_alone(allocation, NULL, !must_wait))
        charge_refund(allocation);
    elastic_sweep();
    return CUDA_SUCCESS;
}

CUresult elastic_free_async(const struct allocation *allocation, CUstream stream,
                            CUresult (*record)(CUevent, CUstream))
{
    CUevent done;
    CUresult result = driver()->cuEventCreate(&done, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    result = record(done, stream);
    if (result != CUDA_SUCCESS || !mark_dying_alone(allocation, done, false))
        driver()->cuEventDestroy_v2(done);
    elastic_sweep();
    return result;
}

bool elastic_find(CUdeviceptr address, struct elastic_view *view)
{
    pthread_mutex_lock(&state.mutex);
    const struct elastic *found = spans_at(&state.table, address);
    if (found)
        *view = (struct elastic_view){.start = found->span.start, .bytes = found->asked_bytes, .device = found->device,
                                      .context = found->context, .id = found->id, .syncs = found->syncs,
                                      .is_beyond = found->is_dying || address - found->span.start >= found->asked_bytes};
    pthread_mutex_unlock(&state.mutex);
    return found;
}

bool elastic_hold(CUdeviceptr address, uint32_t reason)
{
    pthread_mutex_lock(&state.mutex);
    struct elastic *found = spans_at(&state.table, address);
    bool is_here = found && !found->is_out && !found->is_dying;
    if (is_here && !found->staying) {
        staying_change(found->device, STAYING_NOT, -(int64_t)found->span.bytes);
        staying_change(found->device, reason, (int64_t)found->span.bytes);
        found->staying = reason;
    }
    pthread_mutex_unlock(&state.mutex);
    return is_here;
}

bool elastic_set_syncs(CUdeviceptr address, bool syncs)
{
    pthread_mutex_lock(&state.mutex);
    struct elastic *found = spans_at(&state.table, address);
    bool is_known = found && !found->is_dying && address - found->span.start < found->asked_bytes;
    if (is_known)
        found->syncs = syncs;
    pthread_mutex_unlock(&state.mutex);
    return is_known;
}

void elastic_contexts_changed(void)
{
    if (!elastic_is_used() || residency_describe() != ALIQUOT_RESIDENT) /* what is out is opened when it is back */
        return;
    pthread_mutex_lock(&state.mutex);
    for (struct elastic *each = spans_from(&state.table, 0); each;
         each = spans_from(&state.table, span_end(&each->span)))
        if (each->is_mapped)
            elastic_open_to_used(each);
    pthread_mutex_unlock(&state.mutex);
    for (int device = 0; device < devices_count(); device++)
        if (staying_bytes(device, STAYING_NOT))
            mover_prepare(device);
}
