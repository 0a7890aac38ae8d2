/* A driver that does nothing: every call returns at once, and no two threads share a line of
 * memory. The hook causes all the extra time that a program takes on it with a hook. A driver
 * that queues hides that difference, since the hook's work overlaps with the queue's. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "null_driver.h"

#include <stdlib.h>
#include <string.h>

#define DEVICE_BYTES ((size_t)64 << 30)
#define GRAIN ((CUdeviceptr)512)

static char the_context[64];
unsigned char null_uuid[16];
int null_contexts;
static __thread CUcontext current;
static CUdeviceptr next_address = (CUdeviceptr)1 << 40; /* allocations are measured in one thread */

static unsigned nibble(char digit)
{
    return (unsigned)(digit <= '9' ? digit - '0' : (digit | 32) - 'a' + 10);
}

/* BENCH_UUID in hexadecimal: the device by which the agent and NVML know it. Read at load, so
 * that no call pays for it. */
static __attribute__((constructor)) void read_uuid(void)
{
    const char *text = getenv("BENCH_UUID");
    for (unsigned i = 0; text && text[0] && text[1] && i < sizeof null_uuid; i++, text += 2)
        null_uuid[i] = (unsigned char)(nibble(text[0]) << 4 | nibble(text[1]));
}

CUresult cuInit(unsigned int flags)
{
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = 0;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    strncpy(name, "null", (size_t)length);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    memcpy(uuid->bytes, null_uuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid(uuid, device);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    *value = attribute == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR ? 2048 : 128;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    *bytes = DEVICE_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)the_context;
    null_contexts++;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    null_contexts--;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    *flags = 0;
    *active = null_contexts > 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    *pointer = next_address;
    next_address += (bytes + GRAIN - 1) / GRAIN * GRAIN;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    return cuMemAlloc_v2(pointer, bytes);
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return cuMemAlloc_v2(pointer, bytes);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    return CUDA_SUCCESS;
}

/* A pool that keeps all that it has. */
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    *pool = (CUmemoryPool)the_context;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    return cuDeviceGetDefaultMemPool(pool, device);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        *(cuuint64_t *)value = UINT64_MAX;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    *id = 7;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags)
{
    return cuMemAlloc_v2(pointer, bytes);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = *total_bytes = DEVICE_BYTES;
    return CUDA_SUCCESS;
}

/* Peers do not load without these. */
CUresult cuGetErrorString(CUresult error, const char **text)
{
    *text = "an error of the null driver";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    return cuGetErrorString(error, text);
}

#define COPY(name, ...)          \
    CUresult name(__VA_ARGS__)   \
    {                            \
        return CUDA_SUCCESS;     \
    }
COPY(cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t bytes)
COPY(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
COPY(cuMemcpyHtoD_v2, CUdeviceptr to, const void *from, size_t bytes)
COPY(cuMemcpyDtoH_v2, void *to, CUdeviceptr from, size_t bytes)
COPY(cuMemcpyDtoHAsync_v2, void *to, CUdeviceptr from, size_t bytes, CUstream stream)
COPY(cuMemcpyDtoD_v2, CUdeviceptr to, CUdeviceptr from, size_t bytes)
COPY(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
COPY(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void *from, size_t bytes, CUstream stream)

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void **parameters, void **extra)
{
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream)
{
    return CUDA_SUCCESS;
}

/* Reports every event as passed, and 10 µs between any two. */
CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    static char only;
    *event = (CUevent)&only;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent begin, CUevent end)
{
    *milliseconds = 0.01f;
    return CUDA_SUCCESS;
}

/* Serves this file's functions: peers, too, look their functions up this way. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    *function = NULL;
    if (status)
        *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}
