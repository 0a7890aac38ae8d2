/* Launches: the built-in kernels compute, arguments come in two ways, geometry has bounds, and the errors of all. */
#include "check.h"

static CUdeviceptr new_words(uint32_t value, size_t count)
{
    CUdeviceptr pointer;
    EXPECT_OK(cuMemAlloc(&pointer, count * 4));
    EXPECT_OK(cuMemsetD32(pointer, value, count));
    return pointer;
}

static uint32_t word_at(CUdeviceptr pointer, size_t index)
{
    uint32_t word;
    EXPECT_OK(cuMemcpyDtoH(&word, pointer + index * 4, 4));
    return word;
}

TEST(a_kernel_gets_its_arguments_and_computes)
{
    uint64_t count = 10000;
    uint32_t value = 0xfeedu;
    check_start();
    CUdeviceptr pointer = new_words(0, count + 1);
    void *arguments[] = {&pointer, &value, &count};
    EXPECT_OK(cuLaunchKernel(check_builtin("aliquot_fill"), 8, 1, 1, 128, 1, 1, 0, NULL, arguments, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(word_at(pointer, 0), 0xfeed);
    EXPECT_EQUAL(word_at(pointer, count - 1), 0xfeed);
    EXPECT_EQUAL(word_at(pointer, count), 0);
}

TEST(arguments_may_come_packed)
{
    struct {
        CUdeviceptr pointer;
        uint32_t value;
        uint64_t count;
    } packed = {0, 9, 64};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    check_start();
    packed.pointer = new_words(0, 64);
    EXPECT_OK(cuLaunchKernel(check_builtin("aliquot_fill"), 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(word_at(packed.pointer, 63), 9);
    void *arguments[] = {&packed.pointer, &packed.value, &packed.count};
    EXPECT_CODE(cuLaunchKernel(check_builtin("aliquot_fill"), 1, 1, 1, 64, 1, 1, 0, NULL, arguments, extra),
                CUDA_ERROR_INVALID_VALUE);
}

TEST(arguments_are_taken_at_the_call)
{
    uint64_t count = 64;
    uint32_t value = 1;
    uint64_t nanoseconds = 20000000;
    CUstream stream;
    check_start();
    CUdeviceptr pointer = new_words(0, 64);
    void *arguments[] = {&pointer, &value, &count}, *spin[] = {&nanoseconds};
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuLaunchKernel(check_builtin("aliquot_spin"), 1, 1, 1, 1, 1, 1, 0, stream, spin, NULL));
    EXPECT_OK(cuLaunchKernel(check_builtin("aliquot_fill"), 1, 1, 1, 64, 1, 1, 0, stream, arguments, NULL));
    value = 2;
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(word_at(pointer, 0), 1);
}

TEST(the_extended_launch_computes_too)
{
    uint64_t count = 64;
    uint32_t value = 3;
    check_start();
    CUdeviceptr pointer = new_words(0, 64);
    void *arguments[] = {&pointer, &value, &count};
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1};
    EXPECT_OK(cuLaunchKernelEx(&config, check_builtin("aliquot_fill"), arguments, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(word_at(pointer, 63), 3);
}

TEST(sizes_out_of_bounds_are_invalid_values)
{
    static const unsigned wrong[][6] = {{0, 1, 1, 1, 1, 1}, {1, 0, 1, 1, 1, 1},    {1, 1, 0, 1, 1, 1},
                                        {1, 1, 1, 0, 1, 1}, {1, 1, 1, 1, 1, 65},   {1, 1, 1, 1025, 1, 1},
                                        {1, 1, 1, 32, 32, 2}, {1, 65536, 1, 1, 1, 1}, {1, 1, 65536, 1, 1, 1}};
    uint64_t nanoseconds = 1;
    void *arguments[] = {&nanoseconds};
    check_start();
    CUfunction function = check_builtin("aliquot_spin");
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        EXPECT_CODE(cuLaunchKernel(function, wrong[i][0], wrong[i][1], wrong[i][2], wrong[i][3], wrong[i][4], wrong[i][5],
                                   0, NULL, arguments, NULL),
                    CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 1 << 30, NULL, arguments, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    EXPECT_OK(cuCtxSynchronize());
}

TEST(a_cooperative_launch_must_fit_the_device)
{
    uint64_t nanoseconds = 1;
    void *arguments[] = {&nanoseconds};
    int can_cooperate = 0;
    check_start();
    EXPECT_OK(cuDeviceGetAttribute(&can_cooperate, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0));
    if (!can_cooperate)
        SKIP("this device has no cooperative launches");
    CUfunction function = check_builtin("aliquot_spin");
    EXPECT_OK(cuLaunchCooperativeKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments));
    EXPECT_CODE(cuLaunchCooperativeKernel(function, 1 << 20, 1, 1, 32, 1, 1, 0, NULL, arguments),
                CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT_OK(cuCtxSynchronize());
}

TEST(occupancy_is_what_fits)
{
    int blocks = 0, grid = 0, block = 0;
    check_start();
    CUfunction function = check_builtin("aliquot_spin");
    EXPECT_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, 0));
    EXPECT(blocks >= 1);
    EXPECT_OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
    EXPECT(grid >= 1 && block >= 32 && block <= 1024);
}
