/* The shared parts of the tests of virtual memory management: properties of device 0's memory,
 * and a mapped range of it. */
#ifndef ALIQUOT_CONFORMANCE_VMM_H
#define ALIQUOT_CONFORMANCE_VMM_H

#include "check.h"

static inline void vmm_start(void)
{
    int is_supported = 0;
    check_start();
    EXPECT_OK(cuDeviceGetAttribute(&is_supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    if (!is_supported)
        SKIP("device 0 has no virtual memory management");
}

static inline CUmemAllocationProp vmm_properties(CUmemAllocationHandleType type)
{
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = type;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = 0;
    return properties;
}

static inline size_t vmm_unit(void)
{
    CUmemAllocationProp properties = vmm_properties(CU_MEM_HANDLE_TYPE_NONE);
    size_t unit = 0;
    EXPECT_OK(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    return unit;
}

static inline CUmemGenericAllocationHandle vmm_create(size_t bytes)
{
    CUmemAllocationProp properties = vmm_properties(CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle handle;
    EXPECT_OK(cuMemCreate(&handle, bytes, &properties, 0));
    return handle;
}

static inline CUdeviceptr vmm_reserve(size_t bytes)
{
    CUdeviceptr address = 0;
    EXPECT_OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

static inline CUresult vmm_allow(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags)
{
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = 0;
    access.flags = flags;
    return cuMemSetAccess(address, bytes, &access, 1);
}

/* A reservation of `count` units, each with memory of its own that device 0 may use; the handles are released. */
static inline CUdeviceptr vmm_map(int count)
{
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_reserve((size_t)count * unit);
    for (int i = 0; i < count; i++) {
        CUmemGenericAllocationHandle handle = vmm_create(unit);
        EXPECT_OK(cuMemMap(address + (size_t)i * unit, unit, 0, handle, 0));
        EXPECT_OK(cuMemRelease(handle));
    }
    EXPECT_OK(vmm_allow(address, (size_t)count * unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    return address;
}

static inline uint32_t vmm_word(CUdeviceptr address)
{
    uint32_t word = 0;
    EXPECT_OK(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

#endif
