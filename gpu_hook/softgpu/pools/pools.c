/* The life of pools: the default one of each device, created ones, and the current one of a
 * device. */
#include <stdlib.h>

#include "driver/driver.h"
#include "driver/handles.h"
#include "implemented.h"
#include "pools/pools_state.h"

struct pools pools = {.mutex = PTHREAD_MUTEX_INITIALIZER, .chunk_bytes = MACHINE_LARGE_UNIT};

void pools_set_chunk(uint64_t bytes)
{
    pools.chunk_bytes = bytes;
}

struct pool *pool_new(CUdevice device, int is_default)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL || handles_add(HANDLE_POOL, pool) != 0) {
        free(pool);
        return NULL;
    }
    pool->device = device;
    pool->physical = driver.physical[device];
    pool->is_default = is_default;
    for (int i = 0; i < REUSE_KINDS; i++)
        pool->reuse[i] = 1;
    pool->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    pool->next = pools.all;
    pools.all = pool;
    return pool;
}

void pool_end_if_empty(struct pool *pool)
{
    if (!pool->is_destroyed)
        return;
    pool_release(pool, 0);
    if (pool->chunks || pool->imports)
        return;
    struct pool **link = &pools.all;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    pool_close_share(pool);
    free(pool);
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
        pools.defaults[device] = pools.current[device] = pool_new(device, 1);
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
    if (!handles_has(HANDLE_POOL, pool) || ((struct pool *)pool)->device != dev || ((struct pool *)pool)->is_imported)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    pools.current[dev] = (struct pool *)pool;
    pthread_mutex_unlock(&pools.mutex);
    return CUDA_SUCCESS;
}

/* The pools by location exist since 13.0; only device memory is served. */
static CUresult check_location(const CUmemLocation *location, CUmemAllocationType type)
{
    if (location == NULL || (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED))
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        if (driver_check_device(location->id))
            return CUDA_ERROR_INVALID_VALUE;
        return type == CU_MEM_ALLOCATION_TYPE_PINNED ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
    case CU_MEM_LOCATION_TYPE_NONE:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult impl_cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
    CUresult result = check_location(location, type);
    return result ? result : impl_cuDeviceGetDefaultMemPool(pool_out, location->id);
}

CUresult impl_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    CUresult result = check_location(location, type);
    return result ? result : impl_cuDeviceGetMemPool(pool, location->id);
}

CUresult impl_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    CUresult result = check_location(location, type);
    return result ? result : impl_cuDeviceSetMemPool(location->id, pool);
}

CUresult impl_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    if (pool == NULL || poolProps == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_location(&poolProps->location, poolProps->allocType);
    if (result)
        return result;
    if (poolProps->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&pools.mutex);
    struct pool *made = pool_new(poolProps->location.id, 0);
    if (made)
        made->most_bytes = poolProps->maxSize;
    if (made && poolProps->handleTypes && pool_share(made) != 0) {
        handles_remove(HANDLE_POOL, made);
        made->is_destroyed = 1;
        pool_end_if_empty(made);
        made = NULL;
    }
    pthread_mutex_unlock(&pools.mutex);
    *pool = (CUmemoryPool)made;
    return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Allocations live on: the pool is freed with the last of them. */
CUresult impl_cuMemPoolDestroy(CUmemoryPool pool)
{
    struct pool *gone = (struct pool *)pool;
    pthread_mutex_lock(&pools.mutex);
    int is_own = handles_has(HANDLE_POOL, gone) && !gone->is_default && handles_remove(HANDLE_POOL, gone);
    if (is_own) {
        if (pools.current[gone->device] == gone)
            pools.current[gone->device] = pools.defaults[gone->device];
        gone->is_destroyed = 1;
        pool_settle(gone);
        pool_end_if_empty(gone);
    }
    pthread_mutex_unlock(&pools.mutex);
    return is_own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    pthread_mutex_lock(&pools.mutex);
    int is_live = handles_has(HANDLE_POOL, pool);
    if (is_live) {
        pool_settle((struct pool *)pool);
        pool_release((struct pool *)pool, minBytesToKeep);
    }
    pthread_mutex_unlock(&pools.mutex);
    return is_live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void pools_synchronised(void)
{
    pthread_mutex_lock(&pools.mutex);
    for (struct pool *pool = pools.all, *next; pool; pool = next) {
        next = pool->next;
        pool_settle(pool);
        pool_release(pool, pool->threshold);
        pool_end_if_empty(pool);
    }
    pthread_mutex_unlock(&pools.mutex);
}

static int release_unused(unsigned physical)
{
    int has_released = 0;
    pthread_mutex_lock(&pools.mutex);
    for (struct pool *pool = pools.all; pool; pool = pool->next)
        if (pool->physical == physical) {
            pool_settle(pool);
            has_released |= pool_release(pool, 0);
        }
    pthread_mutex_unlock(&pools.mutex);
    return has_released;
}

/* Under the mutex: the allocation is no more, freed or not. */
static void drop_part(struct part *part)
{
    struct part *own = part->freed_on || part->allocation.is_dying ? part : pool_begin_free(part->allocation.start, 1);
    if (own && own->pending) {
        own->pending->part = NULL;
        own->pending = NULL;
    }
}

void pools_close_device(unsigned physical)
{
    pthread_mutex_lock(&pools.mutex);
    for (struct pool *pool = pools.all, *next; pool; pool = next) {
        next = pool->next;
        if (pool->physical != physical)
            continue;
        for (struct chunk *chunk = pool->chunks; chunk; chunk = chunk->next)
            for (struct range *range = ranges_next_owned(&chunk->parts, 0); range;
                 range = ranges_next_owned(&chunk->parts, range->start + range->bytes))
                drop_part(range->owner);
        pool_settle(pool);
        pool_release(pool, 0);
        pool_end_if_empty(pool);
    }
    pthread_mutex_unlock(&pools.mutex);
}

int pool_free_now(uint64_t address)
{
    pthread_mutex_lock(&pools.mutex);
    struct part *part = pool_begin_free(address, 1);
    if (part)
        pool_reach_free(part, 1);
    int failed = part ? 0 : pool_give_import(address);
    pthread_mutex_unlock(&pools.mutex);
    return failed;
}

int pools_wait_for_frees(unsigned physical)
{
    int waited = 0;
    for (;;) {
        pthread_mutex_lock(&pools.mutex);
        struct pending_free *pending = pools.pending;
        while (pending && pending->physical != physical)
            pending = pending->next;
        struct work_item *work = pending ? pending->work : NULL;
        if (work)
            work_hold(work);
        pthread_mutex_unlock(&pools.mutex);
        if (work == NULL)
            return waited;
        work_wait(work);
        work_drop(work);
        waited = 1;
    }
}

int pools_make_room(unsigned physical)
{
    return pools_wait_for_frees(physical) | release_unused(physical);
}
