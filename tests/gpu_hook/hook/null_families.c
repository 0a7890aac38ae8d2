/* The null driver's arrays, pools and page-locked memory. Their sizes are what no formula of the hook's gives: arrays
 * come in tiles, pools in chunks of 32 MiB, so that only a hook that asks the driver has them right. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "null_driver.h"

#define CHUNK (getenv("NULL_DRIVER_CHUNK") ? strtoull(getenv("NULL_DRIVER_CHUNK"), NULL, 10) : (size_t)32 << 20)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards pools and host */

struct array {
    int device;
    size_t bytes; /* 0: deferred */
    size_t needed;
};

static size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    size_t component = shape->Format == CU_AD_FORMAT_UNSIGNED_INT8    ? 1
                       : shape->Format == CU_AD_FORMAT_UNSIGNED_INT16 ? 2
                                                                      : 4;
    return component * shape->NumChannels;
}

static size_t tiled_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    size_t row = (shape->Width * element_bytes(shape) + 63) / 64 * 64;
    size_t rows = ((shape->Height ? shape->Height : 1) + 7) / 8 * 8;
    return row * rows * (shape->Depth ? shape->Depth : 1);
}

static CUresult create(struct array **out, const CUDA_ARRAY3D_DESCRIPTOR *shape, size_t needed)
{
    int device = null_device();
    if (device < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!out || !shape || !shape->Width || shape->NumChannels == 3)
        return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = shape->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING ? 0 : needed;
    if (null_take(device, bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = malloc(sizeof **out);
    **out = (struct array){device, bytes, needed};
    return CUDA_SUCCESS;
}

static CUresult destroy(struct array *array)
{
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    null_give(array->device, array->bytes);
    free(array);
    return CUDA_SUCCESS;
}

static CUresult tell(CUDA_ARRAY_MEMORY_REQUIREMENTS *answer, const struct array *array)
{
    answer->size = array->needed;
    return array->bytes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    *value = attribute == CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED && !getenv("NULL_DRIVER_OLD");
    return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    return create((struct array **)array, shape, shape ? tiled_bytes(shape) : 0);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *flat)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {flat->Width, flat->Height, 0, flat->Format, flat->NumChannels, 0};
    return create((struct array **)array, &shape, tiled_bytes(&shape));
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *answer, CUarray array, CUdevice device)
{
    return tell(answer, (struct array *)array);
}

CUresult cuArrayDestroy(CUarray array)
{
    return destroy((struct array *)array);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
    size_t needed = 0;
    CUDA_ARRAY3D_DESCRIPTOR level = *shape;
    for (unsigned int i = 0; i < levels; i++) {
        needed += tiled_bytes(&level);
        level.Width = level.Width > 1 ? level.Width / 2 : 1;
        level.Height = level.Height > 1 ? level.Height / 2 : 1;
    }
    return create((struct array **)array, shape, needed);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *answer, CUmipmappedArray array,
                                               CUdevice device)
{
    return tell(answer, (struct array *)array);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    return destroy((struct array *)array);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    for (unsigned i = 0; i < count; i++)
        if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
            null_map(list[i].memHandle.memHandle);
    return count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct pool {
    size_t used, reserved, threshold;
} pools[2];

static size_t chunks(size_t bytes)
{
    return (bytes + CHUNK - 1) / CHUNK * CHUNK;
}

static CUresult resize(struct pool *pool, size_t reserved)
{
    int device = (int)(pool - pools);
    if (reserved > pool->reserved && null_take(device, reserved - pool->reserved) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (reserved < pool->reserved)
        null_give(device, pool->reserved - reserved);
    pool->reserved = reserved;
    return CUDA_SUCCESS;
}

static void shrink(struct pool *pool, size_t keep)
{
    pthread_mutex_lock(&mutex);
    size_t least = chunks(pool->used), kept = keep < pool->reserved ? keep / CHUNK * CHUNK : pool->reserved;
    resize(pool, least > kept ? least : kept);
    pthread_mutex_unlock(&mutex);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    *pool = (CUmemoryPool)&pools[device];
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    return cuDeviceGetDefaultMemPool(pool, device);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    const struct pool *pool = (struct pool *)handle;
    if (pool < pools || pool >= pools + 2)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    *(cuuint64_t *)value = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool->reserved
                           : attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT   ? pool->used
                                                                             : pool->threshold;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    ((struct pool *)handle)->threshold = *(cuuint64_t *)value;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    shrink((struct pool *)handle, keep);
    return CUDA_SUCCESS;
}

/* A record lies before the bytes that it is about: the pointer is the record's. */
struct piece {
    struct pool *pool;
    size_t bytes;
};

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool handle, CUstream stream)
{
    struct pool *pool = (struct pool *)handle;
    if (pool < pools || pool >= pools + 2 || (uintptr_t)stream > 2)
        return pool < pools || pool >= pools + 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    struct piece *piece = malloc(sizeof *piece);
    *piece = (struct piece){pool, bytes};
    pthread_mutex_lock(&mutex);
    size_t needed = chunks(pool->used + bytes);
    CUresult result = needed > pool->reserved ? resize(pool, needed) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        pool->used += bytes;
    pthread_mutex_unlock(&mutex);
    *pointer = (CUdeviceptr)piece;
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return cuMemAllocFromPoolAsync(pointer, bytes, (CUmemoryPool)&pools[null_device()], stream);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    struct piece *piece = (struct piece *)pointer;
    pthread_mutex_lock(&mutex);
    piece->pool->used -= piece->bytes;
    pthread_mutex_unlock(&mutex);
    free(piece);
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return (uintptr_t)stream > 2 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    for (int i = 0; i < 2; i++)
        shrink(&pools[i], pools[i].threshold);
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    return cuStreamSynchronize(NULL);
}

#define HOST_SLOTS 64
static struct {
    void *start;
    int is_registered;
} host[HOST_SLOTS];

static int find_host(const void *start)
{
    int slot = 0;
    while (slot < HOST_SLOTS && host[slot].start != start)
        slot++;
    return slot;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    if (!pointer || !bytes || flags & ~7u)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    int slot = find_host(NULL);
    *pointer = slot < HOST_SLOTS ? malloc(bytes) : NULL;
    if (*pointer) {
        host[slot].start = *pointer;
        host[slot].is_registered = 0;
    }
    pthread_mutex_unlock(&mutex);
    return *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult cuMemAllocHost(void **pointer, unsigned int bytes)
{
    return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult cuMemFreeHost(void *pointer)
{
    pthread_mutex_lock(&mutex);
    int slot = find_host(pointer);
    int is_own = pointer && slot < HOST_SLOTS && !host[slot].is_registered;
    if (is_own)
        host[slot].start = NULL;
    pthread_mutex_unlock(&mutex);
    if (is_own)
        free(pointer);
    return is_own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (find_host(pointer) < HOST_SLOTS)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    int slot = find_host(NULL);
    host[slot].start = pointer;
    host[slot].is_registered = 1;
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    return cuMemHostRegister_v2(pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void *pointer)
{
    int slot = find_host(pointer);
    if (!pointer || slot == HOST_SLOTS || !host[slot].is_registered)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    host[slot].start = NULL;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    return pointer && find_host((void *)pointer) < HOST_SLOTS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
