/* Host memory is memory: "page-locked" means that copies from it may be asynchronous. It is not
 * locked, so that a laptop's ulimit -l does not matter. */
#include "memory/host_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "queue/captures.h"
#include "driver/handles.h"
#include "implemented.h"
#include "device/ranges.h"
#include "driver/resources.h"
#include "queue/streams.h"

static struct {
    pthread_mutex_t mutex; /* guards the map and its records */
    struct ranges map;
    uint64_t next_id;
} host = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int host_memory_find(uint64_t address, struct host_range *found)
{
    pthread_mutex_lock(&host.mutex);
    struct range *range = ranges_find(&host.map, address);
    if (range)
        *found = *(struct host_range *)range->owner;
    pthread_mutex_unlock(&host.mutex);
    return range ? 0 : -1;
}

static int overlaps(uint64_t start, uint64_t bytes)
{
    struct range *next = ranges_next_owned(&host.map, start);
    return ranges_find(&host.map, start) != NULL || (next && next->start < start + bytes);
}

static CUresult add(struct context *context, uint64_t start, uint64_t bytes, unsigned flags, int is_registered)
{
    struct host_range *record = malloc(sizeof *record);
    CUresult result = record ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&host.mutex);
    if (record)
        *record = (struct host_range){start, bytes, flags, is_registered, context, ++host.next_id};
    if (record && overlaps(start, bytes))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else if (record && ranges_insert(&host.map, start, bytes, record) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&host.mutex);
    if (result)
        free(record);
    return result;
}

/* Takes the record out if it starts at `start` and is of the wanted sort. */
static struct host_range *take(uint64_t start, int is_registered)
{
    pthread_mutex_lock(&host.mutex);
    struct range *range = ranges_find(&host.map, start);
    struct host_range *record = range ? range->owner : NULL;
    if (record && (record->start != start || record->is_registered != is_registered))
        record = NULL;
    if (record)
        ranges_remove(&host.map, start);
    pthread_mutex_unlock(&host.mutex);
    return record;
}

CUresult impl_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    struct context *context;
    CUresult result = context_current(&context);
    result = result ? result : capture_check_unsafe();
    const unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (result || pp == NULL || bytesize == 0 || Flags & ~known)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    void *memory = mmap(NULL, bytesize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = add(context, (uint64_t)memory, bytesize, Flags, 0);
    if (result)
        munmap(memory, bytesize);
    else
        *pp = memory;
    return result;
}

CUresult impl_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return impl_cuMemHostAlloc(pp, bytesize, 0);
}

CUresult impl_cuMemFreeHost(void *p)
{
    struct context *context;
    struct host_range found;
    CUresult result = context_current(&context);
    result = result ? result : capture_check_unsafe();
    if (result)
        return result;
    if (host_memory_find((uint64_t)p, &found) == 0 && handles_has(HANDLE_CONTEXT, found.context))
        streams_drain(found.context);
    struct host_range *record = take((uint64_t)p, 0);
    if (record == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    munmap(p, record->bytes);
    free(record);
    return CUDA_SUCCESS;
}

CUresult impl_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    struct context *context;
    CUresult result = context_current(&context);
    result = result ? result : capture_check_unsafe();
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                           CU_MEMHOSTREGISTER_READ_ONLY;
    uint64_t end;
    if (result || p == NULL || bytesize == 0 || Flags & ~known || __builtin_add_overflow((uint64_t)p, bytesize, &end))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (resource_take(context) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = add(context, (uint64_t)p, bytesize, Flags, 1);
    if (result)
        resource_give(context);
    return result;
}

CUresult impl_cuMemHostUnregister(void *p)
{
    struct context *context;
    CUresult result = context_current(&context);
    result = result ? result : capture_check_unsafe();
    if (result)
        return result;
    struct host_range *record = take((uint64_t)p, 1);
    if (record)
        resource_give(record->context);
    free(record);
    return record ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* One address space: the device's name for host memory is its own address. */
CUresult impl_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    struct host_range found;
    if (pdptr == NULL || Flags || host_memory_find((uint64_t)p, &found) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *pdptr = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult impl_cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    struct host_range found;
    if (pFlags == NULL || host_memory_find((uint64_t)p, &found) != 0 || found.is_registered)
        return CUDA_ERROR_INVALID_VALUE;
    *pFlags = found.flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}
