/* Linear memory: cuMemAlloc, cuMemAllocPitch, their frees, and the errors of both. */
#include "check.h"

TEST(an_allocation_holds_its_bytes)
{
    CUdeviceptr pointer;
    uint32_t words[4] = {1, 2, 3, 4}, back[4] = {0};
    check_start();
    EXPECT_OK(cuMemAlloc(&pointer, sizeof words));
    EXPECT_OK(cuMemcpyHtoD(pointer, words, sizeof words));
    EXPECT_OK(cuMemcpyDtoH(back, pointer, sizeof back));
    EXPECT_EQUAL(memcmp(words, back, sizeof words), 0);
    EXPECT_OK(cuMemFree(pointer));
}

TEST(an_allocation_of_nothing_is_an_invalid_value)
{
    CUdeviceptr pointer;
    check_start();
    EXPECT_CODE(cuMemAlloc(&pointer, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(more_than_the_device_is_out_of_memory)
{
    CUdeviceptr pointer;
    size_t total;
    check_start();
    EXPECT_OK(cuDeviceTotalMem(&total, 0));
    EXPECT_CODE(cuMemAlloc(&pointer, total + MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(a_second_free_is_an_invalid_value)
{
    CUdeviceptr pointer;
    check_start();
    EXPECT_OK(cuMemAlloc(&pointer, MIB));
    EXPECT_OK(cuMemFree(pointer));
    EXPECT_CODE(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_pitch_holds_a_row_and_is_aligned)
{
    CUdeviceptr pointer;
    size_t pitch;
    check_start();
    EXPECT_OK(cuMemAllocPitch(&pointer, &pitch, 1000, 10, 4));
    EXPECT(pitch >= 1000 && pitch % 4 == 0);
    EXPECT_OK(cuMemFree(pointer));
}
