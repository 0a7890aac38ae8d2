/* Allocation and free in the order of a stream. A pool looks for memory in the driver's order:
 * freed earlier in the same stream, free for every stream, new from the device, and at last freed
 * in another stream that this one then waits for. */
#include "ordered/ordered_pools_state.h"

#include "accounting/pin_reasons.h"
#include "accounting/quota.h"
#include "accounting/swappability.h"
#include "charging/charge.h"
#include "charging/pools.h"
#include "charging/retry.h"
#include "contexts/captures.h"
#include "gate/residency.h"
#include "ordered/ordered_streams.h"
#include "swappable/swappable.h"

#define IDENTITIES (1ull << 59) /* apart from the driver's own BUFFER_IDs, and from swappable.c's */
#define MOST_BYTES ((uint64_t)1 << 48)
#define LARGEST_STEP ((uint64_t)32 << 20) /* by which a pool grows for a small allocation */

struct search {
    struct ordered_heap *heap;
    CUstream stream;
    uint64_t stream_id, bytes;
};

static struct ordered_cache *cache_of(const struct search *search)
{
    struct ordered_cache *cache = search->heap->caches;
    while (cache && cache->stream_id != search->stream_id)
        cache = cache->next;
    return cache;
}

static bool allows(const struct ordered_heap *heap, CUmemPool_attribute attribute)
{
    int is_allowed = 1;
    return !heap->handle || driver()->cuMemPoolGetAttribute(heap->handle, attribute,
                                                            &is_allowed) != CUDA_SUCCESS ||
           is_allowed;
}

/* Called with the mutex. */
static struct ordered_block *take_without_wait(const struct search *search)
{
    struct ordered_heap *heap = search->heap;
    struct ordered_cache *own = cache_of(search);
    struct ordered_block *block = own ? ordered_heap_take(own, search->bytes) : NULL;
    if (!block)
        block = ordered_heap_take(&heap->idle, search->bytes);
    bool may_settle =
        !block && heap->reserved - heap->used - heap->idle.bytes >= search->bytes &&
        allows(heap, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
    if (may_settle) {
        ordered_settle(heap);
        block = ordered_heap_take(&heap->idle, search->bytes);
    }
    return block;
}

/* Called with the mutex. */
static struct ordered_block *take_after_wait(const struct search *search)
{
    struct ordered_heap *heap = search->heap;
    if (captures_are_on() || !allows(heap, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES))
        return NULL;
    for (struct ordered_cache *cache = heap->caches; cache; cache = cache->next) {
        struct ordered_block *block = ordered_heap_take(cache, search->bytes);
        if (!block)
            continue;
        if (ordered_cache_set_mark(cache) &&
            driver()->cuStreamWaitEvent(search->stream, cache->mark, 0) == CUDA_SUCCESS)
            return block;
        ordered_heap_give(block, cache);
    }
    return NULL;
}

/* Called with the mutex. */
static void count_use(struct ordered_heap *heap, struct ordered_block *block, size_t asked)
{
    block->asked = asked;
    block->id = IDENTITIES | ++ordered.last_identity;
    heap->used += block->bytes;
    if (heap->used > heap->used_high)
        heap->used_high = heap->used;
    ordered_note_loose(heap);
}

static struct ordered_block *take(const struct search *search, size_t asked, bool may_wait)
{
    pthread_mutex_lock(&ordered.mutex);
    struct ordered_block *block =
        may_wait ? take_after_wait(search) : take_without_wait(search);
    if (block)
        count_use(search->heap, block, asked);
    pthread_mutex_unlock(&ordered.mutex);
    return block;
}

/* Return by how much the pool grows for an allocation that needs `least`; 0: it may not. */
static uint64_t step_of(const struct ordered_heap *heap, uint64_t least)
{
    uint64_t step = swappability_rounded(heap->device, heap->reserved / 4);
    step = step > LARGEST_STEP ? LARGEST_STEP : step;
    step = step > least ? step : least;
    if (heap->most && heap->reserved + step > heap->most)
        step = heap->reserved + least > heap->most ? 0 : least;
    return step;
}

/* Charge the larger step where it fits as it is, or what is needed where room can be made. Called
 * outside: credit may have to wait until this very process is moved. */
static uint64_t charge_step(const struct ordered_heap *heap, uint64_t step, uint64_t least)
{
    if (step > least && quota_charge(heap->device, step))
        return step;
    if (pools_charge(heap->device, least))
        return least;
    quota_refuse(heap->device, least);
    return 0;
}

/* Called inside. */
static CUresult reserve(struct charge *charge, uint64_t bytes, CUdeviceptr *start)
{
    struct retry retry = RETRY_NONE;
    CUresult result;
    do {
        result = swappable_allocate(charge->device, NULL, bytes, start);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            pools_trim(charge->device); /* the driver's own pools keep what is unused */
            ordered_release_idle(charge->device);
            result = swappable_allocate(charge->device, NULL, bytes, start);
        }
    } while (retry_is_due(&retry, charge, result, bytes));
    return result;
}

static bool add_chunk(struct ordered_heap *heap, CUdeviceptr start, uint64_t bytes)
{
    pthread_mutex_lock(&ordered.mutex);
    bool is_added = ordered_heap_add(heap, start, bytes);
    ordered_note_loose(heap);
    pthread_mutex_unlock(&ordered.mutex);
    if (is_added)
        pin_reasons_change(heap->device, PIN_NONE, (int64_t)bytes);
    else
        swappable_undo(start);
    return is_added;
}

/* Called inside; `*is_inside` is false after it where an interrupt ended a wait. */
static CUresult grow(struct ordered_heap *heap, uint64_t bytes, bool *is_inside)
{
    uint64_t least = swappability_rounded(heap->device, bytes);
    uint64_t step = step_of(heap, least);
    CUdeviceptr start;
    if (!step)
        return CUDA_ERROR_OUT_OF_MEMORY;
    residency_leave();
    step = charge_step(heap, step, least);
    *is_inside = residency_enter();
    if (!step || !*is_inside) {
        quota_refund(heap->device, step);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct charge charge = {
        .acts = true, .is_on_device = true, .device = heap->device, .bytes = step};
    CUresult result = reserve(&charge, step, &start);
    *is_inside = charge.is_on_device;
    if (result == CUDA_SUCCESS && !add_chunk(heap, start, step))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        quota_refund(heap->device, step);
    return result;
}

static void give(struct ordered_block *block, struct ordered_cache *cache)
{
    struct ordered_heap *heap = block->chunk->heap;
    heap->used -= block->bytes;
    heap->uses--;
    ordered_heap_give(block, cache);
    ordered_note_loose(heap);
}

/* Called inside. */
static CUresult allocate_inside(const struct search *search, size_t asked,
                                struct ordered_block **block, bool *is_inside)
{
    CUresult result = CUDA_SUCCESS;
    *block = take(search, asked, false);
    while (!*block && result == CUDA_SUCCESS && *is_inside) {
        /* memory that another thread took first is no answer */
        result = captures_forbid_unsafe_calls() ? CUDA_ERROR_NOT_SUPPORTED
                                                : grow(search->heap, search->bytes, is_inside);
        if (*is_inside)
            *block = take(search, asked, result != CUDA_SUCCESS);
    }
    return *block ? CUDA_SUCCESS : result;
}

static CUresult record(const struct search *search, struct ordered_block *block,
                       CUdeviceptr *pointer)
{
    struct allocation allocation = {.key = block->start,
                                    .device = search->heap->device,
                                    .kind = ALLOCATION_ORDERED,
                                    .pool = block};
    if (!charge_record(&allocation))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = block->start;
    return CUDA_SUCCESS;
}

/* False: the pool is the driver's. */
static bool begin(const struct ordered_request *request, struct search *search)
{
    if (swappability_mode() != ALIQUOT_RESIDENCY_VMM || request->bytes > MOST_BYTES)
        return false;
    *search = (struct search){
        .stream = ordered_stream_name(request->stream, request->is_per_thread),
        .bytes = (request->bytes + ORDERED_PIECE - 1) / ORDERED_PIECE * ORDERED_PIECE};
    if (!ordered_stream_id(search->stream, &search->stream_id))
        return false;
    pthread_mutex_lock(&ordered.mutex);
    search->heap = ordered_heap_for(request);
    if (search->heap)
        search->heap->uses++;
    pthread_mutex_unlock(&ordered.mutex);
    return search->heap;
}

/* An allocation that was not made: work of the stream may still use its memory. The pool may be
 * gone by now, but for it. */
static void abandon(const struct search *search, struct ordered_block *block)
{
    pthread_mutex_lock(&ordered.mutex);
    struct ordered_cache *cache =
        block ? ordered_cache_of(search->heap, search->stream, search->stream_id) : NULL;
    if (cache) {
        give(block, cache);
        ordered_cache_freed(cache);
    } else {
        search->heap->uses--;
    }
    ordered_end_if_empty(search->heap);
    pthread_mutex_unlock(&ordered.mutex);
}

bool ordered_allocate(const struct ordered_request *request, CUresult *result)
{
    struct search search;
    struct ordered_block *block = NULL;
    if (!begin(request, &search))
        return false;
    bool is_inside = residency_enter();
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (is_inside)
        *result = allocate_inside(&search, request->bytes, &block, &is_inside);
    if (block)
        *result = record(&search, block, request->pointer);
    if (*result != CUDA_SUCCESS)
        abandon(&search, block);
    if (is_inside)
        residency_leave();
    if (*result == CUDA_ERROR_OUT_OF_MEMORY)
        *result = charge_refusal();
    return *result == CUDA_SUCCESS || *result == CUDA_ERROR_OUT_OF_MEMORY;
}

/* A cache of no stream, which a wait for the device alone empties. */
static struct ordered_cache *cache_of_none(struct ordered_heap *heap)
{
    struct ordered_cache *cache = ordered_cache_of(heap, NULL, ORDERED_NO_STREAM);
    if (cache)
        cache->is_ended = true;
    return cache;
}

void ordered_free_async(const struct allocation *allocation, CUstream stream, bool is_per_thread)
{
    struct ordered_block *block = allocation->pool;
    struct ordered_heap *heap = block->chunk->heap;
    uint64_t id;
    stream = ordered_stream_name(stream, is_per_thread);
    bool is_known = ordered_stream_id(stream, &id);
    pthread_mutex_lock(&ordered.mutex);
    struct ordered_cache *cache = is_known ? ordered_cache_of(heap, stream, id) : cache_of_none(heap);
    if (cache) { /* without memory for it, the block stays in use until the device's end */
        give(block, cache);
        ordered_cache_freed(cache);
    }
    pthread_mutex_unlock(&ordered.mutex);
}

CUresult ordered_free_now(const struct allocation *allocation)
{
    struct ordered_block *block = allocation->pool;
    struct ordered_heap *heap = block->chunk->heap;
    CUresult result = swappable_ask_context();
    bool must_wait = captures_are_on();
    if (result == CUDA_SUCCESS && !must_wait)
        result = driver()->cuCtxSynchronize();
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&ordered.mutex);
    struct ordered_cache *cache = must_wait ? cache_of_none(heap) : &heap->idle;
    if (cache)
        give(block, cache);
    pthread_mutex_unlock(&ordered.mutex);
    if (!must_wait && ordered_are_loose())
        ordered_synchronized();
    return CUDA_SUCCESS;
}

void ordered_forget(const struct allocation *allocation)
{
    struct ordered_block *block = allocation->pool;
    pthread_mutex_lock(&ordered.mutex);
    give(block, &block->chunk->heap->idle);
    pthread_mutex_unlock(&ordered.mutex);
}
