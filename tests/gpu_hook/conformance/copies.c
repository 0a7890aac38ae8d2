/* Copies of linear memory: between all sorts of it, in rows and boxes, and what is refused. */
#include "check.h"

static uint32_t words[4096], back[4096];

static CUdeviceptr start(void)
{
    CUdeviceptr pointer;
    check_start();
    for (unsigned i = 0; i < 4096; i++)
        words[i] = i * 2246822519u;
    EXPECT_OK(cuMemAlloc(&pointer, sizeof words));
    EXPECT_OK(cuMemcpyHtoD(pointer, words, sizeof words));
    return pointer;
}

TEST(bytes_go_there_and_back)
{
    CUdeviceptr pointer = start();
    EXPECT_OK(cuMemcpyDtoH(back, pointer + 1, sizeof back - 1));
    EXPECT_EQUAL(memcmp(back, (char *)words + 1, sizeof back - 1), 0);
}

TEST(bytes_move_on_the_device)
{
    CUdeviceptr pointer = start();
    EXPECT_OK(cuMemcpyDtoD(pointer + 8192, pointer, 4096));
    EXPECT_OK(cuMemcpyDtoH(back, pointer, sizeof back));
    EXPECT_EQUAL(memcmp(back + 2048, words, 4096), 0);
}

TEST(an_address_tells_where_its_bytes_are)
{
    CUdeviceptr pointer = start();
    EXPECT_OK(cuMemcpy((CUdeviceptr)(uintptr_t)back, pointer, sizeof back));
    EXPECT_EQUAL(memcmp(back, words, sizeof back), 0);
    memset(back, 7, sizeof back);
    EXPECT_OK(cuMemcpy(pointer, (CUdeviceptr)(uintptr_t)back, sizeof back));
    EXPECT_OK(cuMemcpy((CUdeviceptr)(uintptr_t)words, (CUdeviceptr)(uintptr_t)back, sizeof back));
    EXPECT_EQUAL(memcmp(back, words, sizeof back), 0);
}

TEST(a_copy_of_nothing_does_nothing)
{
    CUdeviceptr pointer = start();
    EXPECT_OK(cuMemcpyHtoD(pointer, back, 0));
    EXPECT_OK(cuMemcpyDtoH(back, pointer, 0));
    EXPECT_OK(cuMemcpyDtoD(pointer, pointer, 0));
}

TEST(copies_run_in_the_order_of_a_stream)
{
    uint32_t *locked;
    CUstream stream;
    CUdeviceptr pointer = start();
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuMemAllocHost((void **)&locked, 8192));
    memset(locked, 3, 4096);
    EXPECT_OK(cuMemcpyHtoDAsync(pointer, locked, 4096, stream));
    EXPECT_OK(cuMemcpyDtoDAsync(pointer + 4096, pointer, 4096, stream));
    EXPECT_OK(cuMemcpyDtoHAsync(locked + 1024, pointer + 4096, 4096, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(memcmp(locked, locked + 1024, 4096), 0);
}

TEST(a_source_without_a_lock_may_go_after_the_call)
{
    uint32_t local[256];
    CUstream stream;
    CUdeviceptr pointer = start();
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    memset(local, 5, sizeof local);
    EXPECT_OK(cuMemcpyHtoDAsync(pointer, local, sizeof local, stream));
    memset(local, 6, sizeof local);
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuMemcpyDtoH(back, pointer, 4));
    EXPECT_EQUAL(back[0], 0x05050505);
}

TEST(rows_keep_their_pitch)
{
    CUdeviceptr pointer = start();
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = pointer, .srcPitch = 256,
                          .srcXInBytes = 8, .srcY = 2, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back,
                          .dstPitch = 64, .WidthInBytes = 40, .Height = 5};
    EXPECT_OK(cuMemcpy2D(&copy));
    for (int y = 0; y < 5; y++)
        EXPECT_EQUAL(memcmp(back + 16 * y, words + 64 * (y + 2) + 2, 40), 0);
    EXPECT_EQUAL(back[10], 0);
}

TEST(boxes_keep_their_heights)
{
    CUdeviceptr pointer = start();
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = pointer, .srcPitch = 128, .srcHeight = 16,
                          .srcY = 1, .srcZ = 1, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = 32,
                          .dstHeight = 4, .WidthInBytes = 32, .Height = 3, .Depth = 2};
    EXPECT_OK(cuMemcpy3D(&copy));
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 3; y++)
            EXPECT_EQUAL(memcmp(back + (z * 4 + y) * 8, words + ((z + 1) * 16 + y + 1) * 32, 32), 0);
}

TEST(a_pitch_below_the_width_is_an_invalid_value)
{
    CUdeviceptr pointer = start();
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = pointer, .srcPitch = 32,
                          .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = 64,
                          .WidthInBytes = 64, .Height = 2};
    EXPECT_CODE(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
}

TEST(more_than_the_allocation_is_an_invalid_value)
{
    CUdeviceptr pointer;
    check_start();
    EXPECT_OK(cuMemAlloc(&pointer, 64 * MIB)); /* large: a driver keeps the chunks of small ones mapped */
    EXPECT_CODE(cuMemcpyDtoH(back, pointer + 64 * MIB - 8, 16), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree(pointer));
    EXPECT_CODE(cuMemcpyDtoH(back, pointer, 16), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemcpyHtoD(pointer, words, 16), CUDA_ERROR_INVALID_VALUE);
}

TEST(bytes_go_from_device_to_device)
{
    CUcontext first, second;
    CUdeviceptr there;
    int count;
    CUdeviceptr pointer = start();
    EXPECT_OK(cuDeviceGetCount(&count));
    if (count < 2)
        SKIP("one device only");
    EXPECT_OK(cuCtxGetCurrent(&first));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&second, 1));
    EXPECT_OK(cuCtxSetCurrent(second));
    EXPECT_OK(cuMemAlloc(&there, sizeof words));
    EXPECT_OK(cuMemcpyPeer(there, second, pointer, first, sizeof words));
    EXPECT_OK(cuMemcpyDtoH(back, there, sizeof back));
    EXPECT_EQUAL(memcmp(back, words, sizeof back), 0);
}

TEST(a_copy_needs_a_context)
{
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuMemcpyHtoD(4096, words, 4), CUDA_ERROR_INVALID_CONTEXT);
}
