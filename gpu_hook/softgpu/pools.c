/* Pools, and the frees that wait in streams. */
#include "pools.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "handles.h"
#include "implemented.h"
#include "streams.h"
#include "window.h"

/* A CUmemoryPool is a pointer to this. */
struct pool {
    CUdevice device;
    int is_default;
    uint64_t used, used_high; /* under the mutex */
    uint64_t threshold;       /* kept for the asker: nothing is held back */
    int reuse[3];
};

struct pending_free {
    uint64_t address;
    struct pending_free *next; /* under the mutex */
    struct work *work;
    unsigned physical;
};

static struct {
    pthread_mutex_t mutex;
    struct pool *defaults[MACHINE_DEVICES], *current[MACHINE_DEVICES];
    struct pending_free *pending;
} pools = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void pool_count(struct pool *pool, int64_t bytes)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pools.mutex);
    pool->used += (uint64_t)bytes;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    pthread_mutex_unlock(&pools.mutex);
}

static struct pool *new_pool(CUdevice device, int is_default)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL || handles_add(HANDLE_POOL, pool) != 0) {
        free(pool);
        return NULL;
    }
    pool->device = device;
    pool->is_default = is_default;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    return pool;
}

static CUresult get_pool(CUmemoryPool *out, CUdevice device, struct pool **table)
{
    CUresult result = driver_check_device(device);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&pools.mutex);
    if (pools.defaults[device] == NULL)
        pools.defaults[device] = pools.current[device] = new_pool(device, 1);
    *out = (CUmemoryPool)table[device];
    pthread_mutex_unlock(&pools.mutex);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult impl_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    return get_pool(pool_out, dev, pools.defaults);
}

CUresult impl_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    return get_pool(pool, dev, pools.current);
}

CUresult impl_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    CUmemoryPool before;
    CUresult result = impl_cuDeviceGetMemPool(&before, dev);
    if (result)
        return result;
    if (!handles_has(HANDLE_POOL, pool) || ((struct pool *)pool)->device != dev)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    pools.current[dev] = (struct pool *)pool;
    pthread_mutex_unlock(&pools.mutex);
    return CUDA_SUCCESS;
}

/* The pools by location exist since 13.0; only device memory is served. */
static int is_device_pool(const CUmemLocation *location, CUmemAllocationType type)
{
    return location && type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE;
}

CUresult impl_cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
    return is_device_pool(location, type) ? impl_cuDeviceGetDefaultMemPool(pool_out, location->id)
                                          : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult impl_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    return is_device_pool(location, type) ? impl_cuDeviceGetMemPool(pool, location->id) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult impl_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    return is_device_pool(location, type) ? impl_cuDeviceSetMemPool(location->id, pool) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult impl_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    if (pool == NULL || poolProps == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device_pool(&poolProps->location, poolProps->allocType) || poolProps->handleTypes)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (driver_check_device(poolProps->location.id))
        return CUDA_ERROR_INVALID_VALUE;
    *pool = (CUmemoryPool)new_pool(poolProps->location.id, 0);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What was allocated from it lives on, and still counts on it: the struct stays. */
CUresult impl_cuMemPoolDestroy(CUmemoryPool pool)
{
    struct pool *gone = (struct pool *)pool;
    if (!handles_has(HANDLE_POOL, gone) || gone->is_default || !handles_remove(HANDLE_POOL, gone))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    if (pools.current[gone->device] == gone)
        pools.current[gone->device] = pools.defaults[gone->device];
    pthread_mutex_unlock(&pools.mutex);
    return CUDA_SUCCESS;
}

CUresult impl_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    return handles_has(HANDLE_POOL, pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Under the mutex: where a pool's attribute lives; *is_int tells its type. */
static void *find_attribute(struct pool *pool, CUmemPool_attribute attribute, int *is_int)
{
    *is_int = attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

CUresult impl_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    int is_int;
    if (!handles_has(HANDLE_POOL, pool) || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    void *found = find_attribute((struct pool *)pool, attr, &is_int);
    if (found)
        memcpy(value, found, is_int ? sizeof(int) : sizeof(cuuint64_t));
    pthread_mutex_unlock(&pools.mutex);
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult impl_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    int is_int;
    CUresult result = CUDA_SUCCESS;
    struct pool *set = (struct pool *)pool;
    if (!handles_has(HANDLE_POOL, pool) || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    void *found = find_attribute(set, attr, &is_int);
    if (found == NULL || found == &set->used) {
        result = found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    } else if (found == &set->used_high) { /* may only be reset, to what is in use */
        if (*(cuuint64_t *)value == 0)
            set->used_high = set->used;
        else
            result = CUDA_ERROR_INVALID_VALUE;
    } else {
        memcpy(found, value, is_int ? sizeof(int) : sizeof(cuuint64_t));
    }
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

/* All devices of the machine reach each other's memory. */
CUresult impl_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    return handles_has(HANDLE_POOL, pool) && (map || !count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    if (!handles_has(HANDLE_POOL, memPool) || flags == NULL || location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *dptr, size_t bytes, struct pool *pool)
{
    struct context *context;
    uint64_t address;
    CUresult result = context_current(&context);
    if (result)
        return result;
    /* The pool's device may be another than the current context's: the memory then belongs to its primary context. */
    if (context->device != pool->device) {
        struct context *primary = context_primary_if_active(pool->device);
        result = primary ? CUDA_SUCCESS : context_retain_primary(pool->device, &primary);
        if (result)
            return result;
        context = primary;
    }
    result = window_allocate(context, bytes, pool, &address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && pools_wait_for_frees(context->physical))
        result = window_allocate(context, bytes, pool, &address);
    if (result == CUDA_SUCCESS) {
        pool_count(pool, (int64_t)window_round(bytes));
        *dptr = address;
    }
    return result;
}

CUresult impl_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result)
        return result;
    if (dptr == NULL || bytesize == 0 || !handles_has(HANDLE_POOL, pool))
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(dptr, bytesize, (struct pool *)pool);
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

static void forget(struct pending_free *own)
{
    pthread_mutex_lock(&pools.mutex);
    struct pending_free **link = &pools.pending;
    while (*link && *link != own)
        link = &(*link)->next;
    if (*link)
        *link = own->next;
    pthread_mutex_unlock(&pools.mutex);
}

static CUresult run_free(struct work *work, uint64_t *clock)
{
    struct pending_free *own = (struct pending_free *)work->payload;
    struct allocation found;
    if (window_find(own->address, &found) == 0 && window_free(own->address) == 0)
        pool_count(found.pool, -(int64_t)found.charged);
    forget(own);
    return CUDA_SUCCESS;
}

CUresult impl_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    struct stream *stream;
    struct context *context;
    struct allocation found;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || dptr == 0)
        return result;
    struct work *work = work_new(run_free, sizeof(struct pending_free));
    if (work == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (window_find(dptr, &found) != 0 || window_mark_dying(dptr) != 0) {
        work_drop(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct pending_free *own = (struct pending_free *)work->payload;
    work->runs_after_failure = 1;
    *own = (struct pending_free){.address = dptr, .work = work, .physical = found.device};
    pthread_mutex_lock(&pools.mutex);
    own->next = pools.pending;
    pools.pending = own;
    pthread_mutex_unlock(&pools.mutex);
    work_hold(work);
    result = stream_enqueue_short(stream, work);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        forget(own);
    work_drop(work);
    return result;
}

int pools_wait_for_frees(unsigned physical)
{
    int waited = 0;
    for (;;) {
        pthread_mutex_lock(&pools.mutex);
        struct pending_free *pending = pools.pending;
        while (pending && pending->physical != physical)
            pending = pending->next;
        if (pending)
            work_hold(pending->work);
        pthread_mutex_unlock(&pools.mutex);
        if (pending == NULL)
            return waited;
        struct work *work = pending->work;
        work_wait(work);
        work_drop(work);
        waited = 1;
    }
}
