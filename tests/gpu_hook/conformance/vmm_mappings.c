/* Virtual memory management: reservations, mappings, access. */
#include "vmm.h"

TEST(mapped_memory_with_access_holds_its_bytes)
{
    vmm_start();
    CUdeviceptr address = vmm_map(1);
    EXPECT_OK(cuMemsetD32(address, 7, 16));
    EXPECT_EQUAL(vmm_word(address + 60), 7);
}

TEST(a_copy_spans_mappings_that_follow_each_other)
{
    vmm_start();
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_map(3);
    EXPECT_OK(cuMemsetD32(address, 5, 3 * unit / 4));
    EXPECT_EQUAL(vmm_word(address + 3 * unit - 4), 5);
    EXPECT_OK(cuMemsetD32(address + unit - 4, 9, 2));
    EXPECT_EQUAL(vmm_word(address + unit - 4), 9);
    EXPECT_EQUAL(vmm_word(address + unit), 9);
}

TEST(memory_keeps_its_bytes_when_it_moves_to_another_address)
{
    vmm_start();
    size_t unit = vmm_unit();
    CUdeviceptr first = vmm_reserve(unit), second = vmm_reserve(unit);
    CUmemGenericAllocationHandle handle = vmm_create(unit);
    EXPECT_OK(cuMemMap(first, unit, 0, handle, 0));
    EXPECT_OK(vmm_allow(first, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_OK(cuMemsetD32(first, 11, unit / 4));
    EXPECT_OK(cuMemUnmap(first, unit));
    EXPECT_OK(cuMemMap(second, unit, 0, handle, 0));
    EXPECT_OK(vmm_allow(second, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_EQUAL(vmm_word(second + unit - 4), 11);
}

TEST(memory_mapped_twice_is_the_same_memory)
{
    vmm_start();
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_reserve(2 * unit);
    CUmemGenericAllocationHandle handle = vmm_create(unit);
    EXPECT_OK(cuMemMap(address, unit, 0, handle, 0));
    EXPECT_OK(cuMemMap(address + unit, unit, 0, handle, 0));
    EXPECT_OK(vmm_allow(address, 2 * unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_OK(cuMemsetD32(address, 13, 4));
    EXPECT_EQUAL(vmm_word(address + unit), 13);
}

TEST(without_access_a_copy_is_an_invalid_value)
{
    vmm_start();
    size_t unit = vmm_unit();
    uint32_t word = 0;
    CUdeviceptr address = vmm_reserve(unit);
    CUmemGenericAllocationHandle handle = vmm_create(unit);
    EXPECT_CODE(cuMemcpyDtoH(&word, address, 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemMap(address, unit, 0, handle, 0));
    if (check_is_software()) /* a driver may find out later, and end the context */
        EXPECT_CODE(cuMemcpyDtoH(&word, address, 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(vmm_allow(address, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_OK(cuMemcpyDtoH(&word, address, 4));
    EXPECT_OK(cuMemUnmap(address, unit));
    EXPECT_CODE(cuMemcpyDtoH(&word, address, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST(access_is_told_and_starts_as_none)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    unsigned long long flags = 99;
    vmm_start();
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_reserve(unit);
    EXPECT_OK(cuMemMap(address, unit, 0, vmm_create(unit), 0));
    EXPECT_OK(cuMemGetAccess(&flags, &here, address));
    EXPECT_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    EXPECT_OK(vmm_allow(address, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_OK(cuMemGetAccess(&flags, &here, address + unit / 2));
    EXPECT_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_OK(cuMemUnmap(address, unit));
    EXPECT_CODE(cuMemGetAccess(&flags, &here, address), CUDA_ERROR_INVALID_VALUE);
}

TEST(access_needs_mapped_addresses_and_known_flags)
{
    vmm_start();
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_reserve(2 * unit);
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 9999},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_CODE(vmm_allow(address, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemMap(address, unit, 0, vmm_create(unit), 0));
    EXPECT_CODE(vmm_allow(address, 2 * unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(vmm_allow(address, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(vmm_allow(address, unit, (CUmemAccess_flags)64), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemSetAccess(address, unit, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EITHER(cuMemSetAccess(address, unit, &access, 1), CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE);
}

TEST(reservations_refuse_odd_sizes_and_free_only_as_a_whole)
{
    CUdeviceptr address;
    vmm_start();
    size_t unit = vmm_unit();
    EXPECT_CODE(cuMemAddressReserve(&address, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAddressReserve(&address, unit + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAddressReserve(&address, unit, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAddressReserve(&address, unit, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAddressReserve(NULL, unit, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemAddressReserve(&address, 4 * unit, 0, 0, 0));
    EXPECT_CODE(cuMemAddressFree(address, unit), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAddressFree(address + unit, 3 * unit), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemMap(address + unit, unit, 0, vmm_create(unit), 0));
    EXPECT_CODE(cuMemAddressFree(address, 4 * unit), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemUnmap(address + unit, unit));
    EXPECT_OK(cuMemAddressFree(address, 4 * unit));
    EXPECT_CODE(cuMemAddressFree(address, 4 * unit), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_reservation_is_aligned_and_follows_a_free_hint)
{
    CUdeviceptr address, again;
    vmm_start();
    size_t unit = vmm_unit(), alignment = 64 * MIB;
    EXPECT_OK(cuMemAddressReserve(&address, 3 * unit, alignment, 0, 0));
    EXPECT_EQUAL(address % alignment, 0);
    EXPECT_OK(cuMemAddressFree(address, 3 * unit));
    EXPECT_OK(cuMemAddressReserve(&again, 3 * unit, 0, address, 0));
    EXPECT_EQUAL(again, address);
    EXPECT_OK(cuMemAddressReserve(&again, unit, 0, address, 0)); /* taken: somewhere else */
    EXPECT(again != address);
}

TEST(mappings_refuse_what_does_not_fit)
{
    vmm_start();
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_reserve(2 * unit);
    CUmemGenericAllocationHandle handle = vmm_create(unit), large = vmm_create(4 * unit);
    EXPECT_CODE(cuMemMap(address, 0, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemMap(address, 2 * unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemMap(address, unit, unit, large, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemMap(address + 4096, unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemMap(address, unit, 0, handle, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemMap(address + unit, 4 * unit, 0, large, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemMap(address, unit, 0, handle, 0));
    EXPECT_CODE(cuMemMap(address, unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(an_unmapping_takes_whole_mappings_and_as_many_as_it_covers)
{
    vmm_start();
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_reserve(4 * unit);
    CUmemGenericAllocationHandle large = vmm_create(2 * unit);
    size_t before = check_free_bytes();
    EXPECT_OK(cuMemMap(address, 2 * unit, 0, large, 0));
    EXPECT_OK(cuMemMap(address + 2 * unit, unit, 0, vmm_create(unit), 0));
    EXPECT_CODE(cuMemUnmap(address, unit), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemUnmap(address + unit, 2 * unit), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemUnmap(address, 4 * unit), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemUnmap(address, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemUnmap(address, 3 * unit));
    EXPECT_CODE(cuMemUnmap(address, 3 * unit), CUDA_ERROR_INVALID_VALUE);
    EXPECT_TAKEN(before, unit); /* the second handle was not released */
}

TEST(mapped_memory_is_not_freed_as_an_allocation_is)
{
    vmm_start();
    CUdeviceptr address = vmm_map(1);
    EXPECT_CODE(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemUnmap(address, vmm_unit()));
}
