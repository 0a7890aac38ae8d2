/* What a pointer is: device memory, page-locked host memory, or nothing known to the driver. */
#include <string.h>

#include "driver.h"
#include "host_memory.h"
#include "implemented.h"
#include "pools.h"
#include "window.h"

struct pointer {
    int is_device, is_host;
    struct allocation device;
    struct host_range host;
};

static int identify(CUdeviceptr address, struct pointer *pointer)
{
    memset(pointer, 0, sizeof *pointer);
    pointer->is_device = window_find(address, &pointer->device) == 0;
    pointer->is_host = !pointer->is_device && host_memory_find(address, &pointer->host) == 0;
    return pointer->is_device || pointer->is_host ? 0 : -1;
}

static void put_flag(void *data, int flag)
{
    *(unsigned *)data = (unsigned)flag; /* the header says bool; the driver writes four bytes */
}

/* How many bytes an attribute takes is the caller's to know; each case writes its own type. */
static CUresult write_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                                const struct pointer *pointer)
{
    struct context *context = pointer->is_device ? pointer->device.context : pointer->host.context;
    uint64_t start = pointer->is_device ? pointer->device.start : pointer->host.start;
    uint64_t bytes = pointer->is_device ? pointer->device.bytes : pointer->host.bytes;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = pointer->is_device && pointer->device.pool ? NULL : (CUcontext)context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = pointer->is_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (pointer->is_device)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = pointer->is_device ? pointer->device.id : pointer->host.id | 1ull << 62;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = pointer->is_device ? driver_ordinal(pointer->device.device) : context->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(void **)data = pointer->device.pool;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        put_flag(data, 1);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        put_flag(data, 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(cuuint64_t *)data = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult impl_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct context *context;
    struct pointer pointer;
    CUresult result = context_current(&context);
    if (result || data == NULL || identify(ptr, &pointer) != 0)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    return write_attribute(data, attribute, ptr, &pointer);
}

/* The plural form never fails for an unknown pointer: what is not known reads 0, a device of -2. */
CUresult impl_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                     CUdeviceptr ptr)
{
    struct context *context;
    struct pointer pointer;
    CUresult result = context_current(&context);
    if (result || attributes == NULL || data == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    int is_known = identify(ptr, &pointer) == 0;
    for (unsigned i = 0; i < numAttributes; i++) {
        if (data[i] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        if (is_known && write_attribute(data[i], attributes[i], ptr, &pointer) == CUDA_SUCCESS)
            continue;
        switch ((int)attributes[i]) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            *(uint64_t *)data[i] = 0;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)data[i] = -2;
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            put_flag(data[i], 0);
            break;
        default:
            *(unsigned *)data[i] = 0;
        }
    }
    return CUDA_SUCCESS;
}

CUresult impl_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct allocation found;
    if (value == NULL || window_find(ptr, &found) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    /* Synchronous memory operations are what streams order anyway. */
    return attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
