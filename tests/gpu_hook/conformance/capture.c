/* Stream capture: what is put into a captured stream becomes a graph, across streams by events; and what is forbidden
 * meanwhile. */
#include <pthread.h>

#include "capture.h"

TEST(captured_work_runs_when_the_graph_does)
{
    check_start();
    int counter = 0;
    CUdeviceptr a = some_memory(), b = some_memory();
    check_builtin("aliquot_fill");
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_EQUAL(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    launch_fill(a, 6, stream);
    EXPECT_OK(cuMemcpyDtoDAsync(b, a, WORDS * 4, stream));
    EXPECT_OK(cuMemsetD32Async(a, 1, WORDS, stream));
    EXPECT_OK(cuLaunchHostFunc(stream, count, &counter));
    CUgraph graph = ended(stream, 4);
    EXPECT_EQUAL(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQUAL(word_of(a), 0);
    EXPECT_EQUAL(counter, 0);
    CUgraphExec exec = instantiated(graph);
    run(exec, stream);
    EXPECT(word_of(a) == 1 && word_of(b) == 6 && counter == 1);
    size_t edges, roots;
    EXPECT_OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    EXPECT_OK(cuGraphGetRootNodes(graph, NULL, &roots));
    EXPECT(edges == 3 && roots == 1);
}

TEST(events_fork_and_join_a_capture)
{
    check_start();
    CUdeviceptr a = some_memory(), b = some_memory();
    CUevent fork = an_event(), join = an_event();
    CUstream side = a_stream(), stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cuMemsetD32Async(a, 1, WORDS, stream));
    EXPECT_OK(cuEventRecord(fork, stream));
    EXPECT_OK(cuStreamWaitEvent(side, fork, 0));
    EXPECT_EQUAL(status_of(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_OK(cuMemcpyDtoDAsync(b, a, WORDS * 4, side));
    EXPECT_OK(cuEventRecord(join, side));
    EXPECT_OK(cuStreamWaitEvent(stream, join, 0));
    EXPECT_OK(cuMemsetD32Async(a, 2, WORDS, stream));
    CUgraph graph = ended(stream, 3);
    EXPECT_EQUAL(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
    run(instantiated(graph), stream);
    EXPECT(word_of(a) == 2 && word_of(b) == 1);
}

TEST(a_fork_that_is_not_joined_ends_the_capture_without_a_graph)
{
    CUgraph graph;
    check_start();
    CUdeviceptr a = some_memory();
    CUevent fork = an_event();
    CUstream side = a_stream(), stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cuEventRecord(fork, stream));
    EXPECT_OK(cuStreamWaitEvent(side, fork, 0));
    EXPECT_OK(cuMemsetD32Async(a, 1, WORDS, side));
    EXPECT_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    EXPECT_EQUAL(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQUAL(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST(only_the_stream_that_began_a_capture_ends_it)
{
    CUgraph graph;
    check_start();
    CUevent fork = an_event();
    CUstream side = a_stream(), stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cuEventRecord(fork, stream));
    EXPECT_OK(cuStreamWaitEvent(side, fork, 0));
    EXPECT_CODE(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
}

TEST(a_capture_cannot_begin_twice_nor_end_unbegun)
{
    CUgraph graph;
    check_start();
    CUstream stream = a_stream();
    EXPECT_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_CODE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    ended(stream, 0);
    EXPECT_CODE(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL),
                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_CODE(cuStreamBeginCapture(stream, (CUstreamCaptureMode)9), CUDA_ERROR_INVALID_VALUE);
}

TEST(waiting_for_a_captured_stream_breaks_the_capture)
{
    check_start();
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_CODE(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_broken(stream);
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CODE(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_broken(stream);
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CODE(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_broken(stream);
}

TEST(a_broken_capture_takes_nothing_more)
{
    check_start();
    CUdeviceptr a = some_memory();
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_CODE(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_CODE(cuMemsetD32Async(a, 1, WORDS, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect_broken(stream);
}

TEST(a_captured_event_cannot_be_asked)
{
    check_start();
    CUevent event = an_event();
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_CODE(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    expect_broken(stream);
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_OK(cuEventSynchronize(event));
}

TEST(waiting_for_what_was_not_captured_breaks_the_capture)
{
    check_start();
    CUevent event = an_event();
    EXPECT_OK(cuEventRecord(event, a_stream()));
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_CODE(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    expect_broken(stream);
}

TEST(two_captures_do_not_merge)
{
    check_start();
    CUevent event = an_event();
    CUstream one = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL), two = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cuEventRecord(event, one));
    EXPECT_CODE(cuStreamWaitEvent(two, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    expect_broken(two);
}

TEST(the_legacy_stream_stands_for_captured_blocking_streams)
{
    CUstream stream;
    CUstreamCaptureStatus status;
    check_start();
    CUdeviceptr a = some_memory();
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CODE(cuStreamIsCapturing(CU_STREAM_LEGACY, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQUAL(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_CODE(cuMemsetD32Async(a, 1, WORDS, CU_STREAM_LEGACY), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_broken(stream);
}

TEST(other_streams_go_on_during_a_capture)
{
    check_start();
    CUdeviceptr a = some_memory();
    CUstream other = a_stream(), stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_OK(cuMemsetD32Async(a, 4, WORDS, other));
    EXPECT_OK(cuStreamSynchronize(other));
    ended(stream, 0);
    EXPECT_EQUAL(word_of(a), 4);
}

TEST(allocating_breaks_a_capture_unless_the_thread_is_relaxed)
{
    CUdeviceptr pointer;
    check_start();
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQUAL(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cuMemAlloc(&pointer, MIB));
    EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQUAL(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQUAL(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_CODE(cuMemAlloc(&pointer, MIB), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_broken(stream);
    mode = (CUstreamCaptureMode)9;
    EXPECT_CODE(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
}

struct elsewhere {
    CUcontext context;
    CUstream stream;
    CUresult allocated, ended;
};

static void *allocate_elsewhere(void *argument)
{
    struct elsewhere *there = argument;
    CUdeviceptr pointer;
    CUgraph graph;
    EXPECT_OK(cuCtxSetCurrent(there->context));
    there->allocated = cuMemAlloc(&pointer, MIB);
    there->ended = cuStreamEndCapture(there->stream, &graph);
    return NULL;
}

static struct elsewhere try_elsewhere(CUstreamCaptureMode mode)
{
    struct elsewhere there = {.context = check_start()};
    pthread_t thread;
    there.stream = capturing(mode);
    EXPECT_EQUAL(pthread_create(&thread, NULL, allocate_elsewhere, &there), 0);
    pthread_join(thread, NULL);
    return there;
}

TEST(a_global_capture_binds_other_threads)
{
    struct elsewhere there = try_elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_EQUAL(there.allocated, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQUAL(there.ended, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    expect_broken(there.stream);
}

TEST(a_thread_local_capture_leaves_other_threads_alone)
{
    struct elsewhere there = try_elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    EXPECT_EQUAL(there.allocated, CUDA_SUCCESS);
    EXPECT_EQUAL(there.ended, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    ended(there.stream, 0);
}

TEST(a_relaxed_capture_ends_in_any_thread)
{
    struct elsewhere there = try_elsewhere(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQUAL(there.allocated, CUDA_SUCCESS);
    EXPECT_EQUAL(there.ended, CUDA_SUCCESS);
}

TEST(a_capture_tells_what_comes_next)
{
    CUstreamCaptureStatus status;
    cuuint64_t id = 0, id_again;
    CUgraph graph;
    const CUgraphNode *front;
    size_t count;
    CUgraphNode empty;
    check_start();
    CUdeviceptr a = some_memory();
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &front, NULL, &count));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && count == 0);
    EXPECT_OK(cuMemsetD32Async(a, 1, WORDS, stream));
    EXPECT_OK(cuStreamGetCaptureInfo(stream, &status, &id_again, &graph, &front, NULL, &count));
    EXPECT(id_again == id && count == 1);
    EXPECT_OK(cuGraphAddEmptyNode(&empty, graph, front, count));
    EXPECT_OK(cuStreamUpdateCaptureDependencies(stream, &empty, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    EXPECT_OK(cuMemsetD32Async(a, 2, WORDS, stream));
    CUgraph made = ended(stream, 3);
    EXPECT(made == graph);
    EXPECT_OK(cuGraphNodeGetDependentNodes(empty, NULL, NULL, &count));
    EXPECT_EQUAL(count, 1);
    EXPECT_CODE(cuStreamUpdateCaptureDependencies(stream, NULL, NULL, 0, 0), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_OK(cuStreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL, NULL));
    EXPECT_EQUAL(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST(a_capture_can_write_into_a_graph_that_is_there)
{
    CUgraph graph, made;
    CUgraphNode first;
    CUcontext context = check_start();
    CUdeviceptr a = some_memory(), b = some_memory();
    CUDA_MEMSET_NODE_PARAMS set = set_words(a, 7);
    CUstream stream = a_stream();
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddMemsetNode(&first, graph, NULL, 0, &set, context));
    EXPECT_OK(cuStreamBeginCaptureToGraph(stream, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_OK(cuMemcpyDtoDAsync(b, a, WORDS * 4, stream));
    EXPECT_OK(cuStreamEndCapture(stream, &made));
    EXPECT(made == graph);
    run(instantiated(graph), stream);
    EXPECT_EQUAL(word_of(b), 7);
}

TEST(external_events_are_nodes)
{
    CUgraph graph;
    CUgraphNode nodes[2];
    CUgraphNodeType type;
    size_t count = 2;
    check_start();
    CUevent event = an_event();
    EXPECT_OK(cuEventRecord(event, a_stream()));
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
    EXPECT_OK(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    graph = ended(stream, 2);
    EXPECT_OK(cuGraphGetNodes(graph, nodes, &count));
    EXPECT_OK(cuGraphNodeGetType(nodes[0], &type));
    EXPECT_EQUAL(type, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    EXPECT_OK(cuGraphNodeGetType(nodes[1], &type));
    EXPECT_EQUAL(type, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    run(instantiated(graph), stream);
    EXPECT_OK(cuEventQuery(event));
}

TEST(a_launched_graph_is_captured_as_a_child)
{
    CUgraph inner;
    CUgraphNode node;
    CUgraphNodeType type;
    size_t count = 1;
    check_start();
    CUdeviceptr a = some_memory();
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cuMemsetD32Async(a, 8, WORDS, stream));
    inner = ended(stream, 1);
    CUgraphExec exec = instantiated(inner);
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_OK(cuGraphLaunch(exec, stream));
    CUgraph outer = ended(stream, 1);
    EXPECT_OK(cuGraphGetNodes(outer, &node, &count));
    EXPECT_OK(cuGraphNodeGetType(node, &type));
    EXPECT_EQUAL(type, CU_GRAPH_NODE_TYPE_GRAPH);
    EXPECT_EQUAL(word_of(a), 0);
    run(instantiated(outer), stream);
    EXPECT_EQUAL(word_of(a), 8);
}
