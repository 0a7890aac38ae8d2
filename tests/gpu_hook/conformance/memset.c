/* Fills: of each element size, in rows, in the order of a stream, and what is refused. */
#include "check.h"

static unsigned char bytes[1024];

static CUdeviceptr start(void)
{
    CUdeviceptr pointer;
    check_start();
    EXPECT_OK(cuMemAlloc(&pointer, sizeof bytes));
    EXPECT_OK(cuMemsetD8(pointer, 0xee, sizeof bytes));
    return pointer;
}

static void expect_pattern(CUdeviceptr pointer, const void *pattern, size_t size, size_t count)
{
    EXPECT_OK(cuMemcpyDtoH(bytes, pointer, sizeof bytes));
    for (size_t i = 0; i < count; i++)
        EXPECT_EQUAL(memcmp(bytes + i * size, pattern, size), 0);
    for (size_t i = count * size; i < sizeof bytes; i++)
        EXPECT_EQUAL(bytes[i], 0xee);
}

TEST(bytes_are_filled)
{
    unsigned char value = 0x41;
    CUdeviceptr pointer = start();
    EXPECT_OK(cuMemsetD8(pointer, value, 100));
    expect_pattern(pointer, &value, 1, 100);
}

TEST(half_words_are_filled)
{
    unsigned short value = 0x1234;
    CUdeviceptr pointer = start();
    EXPECT_OK(cuMemsetD16(pointer, value, 100));
    expect_pattern(pointer, &value, 2, 100);
}

TEST(words_are_filled)
{
    unsigned value = 0x12345678;
    CUdeviceptr pointer = start();
    EXPECT_OK(cuMemsetD32(pointer, value, 100));
    expect_pattern(pointer, &value, 4, 100);
}

TEST(rows_are_filled_and_what_is_between_them_is_not)
{
    CUdeviceptr pointer = start();
    EXPECT_OK(cuMemsetD2D8(pointer, 128, 1, 20, 3));
    EXPECT_OK(cuMemsetD2D16(pointer + 32, 128, 0x0202, 10, 3));
    EXPECT_OK(cuMemsetD2D32(pointer + 64, 128, 0x03030303, 5, 3));
    EXPECT_OK(cuMemcpyDtoH(bytes, pointer, sizeof bytes));
    for (int i = 0; i < 1024; i++) {
        int x = i % 128 % 32, part = i % 128 / 32, is_filled = i < 3 * 128 && x < 20 && part < 3;
        EXPECT_EQUAL(bytes[i], is_filled ? part + 1 : 0xee);
    }
}

TEST(fills_run_in_the_order_of_a_stream)
{
    unsigned value = 7;
    CUstream stream;
    CUdeviceptr pointer = start();
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuMemsetD8Async(pointer, 1, 64, stream));
    EXPECT_OK(cuMemsetD16Async(pointer, 2, 32, stream));
    EXPECT_OK(cuMemsetD2D32Async(pointer, 64, value, 16, 1, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    expect_pattern(pointer, &value, 4, 16);
}

TEST(addresses_between_elements_are_invalid_values)
{
    CUdeviceptr pointer = start();
    EXPECT_CODE(cuMemsetD16(pointer + 1, 0, 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemsetD32(pointer + 2, 0, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_fill_of_nothing_does_nothing)
{
    CUdeviceptr pointer = start();
    EXPECT_OK(cuMemsetD8(pointer, 0, 0));
    EXPECT_OK(cuMemsetD32(pointer, 0, 0));
}

TEST(freed_memory_is_not_filled)
{
    CUdeviceptr pointer;
    check_start();
    EXPECT_OK(cuMemAlloc(&pointer, 64 * MIB)); /* large: a driver keeps the chunks of small ones mapped */
    EXPECT_OK(cuMemFree(pointer));
    EXPECT_CODE(cuMemsetD8(pointer, 0, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_fill_needs_a_context)
{
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuMemsetD8(4096, 0, 4), CUDA_ERROR_INVALID_CONTEXT);
}
