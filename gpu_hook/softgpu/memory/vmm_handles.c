/* Virtual memory management: the handles of memory, in this process and between processes. */
#include <stdio.h>
#include <unistd.h>

#include "driver/driver.h"
#include "implemented.h"
#include "memory/physical.h"
#include "memory/window_state.h"

static int has_numa_node(int node)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d", node);
    return node == 0 || (node > 0 && access(path, F_OK) == 0);
}

/* HOST_NUMA_CURRENT is no location of an allocation. */
static CUresult check_location(const CUmemLocation *location)
{
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return driver_check_device(location->id);
    case CU_MEM_LOCATION_TYPE_HOST:
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return has_numa_node(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult check_properties(const CUmemAllocationProp *prop)
{
    unsigned types = (unsigned)prop->requestedHandleTypes;
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->win32HandleMetaData)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_location(&prop->location);
    if (result)
        return result;
    if (types && prop->location.type == CU_MEM_LOCATION_TYPE_HOST)
        return CUDA_ERROR_INVALID_VALUE; /* such memory cannot be shared */
    /* The device attributes say that these are missing. */
    if (types & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || prop->allocFlags.gpuDirectRDMACapable ||
        prop->allocFlags.usage)
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult impl_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                            CUmemAllocationGranularity_flags option)
{
    if (granularity == NULL || prop == NULL || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_properties(prop);
    if (result == CUDA_SUCCESS)
        *granularity = MACHINE_LARGE_UNIT;
    return result;
}

CUresult impl_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                          unsigned long long flags)
{
    if (handle == NULL || prop == NULL || flags || size == 0 || size % MACHINE_LARGE_UNIT)
        return CUDA_ERROR_INVALID_VALUE;
    struct physical *physical;
    CUresult result = check_properties(prop);
    if (result == CUDA_SUCCESS && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        driver_is_lost(prop->location.id))
        result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    result = result ? result : physical_create(size, prop, &physical);
    if (result == CUDA_SUCCESS)
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    return result;
}

CUresult impl_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    window_lock();
    struct physical *physical = physical_of(handle);
    int is_last = physical && physical_let_go(physical, 1, 0);
    window_unlock();
    if (is_last)
        physical_free(physical);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    window_lock();
    const struct physical *physical = prop ? physical_of(handle) : NULL;
    if (physical)
        *prop = physical->properties;
    window_unlock();
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType handleType, unsigned long long flags)
{
    int descriptor = -1;
    if (shareableHandle == NULL || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    window_lock();
    const struct physical *physical = physical_of(handle);
    int is_shareable = physical && physical->backing.descriptor >= 0;
    if (is_shareable)
        descriptor = backing_duplicate(&physical->backing);
    window_unlock();
    if (!is_shareable)
        return CUDA_ERROR_INVALID_VALUE;
    if (descriptor < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)shareableHandle = descriptor;
    return CUDA_SUCCESS;
}

/* The descriptor stays the caller's, as with the driver. */
CUresult impl_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                             CUmemAllocationHandleType shHandleType)
{
    struct physical *physical;
    if (handle == NULL || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = physical_import((int)(uintptr_t)osHandle, &physical);
    if (result == CUDA_SUCCESS)
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    return result;
}
