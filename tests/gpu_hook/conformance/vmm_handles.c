/* Virtual memory management: handles, what they cost and what is known of them. */
#include "vmm.h"

TEST(memory_costs_its_size_from_creation_until_the_last_reference)
{
    vmm_start();
    size_t unit = vmm_unit(), before = check_free_bytes();
    CUmemGenericAllocationHandle handle = vmm_create(3 * unit);
    EXPECT_TAKEN(before, 3 * unit);
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_TAKEN(before, 0);
}

TEST(released_memory_lives_while_it_is_mapped)
{
    vmm_start();
    size_t unit = vmm_unit(), before = check_free_bytes();
    CUdeviceptr address = vmm_map(2);
    EXPECT_OK(cuMemsetD32(address, 3, 1));
    EXPECT_TAKEN(before, 2 * unit);
    EXPECT_EQUAL(vmm_word(address), 3);
    EXPECT_OK(cuMemUnmap(address, 2 * unit));
    EXPECT_TAKEN(before, 0);
}

TEST(a_retained_handle_is_the_one_that_was_mapped)
{
    CUmemGenericAllocationHandle again;
    vmm_start();
    size_t unit = vmm_unit(), before = check_free_bytes();
    CUdeviceptr address = vmm_reserve(unit);
    CUmemGenericAllocationHandle handle = vmm_create(unit);
    EXPECT_CODE(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemMap(address, unit, 0, handle, 0));
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + unit / 2)));
    EXPECT_EQUAL(again, handle);
    EXPECT_OK(cuMemUnmap(address, unit));
    EXPECT_TAKEN(before, unit);
    EXPECT_OK(cuMemRelease(again));
    EXPECT_TAKEN(before, 0);
}

TEST(creation_refuses_what_it_cannot_make)
{
    CUmemAllocationProp good = vmm_properties(CU_MEM_HANDLE_TYPE_NONE), odd;
    CUmemGenericAllocationHandle handle;
    vmm_start();
    size_t unit = vmm_unit();
    EXPECT_CODE(cuMemCreate(&handle, 0, &good, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemCreate(&handle, unit + 4096, &good, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemCreate(&handle, unit, &good, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemCreate(&handle, unit, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemCreate(NULL, unit, &good, 0), CUDA_ERROR_INVALID_VALUE);
    odd = good;
    odd.location.id = 9999;
    EXPECT_EITHER(cuMemCreate(&handle, unit, &odd, 0), CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE);
    odd = good;
    odd.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    EXPECT_CODE(cuMemCreate(&handle, unit, &odd, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(more_memory_than_the_device_has_is_out_of_memory)
{
    CUmemAllocationProp properties = vmm_properties(CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle handle;
    size_t total;
    vmm_start();
    size_t unit = vmm_unit(), before = check_free_bytes();
    EXPECT_OK(cuDeviceTotalMem(&total, 0));
    EXPECT_CODE(cuMemCreate(&handle, (total / unit + 1) * unit, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_TAKEN(before, 0);
}

TEST(a_handle_tells_its_properties)
{
    CUmemAllocationProp asked = vmm_properties(CU_MEM_HANDLE_TYPE_NONE), told;
    CUmemGenericAllocationHandle handle;
    vmm_start();
    EXPECT_OK(cuMemCreate(&handle, vmm_unit(), &asked, 0));
    EXPECT_OK(cuMemGetAllocationPropertiesFromHandle(&told, handle));
    EXPECT_EQUAL(told.type, asked.type);
    EXPECT_EQUAL(told.location.type, asked.location.type);
    EXPECT_EQUAL(told.location.id, asked.location.id);
    EXPECT_EQUAL(told.requestedHandleTypes, asked.requestedHandleTypes);
}

TEST(granularity_is_a_power_of_two_and_the_recommended_one_no_less)
{
    CUmemAllocationProp properties = vmm_properties(CU_MEM_HANDLE_TYPE_NONE);
    size_t least = 0, recommended = 0;
    vmm_start();
    EXPECT_OK(cuMemGetAllocationGranularity(&least, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT_OK(cuMemGetAllocationGranularity(&recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    EXPECT(least && (least & (least - 1)) == 0 && recommended >= least && recommended % least == 0);
    EXPECT_CODE(cuMemGetAllocationGranularity(NULL, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemGetAllocationGranularity(&least, NULL, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                CUDA_ERROR_INVALID_VALUE);
}

TEST(pointer_attributes_tell_reservation_mapping_and_memory)
{
    CUdeviceptr start;
    size_t bytes;
    unsigned type = 0, is_mapped = 9, legacy = 9;
    int device = -1;
    vmm_start();
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_reserve(4 * unit);
    EXPECT_OK(cuMemMap(address + unit, unit, 0, vmm_create(unit), 0));
    EXPECT_OK(vmm_allow(address + unit, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CUdeviceptr inside = address + unit + 4096;
    EXPECT_OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    EXPECT_OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    EXPECT_EQUAL(start, address);
    EXPECT_EQUAL(bytes, 4 * unit);
    EXPECT_OK(cuPointerGetAttribute(&is_mapped, CU_POINTER_ATTRIBUTE_MAPPED, inside));
    EXPECT_EQUAL(is_mapped & 0xff, 1);
    EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
    EXPECT_EQUAL(type, CU_MEMORYTYPE_DEVICE);
    EXPECT_OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
    EXPECT_EQUAL(device, 0);
    EXPECT_OK(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
    EXPECT_EQUAL(legacy & 0xff, 0);
    EXPECT_OK(cuMemGetAddressRange(&start, &bytes, inside));
    EXPECT_EQUAL(start, address + unit);
    EXPECT_EQUAL(bytes, unit);
}

TEST(an_access_that_has_lost_its_memory_ends_the_context)
{
    vmm_start();
    size_t unit = vmm_unit();
    uint32_t value = 1;
    uint64_t nanoseconds = 50000000, words = 16;
    CUdeviceptr address = vmm_map(1);
    CUfunction spin = check_builtin("aliquot_spin"), fill = check_builtin("aliquot_fill");
    void *long_time[] = {&nanoseconds}, *filled[] = {&address, &value, &words};
    EXPECT_OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, long_time, NULL));
    EXPECT_OK(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, filled, NULL));
    CUresult unmapped = cuMemUnmap(address, unit);
    CUresult drained = cuCtxSynchronize();
    /* A driver whose unmapping waits for the device ends well: both are allowed. */
    EXPECT(unmapped == CUDA_SUCCESS && (drained == CUDA_SUCCESS || drained == CUDA_ERROR_ILLEGAL_ADDRESS));
}
