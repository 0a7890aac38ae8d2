/* The launch of CUDA's first releases, which PyCUDA still uses in part: state on the function, then a launch without
 * arguments. */
#include "check.h"

static void set_fill(CUfunction function, CUdeviceptr pointer, uint32_t value, uint64_t count)
{
    EXPECT_OK(cuParamSetv(function, 0, &pointer, sizeof pointer));
    EXPECT_OK(cuParamSeti(function, 8, value));
    EXPECT_OK(cuParamSetv(function, 16, &count, sizeof count));
    EXPECT_OK(cuParamSetSize(function, 24));
}

static void expect_words(CUdeviceptr pointer, uint32_t want, size_t count)
{
    uint32_t words[64];
    EXPECT_OK(cuMemcpyDtoH(words, pointer, count * 4));
    for (size_t i = 0; i < count; i++)
        EXPECT_EQUAL(words[i], want);
}

TEST(arguments_and_shape_are_set_on_the_function)
{
    CUdeviceptr pointer;
    check_start();
    CUfunction function = check_builtin("aliquot_fill");
    EXPECT_OK(cuMemAlloc(&pointer, 256));
    set_fill(function, pointer, 3, 64);
    EXPECT_OK(cuFuncSetBlockShape(function, 32, 1, 1));
    EXPECT_OK(cuFuncSetSharedSize(function, 0));
    EXPECT_OK(cuLaunch(function));
    EXPECT_OK(cuCtxSynchronize());
    expect_words(pointer, 3, 64);
}

TEST(they_stay_for_the_next_launch)
{
    CUdeviceptr pointer;
    CUstream stream;
    check_start();
    CUfunction function = check_builtin("aliquot_fill");
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuMemAlloc(&pointer, 256));
    set_fill(function, pointer, 4, 64);
    EXPECT_OK(cuFuncSetBlockShape(function, 8, 2, 2));
    EXPECT_OK(cuLaunchGrid(function, 2, 1));
    EXPECT_OK(cuParamSeti(function, 8, 5));
    EXPECT_OK(cuCtxSynchronize());
    expect_words(pointer, 4, 64);
    EXPECT_OK(cuLaunchGridAsync(function, 1, 1, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    expect_words(pointer, 5, 64);
}

TEST(the_newer_launch_takes_nothing_from_them)
{
    uint32_t value = 6;
    uint64_t count = 64;
    CUdeviceptr pointer;
    check_start();
    CUfunction function = check_builtin("aliquot_fill");
    EXPECT_OK(cuMemAlloc(&pointer, 256));
    set_fill(function, 0, 7, 0);
    EXPECT_OK(cuFuncSetBlockShape(function, 1, 1, 1));
    void *arguments[] = {&pointer, &value, &count};
    EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 16, 1, 1, 0, NULL, arguments, NULL));
    EXPECT_OK(cuCtxSynchronize());
    expect_words(pointer, 6, 64);
}

TEST(a_shape_of_nothing_is_refused)
{
    check_start();
    CUfunction function = check_builtin("aliquot_spin");
    EXPECT_CODE(cuFuncSetBlockShape(function, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuFuncSetBlockShape(function, 1, -1, 1), CUDA_ERROR_INVALID_VALUE);
}
