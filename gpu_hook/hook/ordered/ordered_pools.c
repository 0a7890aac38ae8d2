#include "ordered/ordered_pools_state.h"

#include "accounting/pin_reasons.h"
#include "accounting/quota.h"
#include "accounting/swappability.h"
#include "charging/pool_devices.h"
#include "charging/pools.h"
#include "contexts/captures.h"
#include "accounting/devices.h"
#include "gate/residency.h"
#include "ordered/ordered_streams.h"
#include "swappable/swappable.h"

#include <stdlib.h>

#define ANY_SIZE ((size_t)1 << 40)
#define ANY_DEVICE (-1)

struct ordered_pools ordered = {.mutex = PTHREAD_MUTEX_INITIALIZER};

bool ordered_is_used(void)
{
    return __atomic_load_n(&ordered.used, __ATOMIC_RELAXED) != 0;
}

bool ordered_are_loose(void)
{
    return __atomic_load_n(&ordered.loose, __ATOMIC_RELAXED) != 0;
}

void ordered_note_loose(struct ordered_heap *heap)
{
    uint64_t keep = heap->handle ? heap->threshold : 0;
    bool is_loose = heap->reserved > heap->used && heap->reserved > keep;
    if (is_loose != heap->is_loose)
        __atomic_fetch_add(&ordered.loose, is_loose ? 1u : UINT32_MAX, __ATOMIC_RELAXED);
    heap->is_loose = is_loose;
}

static struct ordered_heap *find(CUmemoryPool pool)
{
    struct ordered_heap *heap = ordered.all;
    while (heap && heap->handle != pool)
        heap = heap->next;
    return heap;
}

static bool make_room(int device);

/* NULL: no memory for it. */
static struct ordered_heap *add(CUmemoryPool pool, int device, uint64_t most)
{
    cuuint64_t threshold = 0;
    struct ordered_heap *heap = calloc(1, sizeof *heap);
    if (!heap)
        return NULL;
    driver()->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    heap->handle = pool;
    heap->device = device;
    heap->threshold = threshold;
    heap->most = most;
    heap->next = ordered.all;
    ordered.all = heap;
    pools_set_helper(make_room);
    __atomic_fetch_add(&ordered.used, 1, __ATOMIC_RELAXED);
    return heap;
}

struct ordered_heap *ordered_heap_of(CUmemoryPool pool)
{
    return pool ? find(pool) : NULL;
}

/* A default pool is met at its first use; the others when they are made. */
struct ordered_heap *ordered_heap_for(const struct ordered_request *request)
{
    CUmemoryPool pool = request->pool;
    if (!pool) {
        int device = pool_devices_of_stream(request->stream);
        if (device < 0 || driver()->cuDeviceGetMemPool(&pool, device) != CUDA_SUCCESS)
            return NULL;
    }
    struct ordered_heap *heap = find(pool);
    if (!heap) {
        int device = pool_devices_of_default(pool);
        heap = device >= 0 && device < DEVICES_MAX && swappability_wants(device, ANY_SIZE)
                   ? add(pool, device, 0)
                   : NULL;
    }
    return heap && swappability_wants(heap->device, ANY_SIZE) ? heap : NULL;
}

void ordered_created(CUmemoryPool pool, const CUmemPoolProps *properties)
{
    bool is_ours = properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                   properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
                   properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                   properties->location.id >= 0 && properties->location.id < DEVICES_MAX;
    if (!is_ours || !swappability_wants(properties->location.id, ANY_SIZE))
        return;
    pthread_mutex_lock(&ordered.mutex);
    add(pool, properties->location.id, properties->maxSize);
    pthread_mutex_unlock(&ordered.mutex);
}

void ordered_settle(struct ordered_heap *heap)
{
    if (captures_are_on())
        return;
    for (struct ordered_cache **link = &heap->caches; *link;) {
        struct ordered_cache *cache = *link;
        if (cache->bytes && (cache->stream_id == ORDERED_NO_STREAM ? ordered_cache_wait(cache)
                                                                   : ordered_cache_is_done(cache)))
            ordered_heap_settle(heap, cache);
        /* a thread's default stream ends unseen, so an empty cache of such streams goes at once */
        if (cache->bytes || !(cache->is_ended || cache->is_eager)) {
            link = &cache->next;
            continue;
        }
        *link = cache->next;
        ordered_cache_end(cache);
    }
}

void ordered_end_if_empty(struct ordered_heap *heap)
{
    if (heap->handle || heap->uses || heap->chunks)
        return;
    struct ordered_heap **link = &ordered.all;
    while (*link != heap)
        link = &(*link)->next;
    *link = heap->next;
    if (heap->is_loose)
        __atomic_fetch_sub(&ordered.loose, 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&ordered.used, 1, __ATOMIC_RELAXED);
    while (heap->caches) {
        struct ordered_cache *cache = heap->caches;
        heap->caches = cache->next;
        ordered_cache_end(cache);
    }
    free(heap);
}

void ordered_release(struct ordered_chunk *chunks)
{
    while (chunks) {
        struct ordered_chunk *chunk = chunks;
        chunks = chunk->next;
        swappable_undo(chunk->start);
        pin_reasons_change(chunk->device, PIN_NONE, -(int64_t)chunk->bytes);
        quota_refund(chunk->device, chunk->bytes);
        ordered_chunk_end(chunk);
    }
}

/* Take what is idle from the heaps of a device, or of ANY_DEVICE. */
static struct ordered_chunk *take_idle(int device, bool is_to_threshold)
{
    struct ordered_chunk *all = NULL;
    pthread_mutex_lock(&ordered.mutex);
    for (struct ordered_heap *heap = ordered.all, *next; heap; heap = next) {
        next = heap->next;
        if ((device != ANY_DEVICE && heap->device != device) ||
            (is_to_threshold && !heap->is_loose))
            continue;
        ordered_settle(heap);
        uint64_t keep = is_to_threshold && heap->handle ? heap->threshold : 0;
        struct ordered_chunk *removed = ordered_heap_remove_idle(heap, keep), *last = removed;
        while (last && last->next)
            last = last->next;
        if (last) {
            last->next = all;
            all = removed;
        }
        ordered_note_loose(heap);
    }
    pthread_mutex_unlock(&ordered.mutex);
    return all;
}

static void end_empty_heaps(void)
{
    pthread_mutex_lock(&ordered.mutex);
    for (struct ordered_heap *heap = ordered.all, *next; heap; heap = next) {
        next = heap->next;
        ordered_end_if_empty(heap);
    }
    pthread_mutex_unlock(&ordered.mutex);
}

static bool release_all(int device, bool is_to_threshold)
{
    struct ordered_chunk *chunks = take_idle(device, is_to_threshold);
    ordered_release(chunks);
    end_empty_heaps();
    return chunks != NULL;
}

bool ordered_release_idle(int device)
{
    return release_all(device, false);
}

void ordered_trim(int device)
{
    if (ordered_is_used())
        release_all(device, false);
}

void ordered_synchronized(void)
{
    residency_hold();
    release_all(ANY_DEVICE, true);
    residency_release();
}

static bool has_unused(int device)
{
    bool has = false;
    pthread_mutex_lock(&ordered.mutex);
    for (const struct ordered_heap *heap = ordered.all; heap; heap = heap->next)
        has = has || (heap->device == device && heap->reserved > heap->used);
    pthread_mutex_unlock(&ordered.mutex);
    return has;
}

/* A call that the quota refused: release what is idle; where frees wait in streams, wait for the
 * device, as a driver does. */
static bool make_room(int device)
{
    if (!ordered_is_used())
        return false;
    residency_hold();
    bool has_released = release_all(device, false);
    if (!has_released && has_unused(device) && !captures_are_on() &&
        devices_current() == device && driver()->cuCtxSynchronize() == CUDA_SUCCESS)
        has_released = release_all(device, false);
    residency_release();
    return has_released;
}

void ordered_destroyed(CUmemoryPool pool)
{
    pthread_mutex_lock(&ordered.mutex);
    struct ordered_heap *heap = ordered_heap_of(pool);
    if (heap) {
        heap->handle = NULL;
        ordered_note_loose(heap);
    }
    pthread_mutex_unlock(&ordered.mutex);
    if (heap)
        ordered_synchronized();
}

void ordered_trimmed(CUmemoryPool pool, uint64_t keep)
{
    struct ordered_chunk *chunks = NULL;
    pthread_mutex_lock(&ordered.mutex);
    struct ordered_heap *heap = ordered_heap_of(pool);
    if (heap) {
        ordered_settle(heap);
        chunks = ordered_heap_remove_idle(heap, keep);
        ordered_note_loose(heap);
    }
    pthread_mutex_unlock(&ordered.mutex);
    residency_hold();
    ordered_release(chunks);
    residency_release();
}

void ordered_context_ended(CUcontext context, int device)
{
    if (!ordered_is_used())
        return;
    pthread_mutex_lock(&ordered.mutex);
    for (struct ordered_heap *heap = ordered.all; heap; heap = heap->next)
        for (struct ordered_cache **link = &heap->caches; *link;) {
            struct ordered_cache *cache = *link;
            if (cache->context != context && heap->device != device) {
                link = &cache->next;
                continue;
            }
            ordered_heap_settle(heap, cache);
            *link = cache->next;
            if (cache->context == context)
                cache->mark = NULL; /* it went with the context */
            ordered_cache_end(cache);
        }
    pthread_mutex_unlock(&ordered.mutex);
    if (device >= 0)
        release_all(device, false);
}

void ordered_stream_closes(CUstream stream, bool ends)
{
    if (!ordered_is_used())
        return;
    stream = ordered_stream_name(stream, false);
    pthread_mutex_lock(&ordered.mutex);
    for (struct ordered_heap *heap = ordered.all; heap; heap = heap->next)
        for (struct ordered_cache *cache = heap->caches; cache; cache = cache->next)
            if (cache->stream == stream && !cache->is_ended) {
                if (cache->bytes)
                    ordered_cache_set_mark(cache);
                cache->is_ended = ends;
            }
    pthread_mutex_unlock(&ordered.mutex);
}

void ordered_reset(void)
{
    pthread_mutex_init(&ordered.mutex, NULL);
    ordered.all = NULL; /* the parent's */
    ordered.used = ordered.loose = 0;
}
