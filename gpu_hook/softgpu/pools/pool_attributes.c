/* The attributes of a pool. */
#include <string.h>

#include "driver/driver.h"
#include "driver/handles.h"
#include "implemented.h"
#include "pools/pools_state.h"

/* Under the mutex: where a pool's attribute lives; *bytes is its size. */
static void *find_attribute(struct pool *pool, CUmemPool_attribute attribute, size_t *bytes)
{
    *bytes = attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? sizeof(int) : sizeof(cuuint64_t);
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return &pool->reuse[REUSE_EVENTS];
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return &pool->reuse[REUSE_OPPORTUNISTIC];
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &pool->reuse[REUSE_INTERNAL];
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

CUresult impl_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    size_t bytes;
    pthread_mutex_lock(&pools.mutex);
    int is_live = handles_has(HANDLE_POOL, pool) && value;
    void *found = is_live ? find_attribute((struct pool *)pool, attr, &bytes) : NULL;
    if (found)
        memcpy(value, found, bytes);
    pthread_mutex_unlock(&pools.mutex);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Called under the mutex. A high watermark may only be reset to the current value; current values
 * are read-only. */
static CUresult set_attribute(struct pool *pool, CUmemPool_attribute attribute, const void *value)
{
    size_t bytes;
    void *found = find_attribute(pool, attribute, &bytes);
    if (found == NULL || found == &pool->used || found == &pool->reserved)
        return CUDA_ERROR_INVALID_VALUE;
    if (found == &pool->used_high || found == &pool->reserved_high) {
        if (*(const cuuint64_t *)value != 0)
            return CUDA_ERROR_INVALID_VALUE;
        *(uint64_t *)found = found == &pool->used_high ? pool->used : pool->reserved;
    } else {
        memcpy(found, value, bytes);
    }
    return CUDA_SUCCESS;
}

CUresult impl_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    if (handles_has(HANDLE_POOL, pool) && value)
        result = set_attribute((struct pool *)pool, attr, value);
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

/* Under the mutex: where the access from a location is kept, or NULL. */
static CUmemAccess_flags *find_access(struct pool *pool, const CUmemLocation *location)
{
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || driver_check_device(location->id))
        return NULL;
    return &pool->access[location->id];
}

/* A device always reaches its own memory. */
static CUresult set_access(struct pool *pool, const CUmemAccessDesc *wanted, int is_trial)
{
    CUmemAccess_flags *access = find_access(pool, &wanted->location);
    int is_own = access == &pool->access[pool->device];
    if (access == NULL || (wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
                           (wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE || is_own)))
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_trial)
        *access = wanted->flags;
    return CUDA_SUCCESS;
}

CUresult impl_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&pools.mutex);
    if (!handles_has(HANDLE_POOL, pool) || (map == NULL && count))
        result = CUDA_ERROR_INVALID_VALUE;
    for (int is_trial = 1; is_trial >= 0; is_trial--) /* all of them or none */
        for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
            result = set_access((struct pool *)pool, &map[i], is_trial);
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

CUresult impl_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    pthread_mutex_lock(&pools.mutex);
    int is_live = handles_has(HANDLE_POOL, memPool) && flags && location;
    CUmemAccess_flags *found = is_live ? find_access((struct pool *)memPool, location) : NULL;
    if (found)
        *flags = *found;
    pthread_mutex_unlock(&pools.mutex);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
