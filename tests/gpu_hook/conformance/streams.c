/* Streams: order within and between them, the default streams, priorities, host functions, and their errors. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

static CUstream new_stream(unsigned flags)
{
    CUstream stream;
    EXPECT_OK(cuStreamCreate(&stream, flags));
    return stream;
}

/* Keeps a stream busy until it is opened. */
static atomic_int gate;

static void CUDA_CB wait_for_gate(void *unused)
{
    (void)unused;
    while (!atomic_load(&gate))
        sched_yield();
}

static void CUDA_CB count(void *counter)
{
    atomic_fetch_add((atomic_int *)counter, 1);
}

TEST(a_new_stream_has_nothing_to_do)
{
    check_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cuStreamQuery(stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuStreamDestroy(stream));
}

TEST(a_stream_is_not_ready_before_its_work_is_done)
{
    check_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cuLaunchHostFunc(stream, wait_for_gate, NULL));
    EXPECT_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    atomic_store(&gate, 1);
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuStreamQuery(stream));
}

TEST(work_of_a_stream_runs_in_order)
{
    uint32_t word = 0;
    atomic_int calls = 0;
    CUdeviceptr pointer;
    check_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cuMemAlloc(&pointer, 4));
    EXPECT_OK(cuLaunchHostFunc(stream, wait_for_gate, NULL));
    EXPECT_OK(cuMemsetD32Async(pointer, 1, 1, stream));
    EXPECT_OK(cuLaunchHostFunc(stream, count, &calls));
    EXPECT_OK(cuMemsetD32Async(pointer, 2, 1, stream));
    EXPECT_EQUAL(atomic_load(&calls), 0);
    atomic_store(&gate, 1);
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(atomic_load(&calls), 1);
    EXPECT_OK(cuMemcpyDtoH(&word, pointer, 4));
    EXPECT_EQUAL(word, 2);
}

TEST(streams_wait_for_each_other_by_events)
{
    atomic_int calls = 0;
    CUevent event;
    check_start();
    CUstream first = new_stream(CU_STREAM_NON_BLOCKING), second = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuLaunchHostFunc(first, wait_for_gate, NULL));
    EXPECT_OK(cuEventRecord(event, first));
    EXPECT_OK(cuStreamWaitEvent(second, event, 0));
    EXPECT_OK(cuLaunchHostFunc(second, count, &calls));
    EXPECT_CODE(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    EXPECT_EQUAL(atomic_load(&calls), 0);
    atomic_store(&gate, 1);
    EXPECT_OK(cuStreamSynchronize(second));
    EXPECT_EQUAL(atomic_load(&calls), 1);
}

TEST(the_legacy_stream_waits_for_blocking_streams_only)
{
    check_start();
    CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cuLaunchHostFunc(other, wait_for_gate, NULL));
    EXPECT_OK(cuStreamSynchronize(CU_STREAM_LEGACY)); /* would never end if it waited for `other` */
    atomic_store(&gate, 1);
    EXPECT_OK(cuStreamSynchronize(other));
    atomic_store(&gate, 0);
    CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    CUdeviceptr pointer;
    EXPECT_OK(cuMemAlloc(&pointer, 4));
    EXPECT_OK(cuLaunchHostFunc(blocking, wait_for_gate, NULL));
    EXPECT_OK(cuMemsetD32Async(pointer, 1, 1, NULL));
    EXPECT_CODE(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    atomic_store(&gate, 1);
    EXPECT_OK(cuStreamSynchronize(NULL));
    EXPECT_OK(cuStreamQuery(blocking));
}

TEST(a_context_waits_for_all_its_streams)
{
    atomic_int calls = 0;
    check_start();
    for (int i = 0; i < 4; i++)
        EXPECT_OK(cuLaunchHostFunc(new_stream(CU_STREAM_NON_BLOCKING), count, &calls));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(atomic_load(&calls), 4);
}

TEST(a_destroyed_stream_finishes_its_work)
{
    atomic_int calls = 0;
    check_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cuLaunchHostFunc(stream, wait_for_gate, NULL));
    EXPECT_OK(cuLaunchHostFunc(stream, count, &calls));
    EXPECT_OK(cuStreamDestroy(stream));
    EXPECT_EQUAL(atomic_load(&calls), 0);
    atomic_store(&gate, 1);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQUAL(atomic_load(&calls), 1);
}

static void CUDA_CB note_callback(CUstream stream, CUresult status, void *seen)
{
    (void)stream;
    *(CUresult *)seen = status;
}

TEST(a_callback_learns_that_all_went_well)
{
    CUresult seen = CUDA_ERROR_UNKNOWN;
    check_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cuStreamAddCallback(stream, note_callback, &seen, 0));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(seen, CUDA_SUCCESS);
    EXPECT_CODE(cuStreamAddCallback(stream, note_callback, &seen, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST(priorities_are_kept_within_their_range)
{
    int least, greatest, found = 99;
    CUstream stream;
    check_start();
    EXPECT_OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    EXPECT(greatest <= least);
    EXPECT_OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 100));
    EXPECT_OK(cuStreamGetPriority(stream, &found));
    EXPECT_EQUAL(found, greatest);
    EXPECT_OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, least + 100));
    EXPECT_OK(cuStreamGetPriority(stream, &found));
    EXPECT_EQUAL(found, least);
}

TEST(a_stream_tells_its_flags_its_context_and_its_identity)
{
    unsigned flags = 99;
    unsigned long long one, two;
    CUcontext found = NULL;
    CUcontext context = check_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cuStreamGetFlags(stream, &flags));
    EXPECT_EQUAL(flags, CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cuStreamGetFlags(new_stream(CU_STREAM_DEFAULT), &flags));
    EXPECT_EQUAL(flags, CU_STREAM_DEFAULT);
    EXPECT_OK(cuStreamGetCtx(stream, &found));
    EXPECT(found == context);
    EXPECT_OK(cuStreamGetId(stream, &one));
    EXPECT_OK(cuStreamGetId(NULL, &two));
    EXPECT(one != two);
}

TEST(streams_refuse_bad_arguments)
{
    CUstream stream;
    check_start();
    EXPECT_CODE(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuStreamCreate(&stream, 0x80), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuLaunchHostFunc(NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_CODE(cuStreamGetFlags(stream, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuStreamGetPriority(stream, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_stream_needs_a_context)
{
    CUstream stream;
    EXPECT_OK(cuInit(0));
    EXPECT_CODE(cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CODE(cuStreamSynchronize(NULL), CUDA_ERROR_INVALID_CONTEXT);
}

static CUcontext new_context(void)
{
    CUcontext context;
#if CUDA_VERSION >= 13000
    EXPECT_OK(cuCtxCreate(&context, NULL, 0, 0));
#else
    EXPECT_OK(cuCtxCreate(&context, 0, 0));
#endif
    return context;
}

TEST(a_stream_is_never_taken_for_a_threads_former_default_stream)
{
    enum { COUNT = 64 };
    CUstream streams[COUNT];
    EXPECT_OK(cuInit(0));
    CUcontext first = new_context();
    EXPECT_OK(cuStreamQuery(CU_STREAM_PER_THREAD));
    EXPECT_OK(cuCtxDestroy(first));
    CUcontext second = new_context();
    for (int i = 0; i < COUNT; i++)
        EXPECT_OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamQuery(CU_STREAM_PER_THREAD));
    for (int i = 0; i < COUNT; i++)
        EXPECT_OK(cuStreamQuery(streams[i]));
    EXPECT_OK(cuCtxDestroy(second));
}
