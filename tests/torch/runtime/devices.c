/* Devices' properties, and peers. */
#include "runtime.h"

#include <string.h>

static int attribute(int device, CUdevice_attribute name)
{
    int value = 0;
    driver()->cuDeviceGetAttribute(&value, name, device);
    return value;
}

/* The fields that PyTorch reads; the rest is zero. */
EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    const struct driver *calls = driver();
    memset(properties, 0, sizeof *properties);
    CUresult result = calls->cuDeviceGetName(properties->name, sizeof properties->name, device);
    if (result)
        return runtime_end(result);
    calls->cuDeviceGetUuid((CUuuid *)&properties->uuid, device);
    calls->cuDeviceTotalMem(&properties->totalGlobalMem, device);
    properties->major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    properties->minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    properties->multiProcessorCount = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    properties->warpSize = attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    properties->maxThreadsPerBlock = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    properties->maxThreadsPerMultiProcessor =
        attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    properties->regsPerMultiprocessor = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
    properties->sharedMemPerBlock = (size_t)attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    properties->sharedMemPerMultiprocessor =
        (size_t)attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    properties->sharedMemPerBlockOptin =
        (size_t)attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    properties->l2CacheSize = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    properties->pciBusID = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
    properties->pciDeviceID = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    properties->pciDomainID = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
    properties->unifiedAddressing = attribute(device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
    properties->managedMemory = attribute(device, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
    for (int i = 0; i < 3; i++) {
        properties->maxThreadsDim[i] = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
        properties->maxGridSize[i] = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
    }
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr name, int device)
{
    return runtime_end(driver()->cuDeviceGetAttribute(value, (CUdevice_attribute)name, device));
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    return runtime_end(driver()->cuDeviceGetPCIBusId(text, length, device));
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    return runtime_end(driver()->cuDeviceCanAccessPeer(can, device, peer));
}

EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    CUcontext context;
    CUresult result = driver()->cuDevicePrimaryCtxRetain(&context, peer);
    if (result)
        return runtime_end(result);
    FORWARD(driver()->cuCtxEnablePeerAccess(context, flags));
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    FORWARD(driver()->cuCtxGetStreamPriorityRange(least, greatest));
}

EXPORT cudaError_t cudaDeviceSynchronize(void)
{
    FORWARD(driver()->cuCtxSynchronize());
}

EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    FORWARD(driver()->cuDeviceGetDefaultMemPool((CUmemoryPool *)pool, device));
}
