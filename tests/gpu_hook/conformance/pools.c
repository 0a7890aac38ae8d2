/* Memory pools: what they reserve and what of it is used, reuse in stream order, release thresholds, trimming, limits,
 * access, and the errors of all. */
#include "check.h"

static CUmemPoolProps properties_of(int device)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    properties.location.id = device;
    return properties;
}

static CUmemoryPool new_pool(void)
{
    CUmemPoolProps properties = properties_of(0);
    CUmemoryPool pool;
    EXPECT_OK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static uint64_t get(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    EXPECT_OK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void set(CUmemoryPool pool, CUmemPool_attribute attribute, cuuint64_t value)
{
    EXPECT_OK(cuMemPoolSetAttribute(pool, attribute, &value));
}

static CUstream new_stream(void)
{
    CUstream stream;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUdeviceptr take(CUmemoryPool pool, size_t bytes, CUstream stream)
{
    CUdeviceptr pointer = 0;
    EXPECT_OK(cuMemAllocFromPoolAsync(&pointer, bytes, pool, stream));
    EXPECT(pointer != 0);
    return pointer;
}

TEST(an_allocation_of_a_pool_holds_its_bytes)
{
    unsigned words[256], back[256];
    check_start();
    CUstream stream = new_stream();
    CUdeviceptr pointer;
    EXPECT_OK(cuMemAllocAsync(&pointer, sizeof words, stream));
    EXPECT_OK(cuMemsetD32Async(pointer, 0xabcd1234, 256, stream));
    EXPECT_OK(cuMemcpyDtoHAsync(back, pointer, sizeof back, stream));
    EXPECT_OK(cuMemFreeAsync(pointer, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    for (int i = 0; i < 256; i++)
        words[i] = 0xabcd1234;
    EXPECT_EQUAL(memcmp(words, back, sizeof back), 0);
}

TEST(a_pool_counts_what_is_used_and_reserves_at_least_that)
{
    check_start();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    CUdeviceptr one = take(pool, 3 * MIB, stream), two = take(pool, MIB, stream);
    EXPECT(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 4 * MIB);
    EXPECT(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    EXPECT_OK(cuMemFreeAsync(one, stream));
    EXPECT_OK(cuMemFreeAsync(two, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    EXPECT_OK(cuMemPoolDestroy(pool));
}

TEST(the_device_has_less_by_what_a_pool_reserves)
{
    size_t before, after, total;
    check_start();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    EXPECT_OK(cuMemGetInfo(&before, &total));
    take(pool, 64 * MIB, stream);
    EXPECT_OK(cuMemGetInfo(&after, &total));
    EXPECT(before - after >= 64 * MIB);
}

TEST(without_a_threshold_unused_memory_goes_back_at_the_next_synchronisation)
{
    check_start();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
    EXPECT_OK(cuMemFreeAsync(take(pool, 16 * MIB, stream), stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
}

TEST(events_and_contexts_synchronise_pools_too)
{
    CUevent event;
    check_start();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuMemFreeAsync(take(pool, 16 * MIB, stream), stream));
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    EXPECT_OK(cuMemFreeAsync(take(pool, 16 * MIB, stream), stream));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
}

TEST(a_pool_keeps_what_its_threshold_allows)
{
    check_start();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    CUdeviceptr first = take(pool, 16 * MIB, stream);
    EXPECT_OK(cuMemFreeAsync(first, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    uint64_t reserved = get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    EXPECT(reserved >= 16 * MIB);
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    take(pool, 16 * MIB, stream);
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), reserved);
}

TEST(trimming_gives_back_what_is_unused_and_no_more)
{
    check_start();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    CUdeviceptr kept = take(pool, 64 * MIB, stream), gone = take(pool, 64 * MIB, stream);
    EXPECT_OK(cuMemFreeAsync(gone, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    uint64_t full = get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    EXPECT_OK(cuMemPoolTrimTo(pool, full));
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), full);
    EXPECT_OK(cuMemPoolTrimTo(pool, 0));
    EXPECT(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 64 * MIB);
    EXPECT(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) < full);
    EXPECT_OK(cuMemFreeAsync(kept, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuMemPoolTrimTo(pool, 0));
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
}

TEST(trimming_keeps_at_least_what_was_asked)
{
    check_start();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    CUdeviceptr one = take(pool, 32 * MIB, stream), two = take(pool, 32 * MIB, stream);
    EXPECT_OK(cuMemFreeAsync(one, stream));
    EXPECT_OK(cuMemFreeAsync(two, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuMemPoolTrimTo(pool, 20 * MIB));
    EXPECT(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 20 * MIB);
}

TEST(memory_freed_earlier_in_the_stream_serves_again_without_waiting)
{
    uint64_t nanoseconds = 200000000;
    void *arguments[] = {&nanoseconds};
    unsigned word = 0;
    check_start();
    CUfunction spin = check_builtin("aliquot_spin");
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    CUdeviceptr first = take(pool, 96 * MIB, stream);
    EXPECT_OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    EXPECT_OK(cuMemsetD32Async(first, 1, 96 * MIB / 4, stream));
    EXPECT_OK(cuMemFreeAsync(first, stream));
    CUdeviceptr second = take(pool, 80 * MIB, stream);
    EXPECT_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) < 176 * MIB);
    EXPECT_OK(cuMemsetD32Async(second, 2, 20 * MIB, stream));
    EXPECT_OK(cuMemcpyDtoHAsync(&word, second + 80 * MIB - 4, 4, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(word, 2);
}

TEST(a_high_watermark_stays_until_it_is_reset)
{
    cuuint64_t one = 1;
    check_start();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    EXPECT_OK(cuMemFreeAsync(take(pool, 8 * MIB, stream), stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 8 * MIB);
    EXPECT(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 8 * MIB);
    EXPECT_CODE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &one), CUDA_ERROR_INVALID_VALUE);
    set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
    set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0);
}

TEST(reuse_is_allowed_until_it_is_switched_off)
{
    check_start();
    CUmemoryPool pool = new_pool();
    for (int attribute = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
         attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES; attribute++) {
        int value = 0;
        EXPECT_OK(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, &value));
        EXPECT_EQUAL(value, 1);
        value = 0;
        EXPECT_OK(cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, &value));
        value = 1;
        EXPECT_OK(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, &value));
        EXPECT_EQUAL(value, 0);
    }
}

TEST(current_values_of_a_pool_cannot_be_set)
{
    cuuint64_t zero = 0;
    check_start();
    CUmemoryPool pool = new_pool();
    EXPECT_CODE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &zero), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)99, &zero), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_pool_does_not_grow_beyond_its_largest_size)
{
    CUdeviceptr pointer;
    check_start();
    CUstream stream = new_stream();
    CUmemPoolProps properties = properties_of(0);
    CUmemoryPool pool;
    properties.maxSize = 64 * MIB;
    EXPECT_OK(cuMemPoolCreate(&pool, &properties));
    CUdeviceptr held = take(pool, 48 * MIB, stream);
    EXPECT_CODE(cuMemAllocFromPoolAsync(&pointer, 96 * MIB, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_OK(cuMemFreeAsync(held, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    take(pool, 48 * MIB, stream);
}

TEST(more_than_the_device_is_out_of_memory_in_a_pool_too)
{
    CUdeviceptr pointer;
    size_t total;
    check_start();
    EXPECT_OK(cuDeviceTotalMem(&total, 0));
    EXPECT_CODE(cuMemAllocAsync(&pointer, total + MIB, new_stream()), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(a_pools_memory_may_be_freed_at_once)
{
    check_start();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    CUdeviceptr pointer = take(pool, MIB, stream);
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuMemFree(pointer));
    EXPECT_EQUAL(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    EXPECT_CODE(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST(other_memory_may_be_freed_in_stream_order)
{
    CUdeviceptr pointer;
    size_t before, total;
    check_start();
    CUstream stream = new_stream();
    EXPECT_OK(cuMemGetInfo(&before, &total));
    EXPECT_OK(cuMemAlloc(&pointer, 64 * MIB));
    EXPECT_OK(cuMemFreeAsync(pointer, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_TAKEN(before, 0);
}

TEST(allocations_outlive_the_handle_of_their_pool)
{
    unsigned word = 0;
    check_start();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    CUdeviceptr pointer = take(pool, MIB, stream);
    EXPECT_OK(cuMemPoolDestroy(pool));
    EXPECT_OK(cuMemsetD32Async(pointer, 7, 4, stream));
    EXPECT_OK(cuMemcpyDtoHAsync(&word, pointer, 4, stream));
    EXPECT_OK(cuMemFreeAsync(pointer, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(word, 7);
}

TEST(a_default_pool_cannot_be_destroyed)
{
    CUmemoryPool pool;
    check_start();
    EXPECT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    EXPECT_CODE(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
}

TEST(the_current_pool_serves_and_its_end_brings_the_default_back)
{
    CUmemoryPool found, usual;
    CUdeviceptr pointer;
    check_start();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool();
    EXPECT_OK(cuDeviceGetDefaultMemPool(&usual, 0));
    EXPECT_OK(cuDeviceGetMemPool(&found, 0));
    EXPECT(found == usual);
    EXPECT_OK(cuDeviceSetMemPool(0, pool));
    EXPECT_OK(cuDeviceGetMemPool(&found, 0));
    EXPECT(found == pool);
    EXPECT_OK(cuMemAllocAsync(&pointer, MIB, stream));
    EXPECT(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= MIB);
    EXPECT_OK(cuMemFreeAsync(pointer, stream));
    EXPECT_OK(cuMemPoolDestroy(pool));
    EXPECT_OK(cuDeviceGetMemPool(&found, 0));
    EXPECT(found == usual);
}

TEST(a_pool_of_another_device_is_not_a_devices_current_one)
{
    CUmemoryPool pool;
    int count;
    check_start();
    EXPECT_OK(cuDeviceGetCount(&count));
    if (count < 2)
        SKIP("one device only");
    CUmemPoolProps properties = properties_of(1);
    EXPECT_OK(cuMemPoolCreate(&pool, &properties));
    EXPECT_CODE(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_pool_of_another_device_serves_a_stream_of_this_one)
{
    CUmemoryPool pool;
    int count, ordinal = -1;
    check_start();
    EXPECT_OK(cuDeviceGetCount(&count));
    if (count < 2)
        SKIP("one device only");
    CUstream stream = new_stream();
    CUmemPoolProps properties = properties_of(1);
    EXPECT_OK(cuMemPoolCreate(&pool, &properties));
    CUdeviceptr pointer = take(pool, MIB, stream);
    EXPECT_OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
    EXPECT_EQUAL(ordinal, 1);
    EXPECT_OK(cuMemFreeAsync(pointer, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
}
