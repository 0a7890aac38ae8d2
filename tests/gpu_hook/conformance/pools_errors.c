/* Memory pools: access to their memory, the pool of a pointer, and bad arguments. */
#include "check.h"

static CUmemoryPool new_pool(void)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    EXPECT_OK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

TEST(a_pool_is_reached_from_its_own_device)
{
    CUmemLocation own = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    check_start();
    EXPECT_OK(cuMemPoolGetAccess(&flags, new_pool(), &own));
    EXPECT_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST(another_device_reaches_a_pool_once_it_is_let)
{
    CUmemAccessDesc other = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                             .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    int count, can_reach = 0;
    check_start();
    EXPECT_OK(cuDeviceGetCount(&count));
    if (count > 1)
        EXPECT_OK(cuDeviceCanAccessPeer(&can_reach, 1, 0));
    if (!can_reach)
        SKIP("no second device that reaches the first");
    CUmemoryPool pool = new_pool();
    other.location.id = 1;
    EXPECT_OK(cuMemPoolGetAccess(&flags, pool, &other.location));
    EXPECT_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    EXPECT_OK(cuMemPoolSetAccess(pool, &other, 1));
    EXPECT_OK(cuMemPoolGetAccess(&flags, pool, &other.location));
    EXPECT_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    other.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    EXPECT_OK(cuMemPoolSetAccess(pool, &other, 1));
    EXPECT_OK(cuMemPoolGetAccess(&flags, pool, &other.location));
    EXPECT_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST(a_pointer_names_its_pool_and_no_context)
{
    CUmemoryPool found = NULL;
    CUcontext context = (CUcontext)1;
    CUdeviceptr pointer, plain;
    check_start();
    CUmemoryPool pool = new_pool();
    EXPECT_OK(cuMemAllocFromPoolAsync(&pointer, MIB, pool, NULL));
    EXPECT_OK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
    EXPECT(found == pool);
    EXPECT_OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
    EXPECT(context == NULL);
    EXPECT_OK(cuMemAlloc(&plain, MIB));
    EXPECT_OK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, plain));
    EXPECT(found == NULL);
}

TEST(pools_refuse_null_arguments)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    check_start();
    EXPECT_CODE(cuMemPoolCreate(NULL, &properties), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPoolCreate(&pool, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuDeviceGetDefaultMemPool(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    pool = new_pool();
    EXPECT_CODE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAllocFromPoolAsync(NULL, MIB, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAllocAsync(NULL, MIB, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_pool_needs_a_kind_of_memory_and_a_device_that_exist)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_INVALID,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    check_start();
    EXPECT_CODE(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.id = 1000;
    EXPECT_EITHER(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDeviceGetDefaultMemPool(&pool, 1000), CUDA_ERROR_INVALID_DEVICE);
}

TEST(stream_ordered_memory_needs_a_context)
{
    CUdeviceptr pointer;
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuMemAllocAsync(&pointer, MIB, NULL), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(only_the_start_of_an_allocation_can_be_freed_in_stream_order)
{
    CUdeviceptr pointer;
    check_start();
    EXPECT_OK(cuMemAllocAsync(&pointer, MIB, NULL));
    EXPECT_OK(cuStreamSynchronize(NULL));
    EXPECT_CODE(cuMemFreeAsync(pointer + 256, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFreeAsync(pointer, NULL));
}
