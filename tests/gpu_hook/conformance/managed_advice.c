/* Managed memory: advice, range attributes, and the stream that memory is attached to. */
#include "check.h"

static const CUmemLocation on_device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
static const CUmemLocation on_host = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0};

static CUdeviceptr start_with(size_t bytes)
{
    int is_concurrent = 0;
    CUdeviceptr pointer;
    check_start();
    EXPECT_OK(cuDeviceGetAttribute(&is_concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
    if (!is_concurrent)
        SKIP("device 0 does not use managed memory beside the host");
    EXPECT_OK(cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL));
    return pointer;
}

static int ask(CUdeviceptr pointer, size_t bytes, CUmem_range_attribute attribute)
{
    int answer = 77;
    EXPECT_OK(cuMemRangeGetAttribute(&answer, sizeof answer, attribute, pointer, bytes));
    return answer;
}

TEST(advice_is_told_of_the_range_that_it_was_given_for)
{
    CUdeviceptr pointer = start_with(8 * MIB);
    EXPECT_EQUAL(ask(pointer, MIB, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 0);
    EXPECT_OK(cuMemAdvise(pointer, 4 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, on_device));
    EXPECT_EQUAL(ask(pointer, 4 * MIB, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 1);
    EXPECT_EQUAL(ask(pointer, 8 * MIB, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 0);
    EXPECT_OK(cuMemAdvise(pointer, 8 * MIB, CU_MEM_ADVISE_UNSET_READ_MOSTLY, on_device));
    EXPECT_EQUAL(ask(pointer, 4 * MIB, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 0);
}

TEST(preferred_locations_are_devices_the_host_or_none)
{
    CUdeviceptr pointer = start_with(8 * MIB);
    EXPECT_EQUAL(ask(pointer, 8 * MIB, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), CU_DEVICE_INVALID);
    EXPECT_OK(cuMemAdvise(pointer, 8 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_device));
    EXPECT_EQUAL(ask(pointer, 8 * MIB, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), 0);
    EXPECT_OK(cuMemAdvise(pointer, 4 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_host));
    EXPECT_EQUAL(ask(pointer, 4 * MIB, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), CU_DEVICE_CPU);
    EXPECT_EQUAL(ask(pointer, 8 * MIB, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), CU_DEVICE_INVALID);
    EXPECT_EQUAL(ask(pointer, 4 * MIB, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE), CU_MEM_LOCATION_TYPE_HOST);
    EXPECT_OK(cuMemAdvise(pointer, 8 * MIB, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, on_device));
    EXPECT_EQUAL(ask(pointer, 8 * MIB, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), CU_DEVICE_INVALID);
}

TEST(devices_that_access_are_listed)
{
    int list[3] = {77, 77, 77};
    CUdeviceptr pointer = start_with(4 * MIB);
    EXPECT_OK(cuMemAdvise(pointer, 4 * MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, on_device));
    EXPECT_OK(cuMemRangeGetAttribute(list, sizeof list, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, pointer, 4 * MIB));
    EXPECT_EQUAL(list[0], 0);
    EXPECT_EQUAL(list[1], CU_DEVICE_INVALID);
    EXPECT_EQUAL(list[2], CU_DEVICE_INVALID);
    EXPECT_OK(cuMemAdvise(pointer, 4 * MIB, CU_MEM_ADVISE_UNSET_ACCESSED_BY, on_device));
    EXPECT_EQUAL(ask(pointer, 4 * MIB, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY), CU_DEVICE_INVALID);
}

TEST(the_last_prefetch_is_told)
{
    CUdeviceptr pointer = start_with(4 * MIB);
    EXPECT_EQUAL(ask(pointer, 4 * MIB, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), CU_DEVICE_INVALID);
    EXPECT_OK(cuMemPrefetchAsync(pointer, 4 * MIB, on_device, 0, NULL));
    EXPECT_EQUAL(ask(pointer, 4 * MIB, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), 0);
    EXPECT_OK(cuMemPrefetchAsync(pointer, 4 * MIB, on_host, 0, NULL));
    EXPECT_EQUAL(ask(pointer, 4 * MIB, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), CU_DEVICE_CPU);
    EXPECT_OK(cuCtxSynchronize());
}

TEST(several_attributes_are_told_at_once)
{
    int read_mostly = 77, preferred = 77;
    void *data[] = {&read_mostly, &preferred};
    size_t sizes[] = {sizeof read_mostly, sizeof preferred};
    CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                          CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};
    CUdeviceptr pointer = start_with(4 * MIB);
    EXPECT_OK(cuMemRangeGetAttributes(data, sizes, attributes, 2, pointer, 4 * MIB));
    EXPECT_EQUAL(read_mostly, 0);
    EXPECT_EQUAL(preferred, CU_DEVICE_INVALID);
}

TEST(ranges_refuse_other_memory_and_odd_sizes)
{
    int answer;
    CUdeviceptr plain, pointer = start_with(4 * MIB);
    CUmem_range_attribute attribute = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
    CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 9999};
    EXPECT_OK(cuMemAlloc(&plain, MIB));
    EXPECT_CODE(cuMemRangeGetAttribute(&answer, sizeof answer, attribute, plain, MIB), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemRangeGetAttribute(&answer, 3, attribute, pointer, MIB), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemRangeGetAttribute(&answer, sizeof answer, attribute, pointer, 9 * MIB),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAdvise(plain, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, on_device), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAdvise(pointer, MIB, (CUmem_advise)99, on_device), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EITHER(cuMemAdvise(pointer, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, nowhere), CUDA_ERROR_INVALID_DEVICE,
                  CUDA_ERROR_INVALID_VALUE);
}

TEST(memory_is_attached_as_a_whole_and_not_to_the_null_stream_alone)
{
    CUstream stream;
    CUdeviceptr plain, pointer = start_with(4 * MIB);
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuMemAlloc(&plain, MIB));
    EXPECT_OK(cuStreamAttachMemAsync(stream, pointer, 0, CU_MEM_ATTACH_SINGLE));
    EXPECT_OK(cuStreamAttachMemAsync(stream, pointer, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
    EXPECT_CODE(cuStreamAttachMemAsync(stream, pointer, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuStreamAttachMemAsync(stream, pointer, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuStreamAttachMemAsync(NULL, pointer, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuStreamAttachMemAsync(stream, plain, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuStreamSynchronize(stream));
}

TEST(batches_prefetch_and_discard)
{
#if CUDA_VERSION >= 13000
    CUstream stream;
    CUdeviceptr pointer = start_with(8 * MIB), parts[] = {pointer, pointer + 4 * MIB};
    size_t sizes[] = {4 * MIB, 4 * MIB}, indices[] = {0, 1}, none = 0;
    CUmemLocation places[] = {on_device, on_host};
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuMemPrefetchBatchAsync(parts, sizes, 2, places, indices, 2, 0, stream));
    EXPECT_EQUAL(ask(pointer, 4 * MIB, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), 0);
    EXPECT_EQUAL(ask(pointer + 4 * MIB, 4 * MIB, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), CU_DEVICE_CPU);
    EXPECT_OK(cuMemDiscardBatchAsync(parts, sizes, 2, 0, stream));
    EXPECT_OK(cuMemDiscardAndPrefetchBatchAsync(parts, sizes, 2, places, &none, 1, 0, stream));
    EXPECT_CODE(cuMemPrefetchBatchAsync(parts, sizes, 2, places, indices + 1, 1, 0, stream),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPrefetchBatchAsync(parts, sizes, 2, places, indices, 2, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuStreamSynchronize(stream));
#else
    SKIP("the batches came with CUDA 13.0");
#endif
}
