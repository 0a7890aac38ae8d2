#include "ordered/ordered_streams.h"

#include <stdlib.h>

CUstream ordered_stream_name(CUstream stream, bool is_per_thread)
{
    if (is_per_thread)
        return stream ? stream : CU_STREAM_PER_THREAD;
    return stream ? stream : CU_STREAM_LEGACY;
}

bool ordered_stream_id(CUstream stream, uint64_t *id)
{
    unsigned long long found = 0;
    if (driver()->cuStreamGetId(stream, &found) != CUDA_SUCCESS)
        return false;
    *id = found;
    return true;
}

static CUcontext context_of(CUstream stream)
{
    CUcontext context = NULL;
    bool is_own = stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
    if (!is_own || driver()->cuStreamGetCtx(stream, &context) != CUDA_SUCCESS)
        driver()->cuCtxGetCurrent(&context);
    return context;
}

/* Another thread cannot name a thread's default stream, and the handle of a green context's stream
 * may end unseen. The legacy stream and blocking ones wait for each other, but by what is queued
 * alone: a stream in which nothing was queued is no witness that earlier work of the others ended,
 * while an event is queued behind it. */
static bool must_mark_at_once(CUstream stream)
{
    CUgreenCtx green = NULL;
    unsigned flags = CU_STREAM_DEFAULT;
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        driver()->cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS ||
        !(flags & CU_STREAM_NON_BLOCKING))
        return true;
    return driver()->cuStreamGetGreenCtx(stream, &green) == CUDA_SUCCESS && green;
}

struct ordered_cache *ordered_cache_of(struct ordered_heap *heap, CUstream stream, uint64_t id)
{
    struct ordered_cache *cache = heap->caches;
    while (cache && cache->stream_id != id)
        cache = cache->next;
    if (!cache) {
        cache = calloc(1, sizeof *cache);
        if (!cache)
            return NULL;
        cache->stream_id = id;
        cache->context = context_of(stream);
        cache->is_eager = must_mark_at_once(stream);
        cache->next = heap->caches;
        heap->caches = cache;
    }
    cache->stream = stream;
    cache->is_ended = false;
    return cache;
}

static bool set_mark_inside(struct ordered_cache *cache)
{
    if (!cache->mark &&
        driver()->cuEventCreate(&cache->mark, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        cache->mark = NULL;
        return false;
    }
    return driver()->cuEventRecord(cache->mark, cache->stream) == CUDA_SUCCESS;
}

bool ordered_cache_set_mark(struct ordered_cache *cache)
{
    CUcontext popped;
    if (cache->is_marked)
        return true;
    if (cache->is_ended || driver()->cuCtxPushCurrent_v2(cache->context) != CUDA_SUCCESS)
        return false;
    cache->is_marked = set_mark_inside(cache);
    driver()->cuCtxPopCurrent_v2(&popped);
    return cache->is_marked;
}

void ordered_cache_freed(struct ordered_cache *cache)
{
    cache->is_marked = false;
    if (cache->is_eager)
        ordered_cache_set_mark(cache);
}

bool ordered_cache_is_done(const struct ordered_cache *cache)
{
    CUcontext popped;
    if (cache->is_marked)
        return driver()->cuEventQuery(cache->mark) == CUDA_SUCCESS;
    if (cache->is_ended || cache->is_eager ||
        driver()->cuCtxPushCurrent_v2(cache->context) != CUDA_SUCCESS)
        return false;
    bool is_done = driver()->cuStreamQuery(cache->stream) == CUDA_SUCCESS;
    driver()->cuCtxPopCurrent_v2(&popped);
    return is_done;
}

bool ordered_cache_wait(const struct ordered_cache *cache)
{
    CUcontext popped;
    if (driver()->cuCtxPushCurrent_v2(cache->context) != CUDA_SUCCESS)
        return false;
    bool is_done = driver()->cuCtxSynchronize() == CUDA_SUCCESS;
    driver()->cuCtxPopCurrent_v2(&popped);
    return is_done;
}

void ordered_cache_end(struct ordered_cache *cache)
{
    if (cache->mark)
        driver()->cuEventDestroy_v2(cache->mark);
    free(cache);
}
