/* Green contexts: multiprocessors as a resource, streams on a part of them, and their errors. CUDA 12.5 and newer. */
#include "check.h"

static CUdevResource device_sms(void)
{
    CUdevResource resource;
    EXPECT_OK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    return resource;
}

/* Half of the device, or what of it can be had. */
static CUgreenCtx half_of_the_device(unsigned *sm_count)
{
    CUdevResource whole = device_sms(), half;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    unsigned groups = 1;
    EXPECT_OK(cuDevSmResourceSplitByCount(&half, &groups, &whole, NULL, 0, whole.sm.smCount / 2));
    EXPECT_EQUAL(groups, 1);
    EXPECT_OK(cuDevResourceGenerateDesc(&desc, &half, 1));
    EXPECT_OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    if (sm_count)
        *sm_count = half.sm.smCount;
    return green;
}

static CUstream stream_of(CUgreenCtx green)
{
    CUstream stream;
    EXPECT_OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

TEST(a_device_has_all_its_multiprocessors)
{
    int count;
    check_start();
    EXPECT_OK(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    EXPECT_EQUAL(device_sms().type, CU_DEV_RESOURCE_TYPE_SM);
    EXPECT_EQUAL(device_sms().sm.smCount, count);
}

TEST(a_split_rounds_up_and_tells_what_is_left)
{
    CUdevResource whole, part, rest;
    unsigned groups = 1, possible = 0;
    check_start();
    whole = device_sms();
    EXPECT_OK(cuDevSmResourceSplitByCount(NULL, &possible, &whole, NULL, 0, 1));
    EXPECT(possible > 1);
    EXPECT_OK(cuDevSmResourceSplitByCount(&part, &groups, &whole, &rest, 0, 1));
    EXPECT_EQUAL(groups, 1);
    EXPECT(part.sm.smCount >= 1);
    EXPECT_EQUAL(part.sm.smCount * possible + (whole.sm.smCount - part.sm.smCount * possible), whole.sm.smCount);
    EXPECT_EQUAL(rest.type, CU_DEV_RESOURCE_TYPE_SM);
    EXPECT(part.sm.smCount + rest.sm.smCount <= whole.sm.smCount);
}

TEST(more_than_there_is_cannot_be_split_off)
{
    CUdevResource whole, part;
    unsigned groups = 1;
    check_start();
    whole = device_sms();
    EXPECT_CODE(cuDevSmResourceSplitByCount(&part, &groups, &whole, NULL, 0, whole.sm.smCount + 1),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuDeviceGetDevResource(0, &part, CU_DEV_RESOURCE_TYPE_INVALID), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    EXPECT_CODE(cuDeviceGetDevResource(-1, &part, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_DEVICE);
}

TEST(a_part_of_a_split_is_split_again_only_through_a_green_context)
{
    CUdevResource whole, part, again;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    unsigned groups = 1;
    check_start();
    ONLY_ON_THE_SOFTWARE_GPU(); /* documented, but the code is not */
    whole = device_sms();
    EXPECT_OK(cuDevSmResourceSplitByCount(&part, &groups, &whole, NULL, 0, whole.sm.smCount / 2));
    EXPECT_CODE(cuDevSmResourceSplitByCount(&again, &groups, &part, NULL, 0, 1),
                CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    EXPECT_OK(cuDevResourceGenerateDesc(&desc, &part, 1));
    EXPECT_OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    EXPECT_OK(cuGreenCtxGetDevResource(green, &part, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_OK(cuDevSmResourceSplitByCount(&again, &groups, &part, NULL, 0, 1));
    EXPECT_OK(cuGreenCtxDestroy(green));
}

TEST(a_green_context_needs_its_flag_and_its_streams_theirs)
{
    CUdevResource whole;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUstream stream;
    check_start();
    whole = device_sms();
    EXPECT_OK(cuDevResourceGenerateDesc(&desc, &whole, 1));
    EXPECT_CODE(cuGreenCtxCreate(&green, desc, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    EXPECT_CODE(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGreenCtxDestroy(green));
}

TEST(a_stream_knows_its_green_context)
{
    CUcontext context, face, found;
    CUgreenCtx green, of_stream;
    CUdevResource resource;
    CUstream plain, stream;
    unsigned sm_count;
    context = check_start();
    green = half_of_the_device(&sm_count);
    stream = stream_of(green);
    EXPECT_OK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamGetGreenCtx(stream, &of_stream));
    EXPECT(of_stream == green);
    EXPECT_OK(cuStreamGetGreenCtx(plain, &of_stream));
    EXPECT(of_stream == NULL);
    EXPECT_OK(cuCtxFromGreenCtx(&face, green));
    EXPECT(face != context);
    EXPECT_OK(cuStreamGetCtx(stream, &found));
    EXPECT(found == face);
    EXPECT_OK(cuStreamGetCtx(plain, &found));
    EXPECT(found == context);
    EXPECT_OK(cuCtxGetDevResource(face, &resource, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_EQUAL(resource.sm.smCount, sm_count);
    EXPECT_OK(cuStreamDestroy(stream));
    EXPECT_OK(cuGreenCtxDestroy(green));
}

TEST(memory_and_work_of_a_green_context_are_the_primary_contexts)
{
    CUcontext context, face;
    CUdeviceptr pointer;
    uint32_t words[4] = {0};
    context = check_start();
    CUgreenCtx green = half_of_the_device(NULL);
    CUstream stream = stream_of(green);
    EXPECT_OK(cuMemAlloc(&pointer, sizeof words));
    EXPECT_OK(cuMemsetD32Async(pointer, 7, 4, stream)); /* from the primary context */
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuCtxFromGreenCtx(&face, green));
    EXPECT_OK(cuCtxSetCurrent(face));
    EXPECT_OK(cuMemcpyDtoH(words, pointer, sizeof words));
    EXPECT_EQUAL(words[3], 7);
    EXPECT_OK(cuCtxSetCurrent(context));
    EXPECT_OK(cuStreamDestroy(stream));
    EXPECT_OK(cuGreenCtxDestroy(green));
    EXPECT_OK(cuMemcpyDtoH(words, pointer, sizeof words));
    EXPECT_OK(cuMemFree(pointer));
}

TEST(an_ended_green_context_takes_its_streams_along)
{
    check_start();
    ONLY_ON_THE_SOFTWARE_GPU(); /* a driver may crash on the handle */
    CUgreenCtx green = half_of_the_device(NULL);
    CUstream stream = stream_of(green);
    EXPECT_OK(cuGreenCtxDestroy(green));
    EXPECT_CODE(cuStreamQuery(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_CODE(cuStreamDestroy(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_CODE(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
}

static float milliseconds_of(CUstream stream, unsigned blocks)
{
    uint64_t nanoseconds = 5000000;
    void *arguments[] = {&nanoseconds};
    CUevent before, after;
    float milliseconds;
    EXPECT_OK(cuEventCreate(&before, 0));
    EXPECT_OK(cuEventCreate(&after, 0));
    EXPECT_OK(cuEventRecord(before, stream));
    EXPECT_OK(cuLaunchKernel(check_builtin("aliquot_spin"), blocks, 1, 1, 1024, 1, 1, 0, stream, arguments, NULL));
    EXPECT_OK(cuEventRecord(after, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuEventElapsedTime(&milliseconds, before, after));
    return milliseconds;
}

TEST(what_fills_the_device_takes_two_waves_on_half_of_it)
{
    int on_each;
    CUstream plain;
    check_start();
    EXPECT_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&on_each, check_builtin("aliquot_spin"), 1024, 0));
    unsigned blocks = (unsigned)on_each * device_sms().sm.smCount;
    CUgreenCtx green = half_of_the_device(NULL);
    CUstream stream = stream_of(green);
    EXPECT_OK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    milliseconds_of(plain, blocks); /* loads the code */
    float on_all = milliseconds_of(plain, blocks);
    EXPECT(milliseconds_of(stream, blocks) > 1.5f * on_all);
    EXPECT(milliseconds_of(stream, 1) < 1.5f * on_all);
    EXPECT_OK(cuStreamDestroy(stream));
    EXPECT_OK(cuGreenCtxDestroy(green));
}
