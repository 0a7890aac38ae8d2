/* Memory as growing allocators use it: many handles side by side in one large reservation, mapped in part, mapped nowhere for a
 * while, with other accesses for other devices. */
#include "vmm.h"

#define PARTS 6

static void fill(CUdeviceptr address, size_t bytes, uint32_t word)
{
    EXPECT_OK(cuMemsetD32(address, word, bytes / 4));
}

TEST(a_segment_grows_and_shrinks_at_its_end)
{
    vmm_start();
    size_t unit = vmm_unit();
    CUdeviceptr start = vmm_reserve(PARTS * unit);
    CUmemGenericAllocationHandle handles[PARTS];
    for (uint32_t i = 0; i < PARTS; i++) {
        handles[i] = vmm_create(unit);
        EXPECT_OK(cuMemMap(start + i * unit, unit, 0, handles[i], 0));
        EXPECT_OK(vmm_allow(start + i * unit, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        fill(start + i * unit, unit, i + 1);
    }
    for (uint32_t i = PARTS - 1; i >= PARTS / 2; i--) {
        EXPECT_OK(cuMemUnmap(start + i * unit, unit));
        EXPECT_OK(cuMemRelease(handles[i]));
    }
    for (uint32_t i = 0; i < PARTS / 2; i++)
        EXPECT_EQUAL(vmm_word(start + i * unit + unit - 4), i + 1);
    for (uint32_t i = PARTS / 2; i < PARTS; i++) {
        handles[i] = vmm_create(unit);
        EXPECT_OK(cuMemMap(start + i * unit, unit, 0, handles[i], 0));
    }
    EXPECT_OK(vmm_allow(start, PARTS * unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    fill(start, PARTS * unit, 99);
    EXPECT_EQUAL(vmm_word(start + PARTS * unit - 4), 99);
    EXPECT_OK(cuMemUnmap(start, PARTS * unit));
    for (int i = 0; i < PARTS; i++)
        EXPECT_OK(cuMemRelease(handles[i]));
    EXPECT_OK(cuMemAddressFree(start, PARTS * unit));
}

TEST(memory_that_is_mapped_nowhere_keeps_its_bytes)
{
    vmm_start();
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_reserve(unit);
    CUmemGenericAllocationHandle handle = vmm_create(unit);
    EXPECT_OK(cuMemMap(address, unit, 0, handle, 0));
    EXPECT_OK(vmm_allow(address, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    fill(address, unit, 41);
    EXPECT_OK(cuMemUnmap(address, unit));
    CUdeviceptr elsewhere = vmm_map(2); /* other memory meanwhile */
    fill(elsewhere, 2 * unit, 7);
    EXPECT_OK(cuMemMap(address, unit, 0, handle, 0));
    EXPECT_OK(vmm_allow(address, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_EQUAL(vmm_word(address + unit - 4), 41);
    EXPECT_EQUAL(vmm_word(elsewhere + 2 * unit - 4), 7);
}

TEST(accesses_are_kept_as_they_were_given)
{
    unsigned long long flags = 9;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    vmm_start();
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_map(3);
    fill(address, 3 * unit, 5);
    EXPECT_OK(vmm_allow(address + unit, unit, CU_MEM_ACCESS_FLAGS_PROT_READ));
    EXPECT_OK(vmm_allow(address + 2 * unit, unit, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    EXPECT_EQUAL(vmm_word(address + unit - 4), 5);
    EXPECT_OK(cuMemGetAccess(&flags, &here, address));
    EXPECT_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_OK(cuMemGetAccess(&flags, &here, address + unit));
    EXPECT_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_OK(cuMemGetAccess(&flags, &here, address + 2 * unit));
    EXPECT_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    EXPECT_EQUAL(vmm_word(address + unit), 5);
    EXPECT_CODE(cuMemsetD32(address + 2 * unit, 1, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(vmm_allow(address + unit, 2 * unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_EQUAL(vmm_word(address + 2 * unit), 5);
    EXPECT_EQUAL(vmm_word(address + 3 * unit - 4), 5);
}

TEST(another_device_uses_memory_that_it_was_let_to)
{
    CUcontext second;
    uint32_t word = 0;
    int count, can = 0;
    vmm_start();
    EXPECT_OK(cuDeviceGetCount(&count));
    if (count > 1)
        EXPECT_OK(cuDeviceCanAccessPeer(&can, 1, 0));
    if (!can)
        SKIP("no second device that reaches the first");
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_map(2);
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_OK(cuMemSetAccess(address + unit, unit, &access, 1));
    fill(address, 2 * unit, 8);
    EXPECT_OK(cuDevicePrimaryCtxRetain(&second, 1));
    EXPECT_OK(cuCtxSetCurrent(second));
    EXPECT_OK(cuMemsetD32(address + unit, 9, unit / 4));
    EXPECT_OK(cuMemcpyDtoH(&word, address + 2 * unit - 4, sizeof word));
    EXPECT_EQUAL(word, 9);
    EXPECT_CODE(cuMemsetD32(address, 9, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuDevicePrimaryCtxRelease(1));
}

TEST(a_part_of_a_handle_can_be_mapped)
{
    vmm_start();
    ONLY_ON_THE_SOFTWARE_GPU();
    size_t unit = vmm_unit();
    CUdeviceptr part = vmm_reserve(unit), whole = vmm_reserve(3 * unit);
    CUmemGenericAllocationHandle handle = vmm_create(3 * unit);
    EXPECT_OK(cuMemMap(part, unit, 0, handle, 0));
    EXPECT_OK(vmm_allow(part, unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    fill(part, unit, 12);
    EXPECT_EQUAL(vmm_word(part + unit - 4), 12);
    EXPECT_OK(cuMemMap(whole, 3 * unit, 0, handle, 0));
    EXPECT_OK(vmm_allow(whole, 3 * unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_EQUAL(vmm_word(whole + unit - 4), 12);
    fill(whole + unit, 2 * unit, 13);
    EXPECT_OK(cuMemUnmap(part, unit));
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_EQUAL(vmm_word(whole), 12);
    EXPECT_EQUAL(vmm_word(whole + 3 * unit - 4), 13);
}

TEST(handles_are_told_apart_after_they_are_gone)
{
    CUmemGenericAllocationHandle again;
    CUmemAllocationProp properties;
    vmm_start();
    ONLY_ON_THE_SOFTWARE_GPU();
    size_t unit = vmm_unit();
    CUdeviceptr address = vmm_reserve(unit), other = vmm_reserve(unit);
    CUmemGenericAllocationHandle handle = vmm_create(unit);
    EXPECT_OK(cuMemMap(address, unit, 0, handle, 0));
    EXPECT_OK(cuMemRetainAllocationHandle(&again, (void *)address));
    EXPECT_EQUAL(again, handle);
    EXPECT_OK(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    EXPECT(properties.type == CU_MEM_ALLOCATION_TYPE_PINNED && properties.location.id == 0);
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_OK(cuMemUnmap(address, unit));
    EXPECT_CODE(cuMemMap(other, unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemGetAllocationPropertiesFromHandle(&properties, handle), CUDA_ERROR_INVALID_VALUE);
}
