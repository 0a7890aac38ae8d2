/* The edges of graphs' and captures' lives: many threads, contexts and streams that end, calls
 * that no node can represent. */
#include <pthread.h>

#include "capture.h"

#define THREADS 6
#define ROUNDS 20

struct party {
    CUcontext context;
    int number, calls;
};

/* Captures a fork and a join around memory of the graph's own. */
static CUgraph captured_fork(CUstream stream, size_t bytes, int frees, int *calls, CUdeviceptr *memory)
{
    CUgraph graph;
    CUstream side = a_stream();
    CUevent fork = an_event(), join = an_event();
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_OK(cuMemAllocAsync(memory, bytes, stream));
    EXPECT_OK(cuEventRecord(fork, stream));
    EXPECT_OK(cuStreamWaitEvent(side, fork, 0));
    EXPECT_OK(cuMemsetD32Async(*memory, 1, 64, side));
    EXPECT_OK(cuLaunchHostFunc(stream, count, calls));
    EXPECT_OK(cuEventRecord(join, side));
    EXPECT_OK(cuStreamWaitEvent(stream, join, 0));
    if (frees)
        EXPECT_OK(cuMemFreeAsync(*memory, stream));
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    EXPECT_OK(cuStreamDestroy(side));
    EXPECT_OK(cuEventDestroy(fork));
    EXPECT_OK(cuEventDestroy(join));
    return graph;
}

static void *join_in(void *argument)
{
    struct party *party = argument;
    CUstream streams[2] = {NULL, CU_STREAM_PER_THREAD};
    EXPECT_OK(cuCtxSetCurrent(party->context));
    streams[0] = a_stream();
    for (int round = 0; round < ROUNDS; round++) {
        int frees = (round + party->number) % 3 != 0;
        CUgraphExec exec;
        CUdeviceptr memory;
        CUgraph graph = captured_fork(streams[0], 4096 + (size_t)(round % 7) * 100000, frees, &party->calls, &memory);
        EXPECT_OK(cuGraphInstantiate(&exec, graph, frees ? 0 : CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
        for (int i = 0; i < 4; i++)
            EXPECT_OK(cuGraphLaunch(exec, streams[i % 2]));
        if (round % 5 == 0)
            EXPECT_OK(cuDeviceGraphMemTrim(0));
        EXPECT_OK(cuStreamSynchronize(streams[1]));
        if (!frees)
            EXPECT_OK(cuMemFreeAsync(memory, streams[1]));
        EXPECT_OK(cuGraphDestroy(graph));
        EXPECT_OK(cuGraphExecDestroy(exec));
    }
    for (int i = 0; i < 2; i++)
        EXPECT_OK(cuStreamSynchronize(streams[i]));
    return NULL;
}

TEST(threads_capture_and_launch_beside_each_other)
{
    struct party parties[THREADS];
    pthread_t threads[THREADS];
    cuuint64_t reserved;
    CUcontext context = check_start();
    for (int i = 0; i < THREADS; i++) {
        parties[i] = (struct party){.context = context, .number = i};
        EXPECT_EQUAL(pthread_create(&threads[i], NULL, join_in, &parties[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        EXPECT_EQUAL(parties[i].calls, ROUNDS * 4);
    }
    EXPECT_OK(cuDeviceGraphMemTrim(0));
    EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    EXPECT_EQUAL(reserved, 0);
}

TEST(memory_of_graphs_outlives_their_context_until_it_is_freed)
{
    CUcontext context;
    CUgraph graph;
    CUdeviceptr memory[10];
    cuuint64_t reserved;
    int calls = 0;
    ONLY_ON_THE_SOFTWARE_GPU(); /* graphs after the end of their context */
    for (int i = 0; i < 10; i++) {
        EXPECT_OK(cuCtxCreate(&context, NULL, 0, 0));
        CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
        EXPECT_OK(cuMemAllocAsync(&memory[i], MIB, stream));
        EXPECT_OK(cuLaunchHostFunc(stream, count, &calls));
        EXPECT_OK(cuStreamEndCapture(stream, &graph));
        CUgraphExec exec = instantiated(graph);
        EXPECT_OK(cuGraphLaunch(exec, stream));
        capturing(CU_STREAM_CAPTURE_MODE_RELAXED); /* and never ended */
        if (i % 2)
            EXPECT_OK(cuGraphExecDestroy(exec));
        EXPECT_OK(cuCtxDestroy(context));
        EXPECT_EQUAL(calls, i + 1);
        if (i % 2 == 0)
            EXPECT_OK(cuGraphExecDestroy(exec));
        EXPECT_OK(cuGraphDestroy(graph));
    }
    check_start();
    for (int i = 0; i < 10; i++)
        EXPECT_OK(cuMemFree(memory[i]));
    EXPECT_OK(cuDeviceGraphMemTrim(0));
    EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    EXPECT_EQUAL(reserved, 0);
    EXPECT_OK(cuMemAlloc(&memory[0], MIB)); /* no capture is left to forbid it */
}

TEST(a_joined_stream_may_go_before_the_capture_ends)
{
    CUdeviceptr memory;
    int calls = 0;
    check_start();
    CUstream stream = a_stream();
    run(instantiated(captured_fork(stream, MIB, 1, &calls, &memory)), stream);
    CUstream side = a_stream();
    CUevent fork = an_event(), join = an_event();
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_OK(cuEventRecord(fork, stream));
    EXPECT_OK(cuStreamWaitEvent(side, fork, 0));
    EXPECT_OK(cuLaunchHostFunc(side, count, &calls));
    EXPECT_OK(cuEventRecord(join, side));
    EXPECT_OK(cuStreamWaitEvent(stream, join, 0));
    EXPECT_OK(cuStreamDestroy(side));
    run(instantiated(ended(stream, 1)), stream);
    EXPECT_EQUAL(calls, 2);
}

TEST(external_flags_are_for_captures)
{
    check_start();
    CUstream stream = a_stream();
    CUevent event = an_event();
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_CODE(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
}

TEST(attaching_managed_memory_cannot_be_captured)
{
    CUdeviceptr memory;
    check_start();
    EXPECT_OK(cuMemAllocManaged(&memory, MIB, CU_MEM_ATTACH_GLOBAL));
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(cuStreamAttachMemAsync(stream, memory, 0, CU_MEM_ATTACH_SINGLE) != CUDA_SUCCESS);
    expect_broken(stream);
}

static void called_back(CUstream stream, CUresult result, void *data)
{
    (void)stream;
    (void)result;
    (void)data;
}

TEST(callbacks_cannot_be_captured)
{
    check_start();
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(cuStreamAddCallback(stream, called_back, NULL, 0) != CUDA_SUCCESS);
    expect_broken(stream);
}

TEST(a_graph_that_copies_freed_managed_memory_is_an_illegal_address)
{
    CUgraph graph;
    CUdeviceptr managed, memory;
    check_start();
    ONLY_ON_THE_SOFTWARE_GPU(); /* what a driver does with it depends on what lies there now */
    EXPECT_OK(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    EXPECT_OK(cuMemAlloc(&memory, MIB));
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_OK(cuMemcpyAsync(memory, managed, MIB, stream));
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = instantiated(graph);
    EXPECT_OK(cuGraphLaunch(exec, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuMemFree(managed));
    EXPECT_OK(cuGraphLaunch(exec, stream));
    EXPECT_CODE(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}
