/* Memory, copies, pools, sharing. Addresses are unified, so the driver finds the direction of a
 * copy. */
#include "runtime.h"

#include <stdint.h>
#include <string.h>

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

EXPORT cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    if (bytes == 0) {
        *pointer = NULL;
        return cudaSuccess;
    }
    FORWARD(driver()->cuMemAlloc((CUdeviceptr *)pointer, bytes));
}

EXPORT cudaError_t cudaFree(void *pointer)
{
    if (pointer == NULL)
        return runtime_end(runtime_enter());
    FORWARD(driver()->cuMemFree(ADDRESS(pointer)));
}

EXPORT cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream)
{
    FORWARD(driver()->cuMemAllocAsync((CUdeviceptr *)pointer, bytes, stream));
}

EXPORT cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    FORWARD(driver()->cuMemFreeAsync(ADDRESS(pointer), stream));
}

EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    FORWARD(driver()->cuMemGetInfo(free_bytes, total_bytes));
}

EXPORT cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    FORWARD(driver()->cuMemHostAlloc(pointer, bytes, flags));
}

EXPORT cudaError_t cudaFreeHost(void *pointer)
{
    FORWARD(pointer ? driver()->cuMemFreeHost(pointer) : CUDA_SUCCESS);
}

EXPORT cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    FORWARD(driver()->cuMemHostRegister(pointer, bytes, flags));
}

EXPORT cudaError_t cudaHostUnregister(void *pointer)
{
    FORWARD(driver()->cuMemHostUnregister(pointer));
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    FORWARD(bytes ? driver()->cuMemcpy(ADDRESS(to), ADDRESS(from), bytes) : CUDA_SUCCESS);
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                   cudaStream_t stream)
{
    FORWARD(bytes ? driver()->cuMemcpyAsync(ADDRESS(to), ADDRESS(from), bytes, stream) : CUDA_SUCCESS);
}

EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                       cudaStream_t stream)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                     size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CUDA_MEMCPY2D copy;
    memset(&copy, 0, sizeof copy);
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = ADDRESS(from);
    copy.dstDevice = ADDRESS(to);
    copy.srcPitch = from_pitch;
    copy.dstPitch = to_pitch;
    copy.WidthInBytes = width;
    copy.Height = height;
    FORWARD(driver()->cuMemcpy2DAsync(&copy, stream));
}

EXPORT cudaError_t cudaMemset(void *pointer, int value, size_t bytes)
{
    FORWARD(driver()->cuMemsetD8(ADDRESS(pointer), (unsigned char)value, bytes));
}

EXPORT cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream)
{
    FORWARD(bytes ? driver()->cuMemsetD8Async(ADDRESS(pointer), (unsigned char)value, bytes, stream) : CUDA_SUCCESS);
}

/* Memory that the driver does not know is the host's own. */
EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    const struct driver *calls = driver();
    CUmemorytype type = 0;
    int device = runtime_device();
    unsigned int is_managed = 0;
    CUdeviceptr at = ADDRESS(pointer);
    memset(attributes, 0, sizeof *attributes);
    CUresult result = runtime_enter();
    if (result)
        return runtime_end(result);
    if (calls->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) != CUDA_SUCCESS) {
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = -1;
        attributes->hostPointer = (void *)(uintptr_t)pointer;
        return cudaSuccess;
    }
    calls->cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    calls->cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
    attributes->type = is_managed                     ? cudaMemoryTypeManaged
                       : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                                      : cudaMemoryTypeHost;
    attributes->device = device;
    attributes->devicePointer = (void *)(uintptr_t)pointer;
    attributes->hostPointer = attributes->type == cudaMemoryTypeDevice ? NULL : (void *)(uintptr_t)pointer;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr name, void *value)
{
    FORWARD(driver()->cuMemPoolGetAttribute((CUmemoryPool)pool, (CUmemPool_attribute)name, value));
}

EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr name, void *value)
{
    FORWARD(driver()->cuMemPoolSetAttribute((CUmemoryPool)pool, (CUmemPool_attribute)name, value));
}

EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count)
{
    FORWARD(driver()->cuMemPoolSetAccess((CUmemoryPool)pool, (const CUmemAccessDesc *)list, count));
}

EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t kept_bytes)
{
    FORWARD(driver()->cuMemPoolTrimTo((CUmemoryPool)pool, kept_bytes));
}

EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer)
{
    FORWARD(driver()->cuIpcGetMemHandle((CUipcMemHandle *)handle, ADDRESS(pointer)));
}

EXPORT cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned int flags)
{
    CUipcMemHandle same;
    memcpy(&same, &handle, sizeof same);
    FORWARD(driver()->cuIpcOpenMemHandle((CUdeviceptr *)pointer, same, flags));
}

EXPORT cudaError_t cudaIpcCloseMemHandle(void *pointer)
{
    FORWARD(driver()->cuIpcCloseMemHandle(ADDRESS(pointer)));
}

EXPORT cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    FORWARD(driver()->cuIpcGetEventHandle((CUipcEventHandle *)handle, event));
}

EXPORT cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CUipcEventHandle same;
    memcpy(&same, &handle, sizeof same);
    FORWARD(driver()->cuIpcOpenEventHandle(event, same));
}
