/* Events: what has been reached, how long it took, and their errors. */
#include "check.h"

static CUevent new_event(unsigned flags)
{
    CUevent event;
    EXPECT_OK(cuEventCreate(&event, flags));
    return event;
}

static CUstream new_stream(void)
{
    CUstream stream;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void spin(uint64_t nanoseconds, CUstream stream)
{
    void *arguments[] = {&nanoseconds};
    EXPECT_OK(cuLaunchKernel(check_builtin("aliquot_spin"), 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

TEST(an_event_that_was_never_recorded_is_done)
{
    check_start();
    CUevent event = new_event(CU_EVENT_DEFAULT);
    EXPECT_OK(cuEventQuery(event));
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT_OK(cuEventDestroy(event));
}

TEST(an_event_is_not_ready_before_its_stream_reaches_it)
{
    check_start();
    CUstream stream = new_stream();
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    spin(200000000, stream);
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT_OK(cuEventQuery(event));
}

TEST(two_events_measure_what_ran_between_them)
{
    float milliseconds = 0;
    check_start();
    CUstream stream = new_stream();
    CUevent first = new_event(CU_EVENT_DEFAULT), last = new_event(CU_EVENT_DEFAULT);
    spin(1000, stream);
    EXPECT_OK(cuEventRecord(first, stream));
    spin(20000000, stream);
    EXPECT_OK(cuEventRecord(last, stream));
    EXPECT_OK(cuEventSynchronize(last));
    EXPECT_OK(cuEventElapsedTime(&milliseconds, first, last));
    EXPECT(milliseconds >= 19.0f);
}

TEST(time_needs_two_recorded_events_that_measure)
{
    float milliseconds;
    check_start();
    CUstream stream = new_stream();
    CUevent timed = new_event(CU_EVENT_DEFAULT), untimed = new_event(CU_EVENT_DISABLE_TIMING);
    EXPECT_OK(cuEventRecord(timed, stream));
    EXPECT_OK(cuEventRecord(untimed, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_CODE(cuEventElapsedTime(&milliseconds, timed, untimed), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_CODE(cuEventElapsedTime(&milliseconds, timed, new_event(CU_EVENT_DEFAULT)), CUDA_ERROR_INVALID_HANDLE);
    spin(200000000, stream);
    CUevent late = new_event(CU_EVENT_DEFAULT);
    EXPECT_OK(cuEventRecord(late, stream));
    EXPECT_CODE(cuEventElapsedTime(&milliseconds, timed, late), CUDA_ERROR_NOT_READY);
}

TEST(the_latest_record_is_the_one_that_counts)
{
    check_start();
    CUstream stream = new_stream();
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_OK(cuEventSynchronize(event));
    spin(200000000, stream);
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
}

TEST(an_event_may_go_before_its_stream_reaches_it)
{
    check_start();
    CUstream stream = new_stream();
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    spin(50000000, stream);
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_OK(cuEventDestroy(event));
    EXPECT_OK(cuStreamSynchronize(stream));
}

TEST(an_event_is_recorded_in_streams_of_its_own_context)
{
    CUcontext other;
    int count;
    check_start();
    EXPECT_OK(cuDeviceGetCount(&count));
    if (count < 2)
        SKIP("one device only");
    CUevent event = new_event(CU_EVENT_DEFAULT);
    EXPECT_OK(cuDevicePrimaryCtxRetain(&other, 1));
    EXPECT_OK(cuCtxSetCurrent(other));
    EXPECT_CODE(cuEventRecord(event, new_stream()), CUDA_ERROR_INVALID_HANDLE);
}

TEST(events_refuse_bad_arguments)
{
    CUevent event;
    check_start();
    EXPECT_CODE(cuEventCreate(NULL, CU_EVENT_DEFAULT), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuEventCreate(&event, 0x8000), CUDA_ERROR_INVALID_VALUE);
}

TEST(an_event_needs_a_context)
{
    CUevent event;
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_ERROR_INVALID_CONTEXT);
}
