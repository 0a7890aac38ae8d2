/* The driver's answers about devices: names, sizes, ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "driver/contexts.h"
#include "driver/driver.h"
#include "implemented.h"
#include "device/limits.h"
#include "device/slots.h"
#include "device/visible.h"

CUresult impl_cuDeviceGetCount(int *count)
{
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = driver.device_count;
    return CUDA_SUCCESS;
}

CUresult impl_cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = driver_check_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}

CUresult impl_cuDeviceGetName(char *name, int len, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    if (name == NULL || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        snprintf(name, (size_t)len, "%s", MACHINE_NAME);
    return result;
}

CUresult impl_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    if (uuid == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        memcpy(uuid->bytes, driver.attachment.machine->devices[driver_told_place(dev, DRIVER_UUID)].uuid, sizeof uuid->bytes);
    return result;
}

CUresult impl_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    if (bytes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *bytes = driver.attachment.machine->memory_bytes;
    return result;
}

CUresult impl_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    if (major == NULL || minor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return result ? result
                  : impl_cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev) ||
                        impl_cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
}

CUresult impl_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    if (pciBusId == NULL || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        snprintf(pciBusId, (size_t)len, "%04X:%02X:00.0", MACHINE_PCI_DOMAIN,
                 driver_told_place(dev, DRIVER_BUS));
    return result;
}

CUresult impl_cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    unsigned domain = 0, bus, slot, function = 0;
    if (dev == NULL || pciBusId == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < driver.device_count; i++)
        if (domain == MACHINE_PCI_DOMAIN && driver_told_place(i, DRIVER_BUS) == bus && slot == 0 && function == 0) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult impl_cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    CUresult result = driver_check_device(dev);
    if (prop == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *prop = (CUdevprop){.maxThreadsPerBlock = 1024, .maxThreadsDim = {1024, 1024, 64},
                            .maxGridSize = {2147483647, 65535, 65535}, .sharedMemPerBlock = 49152,
                            .totalConstantMemory = 65536, .SIMDWidth = 32, .memPitch = 2147483647,
                            .regsPerBlock = 65536, .clockRate = 1000000, .textureAlign = 512};
    return result;
}

/* Free memory is the rest of the whole device, or of the limit on this process's cgroup; memory of
 * other processes counts as used. */
CUresult impl_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result)
        return result;
    slots_reap(&driver.attachment);
    struct limits_view view = limits_view(&driver.attachment, context->physical);
    if (free)
        *free = view.free_bytes;
    if (total)
        *total = view.total_bytes;
    return CUDA_SUCCESS;
}
