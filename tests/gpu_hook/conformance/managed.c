/* Managed memory: one pointer for host and device, prefetches, and what is freed. */
#include "check.h"

static CUcontext start_managed(void)
{
    int is_managed = 0, is_concurrent = 0;
    CUcontext context = check_start();
    EXPECT_OK(cuDeviceGetAttribute(&is_managed, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
    EXPECT_OK(cuDeviceGetAttribute(&is_concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
    if (!is_managed || !is_concurrent)
        SKIP("device 0 does not use managed memory beside the host");
    return context;
}

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr pointer = 0;
    EXPECT_OK(cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL));
    EXPECT(pointer);
    return pointer;
}

static uint32_t *words_of(CUdeviceptr pointer)
{
    return (uint32_t *)(uintptr_t)pointer;
}

static const CUmemLocation on_device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
static const CUmemLocation on_host = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0};

TEST(host_and_device_see_the_same_bytes)
{
    uint32_t value = 5;
    uint64_t count = 1024;
    start_managed();
    CUdeviceptr pointer = allocate(MIB);
    void *arguments[] = {&pointer, &value, &count};
    words_of(pointer)[0] = 1;
    EXPECT_OK(cuLaunchKernel(check_builtin("aliquot_fill"), 4, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(words_of(pointer)[0], 5);
    EXPECT_EQUAL(words_of(pointer)[1023], 5);
    EXPECT_OK(cuMemFree(pointer));
}

TEST(copies_and_fills_reach_managed_memory)
{
    uint32_t word = 0;
    start_managed();
    CUdeviceptr pointer = allocate(MIB), other;
    EXPECT_OK(cuMemAlloc(&other, MIB));
    EXPECT_OK(cuMemsetD32(pointer, 7, MIB / 4));
    EXPECT_OK(cuMemcpyDtoD(other, pointer, MIB));
    EXPECT_OK(cuMemcpyDtoH(&word, other + MIB - 4, 4));
    EXPECT_EQUAL(word, 7);
    word = 8;
    EXPECT_OK(cuMemcpyHtoD(pointer, &word, 4));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(words_of(pointer)[0], 8);
}

TEST(a_prefetch_keeps_the_bytes)
{
    start_managed();
    CUdeviceptr pointer = allocate(8 * MIB);
    memset(words_of(pointer), 3, 8 * MIB);
    EXPECT_OK(cuMemPrefetchAsync(pointer, 8 * MIB, on_device, 0, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(words_of(pointer)[2 * MIB - 1], 0x03030303);
    EXPECT_OK(cuMemPrefetchAsync(pointer, 8 * MIB, on_host, 0, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(words_of(pointer)[0], 0x03030303);
    EXPECT_OK(cuMemFree(pointer));
}

TEST(a_prefetch_to_the_device_takes_its_memory_and_a_free_returns_it)
{
    size_t before, after, total;
    start_managed();
    CUdeviceptr pointer = allocate(64 * MIB);
    memset(words_of(pointer), 1, 64 * MIB);
    EXPECT_OK(cuMemGetInfo(&before, &total));
    EXPECT_OK(cuMemPrefetchAsync(pointer, 64 * MIB, on_device, 0, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemGetInfo(&after, &total));
    EXPECT(before >= after + 64 * MIB);
    EXPECT_OK(cuMemFree(pointer));
    EXPECT_TAKEN(before, 0);
}

TEST(more_than_the_device_may_be_allocated)
{
    size_t total;
    start_managed();
    EXPECT_OK(cuDeviceTotalMem(&total, 0));
    if (total > (size_t)4 << 30)
        SKIP("%zu MiB of host memory would be needed", total / MIB * 3 / 2);
    CUdeviceptr pointer = allocate(total + total / 2);
    EXPECT_OK(cuMemsetD8(pointer, 1, total + total / 2));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(words_of(pointer)[total / 4], 0x01010101);
    EXPECT_OK(cuMemFree(pointer));
}

TEST(plain_memory_drives_managed_memory_out)
{
    size_t free, total;
    CUdeviceptr plain;
    start_managed();
    EXPECT_OK(cuMemGetInfo(&free, &total));
    if (total > (size_t)4 << 30)
        SKIP("%zu MiB of host memory would be needed", total / MIB);
    CUdeviceptr managed = allocate(free / 4 * 3);
    EXPECT_OK(cuMemsetD8(managed, 9, free / 4 * 3));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemAlloc(&plain, free / 2));
    EXPECT_EQUAL(words_of(managed)[0], 0x09090909);
    EXPECT_OK(cuMemFree(plain));
}

TEST(allocations_refuse_odd_flags_and_nothing)
{
    CUdeviceptr pointer;
    start_managed();
    EXPECT_CODE(cuMemAllocManaged(&pointer, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAllocManaged(&pointer, MIB, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAllocManaged(&pointer, MIB, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAllocManaged(NULL, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemAllocManaged(&pointer, MIB, CU_MEM_ATTACH_HOST));
    EXPECT_OK(cuMemFree(pointer));
}

TEST(a_freed_pointer_is_managed_no_more)
{
    start_managed();
    CUdeviceptr pointer = allocate(MIB);
    EXPECT_CODE(cuMemFree(pointer + 4096), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree(pointer));
    EXPECT_CODE(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPrefetchAsync(pointer, MIB, on_device, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(prefetches_refuse_other_memory_and_other_places)
{
    CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 9999};
    CUdeviceptr plain;
    start_managed();
    CUdeviceptr pointer = allocate(4 * MIB);
    EXPECT_OK(cuMemAlloc(&plain, MIB));
    EXPECT_CODE(cuMemPrefetchAsync(plain, MIB, on_device, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPrefetchAsync(pointer, 0, on_device, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPrefetchAsync(pointer, 5 * MIB, on_device, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPrefetchAsync(pointer, MIB, on_device, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EITHER(cuMemPrefetchAsync(pointer, MIB, nowhere, 0, NULL), CUDA_ERROR_INVALID_DEVICE,
                  CUDA_ERROR_INVALID_VALUE);
}

TEST(pointer_attributes_tell_managed_memory)
{
    unsigned is_managed = 0;
    CUdeviceptr start, device_pointer;
    void *host_pointer;
    size_t bytes;
    start_managed();
    CUdeviceptr pointer = allocate(4 * MIB);
    EXPECT_OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer + 99));
    EXPECT_EQUAL(is_managed & 0xff, 1);
    EXPECT_OK(cuPointerGetAttribute(&device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer + 99));
    EXPECT_OK(cuPointerGetAttribute(&host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer + 99));
    EXPECT_EQUAL(device_pointer, pointer + 99);
    EXPECT_EQUAL((uintptr_t)host_pointer, pointer + 99);
    EXPECT_OK(cuMemGetAddressRange(&start, &bytes, pointer + 99));
    EXPECT_EQUAL(start, pointer);
    EXPECT_EQUAL(bytes, 4 * MIB);
    EXPECT_OK(cuMemAlloc(&start, MIB));
    EXPECT_OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, start));
    EXPECT_EQUAL(is_managed & 0xff, 0);
}
