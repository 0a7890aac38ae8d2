/* Allocation and free in the order of a stream. */
#include <stdlib.h>

#include "queue/captures.h"
#include "driver/driver.h"
#include "graphs/graph_memory.h"
#include "driver/handles.h"
#include "implemented.h"
#include "pools/pools_state.h"

static CUresult pass(struct work_item *work, uint64_t *clock)
{
    return CUDA_SUCCESS;
}

/* Makes later work of `stream` wait for `earlier`. */
static CUresult add_wait(struct stream *stream, struct work_item *earlier)
{
    struct work_item *wait = work_new(pass, 0);
    if (wait == NULL || work_needs(wait, earlier) != 0) {
        work_drop(wait);
        work_wait(earlier); /* without memory for the dependency, the caller waits */
        return CUDA_SUCCESS;
    }
    return stream_enqueue_short(stream, wait);
}

static CUresult take(struct pool *pool, struct context *context, size_t bytes, struct stream *stream,
                     uint64_t *address)
{
    struct work_item *wait;
    pthread_mutex_lock(&pools.mutex);
    CUresult result = handles_has(HANDLE_POOL, pool)
                          ? pool_take(pool, context, bytes, stream, address, &wait)
                          : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&pools.mutex);
    if (result == CUDA_SUCCESS && wait) {
        add_wait(stream, wait);
        work_drop(wait);
    }
    return result;
}

CUresult impl_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    struct stream *stream;
    struct context *context;
    uint64_t address;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result)
        return result;
    if (dptr == NULL || bytesize == 0 || !handles_has(HANDLE_POOL, pool) || ((struct pool *)pool)->is_imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture_takes(stream, &result))
        return captures->allocation(stream, ((struct pool *)pool)->device, bytesize, dptr);
    if (result)
        return result;
    unsigned physical = ((struct pool *)pool)->physical;
    result = take((struct pool *)pool, context, bytesize, stream, &address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && pools_wait_for_frees(physical))
        result = take((struct pool *)pool, context, bytesize, stream, &address);
    if (result == CUDA_SUCCESS)
        *dptr = address;
    return result;
}

CUresult impl_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    struct stream *stream;
    struct context *context;
    CUmemoryPool pool;
    CUresult result = stream_resolve(hStream, &stream, &context);
    result = result ? result : impl_cuDeviceGetMemPool(&pool, context->device);
    return result ? result : impl_cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream);
}

/* Under the mutex. */
static void forget(const struct pending_free *own)
{
    struct pending_free **link = &pools.pending;
    while (*link && *link != own)
        link = &(*link)->next;
    if (*link)
        *link = own->next;
}

static CUresult run_free(struct work_item *work, uint64_t *clock)
{
    struct pending_free *own = (struct pending_free *)work->payload;
    pthread_mutex_lock(&pools.mutex);
    if (own->part)
        pool_reach_free(own->part, 0);
    else if (own->address && pool_give_import(own->address) != 0)
        window_free(own->address);
    forget(own);
    pthread_mutex_unlock(&pools.mutex);
    return CUDA_SUCCESS;
}

/* 0, or -1 when no pointer of an imported pool starts there or its free is queued already. */
static int mark_import(uint64_t address)
{
    window_lock();
    struct allocation *found = window_look_up(address);
    int is_first = found && found->kind == ALLOCATION_IMPORTED && found->pool && found->start == address &&
                   !found->is_dying;
    if (is_first)
        found->is_dying = 1;
    window_unlock();
    return is_first ? 0 : -1;
}

/* Called under the mutex: records the free. INVALID_VALUE when nothing starts there. */
static CUresult begin_free(uint64_t address, struct stream *stream, struct pending_free *own)
{
    struct allocation found;
    if (window_find(address, &found) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    own->physical = found.device;
    own->part = pool_begin_free(address, stream->id);
    int is_free = own->part || mark_import(address) == 0 || (!found.pool && window_mark_dying(address) == 0);
    if (!is_free)
        return CUDA_ERROR_INVALID_VALUE;
    if (own->part)
        own->part->pending = own;
    else
        own->address = address;
    own->next = pools.pending;
    pools.pending = own;
    return CUDA_SUCCESS;
}

CUresult impl_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || dptr == 0)
        return result;
    if (capture_takes(stream, &result))
        return captures->free(stream, dptr);
    struct allocation found;
    if (result)
        return result;
    if (window_find(dptr, &found) == 0 && found.kind == ALLOCATION_GRAPH)
        return graph_memory_free_async(dptr, stream);
    struct work_item *work = work_new(run_free, sizeof(struct pending_free));
    if (work == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct pending_free *own = (struct pending_free *)work->payload;
    own->work = work;
    work->runs_after_failure = 1;
    pthread_mutex_lock(&pools.mutex);
    result = begin_free(dptr, stream, own);
    pthread_mutex_unlock(&pools.mutex);
    if (result) {
        work_drop(work);
        return result;
    }
    work_hold(work);
    result = stream_enqueue_short(stream, work);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* not queued: nothing waits for the stream */
        uint64_t clock = 0;
        run_free(work, &clock);
    }
    work_drop(work);
    return result;
}
