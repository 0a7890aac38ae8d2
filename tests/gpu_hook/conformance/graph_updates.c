/* Changes of executable graphs, forms of instantiation, and user objects. */
#include <unistd.h>

#include "graphs.h"

/* Two fills of `a`, one after the other; *last is the later. */
static CUgraph two_fills(CUdeviceptr a, uint32_t first, uint32_t second, CUgraphNode *last)
{
    CUgraph graph;
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS kernel = fill_kernel(a, first);
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &kernel));
    kernel = fill_kernel(a, second);
    EXPECT_OK(cuGraphAddKernelNode(last, graph, &node, 1, &kernel));
    return graph;
}

TEST(an_exec_takes_new_parameters_and_the_graph_keeps_its_own)
{
    CUgraphNode last;
    CUDA_KERNEL_NODE_PARAMS asked;
    check_start();
    CUdeviceptr a = some_memory();
    CUgraph graph = two_fills(a, 1, 2, &last);
    CUgraphExec exec = instantiated(graph);
    CUDA_KERNEL_NODE_PARAMS kernel = fill_kernel(a, 30);
    EXPECT_OK(cuGraphExecKernelNodeSetParams(exec, last, &kernel));
    run(exec, a_stream());
    EXPECT_EQUAL(word_of(a), 30);
    EXPECT_OK(cuGraphKernelNodeGetParams(last, &asked));
    EXPECT_EQUAL(*(uint32_t *)asked.kernelParams[1], 2);
}

TEST(an_exec_takes_new_copies_fills_and_calls)
{
    CUgraph graph;
    CUgraphNode copy, set, host;
    CUcontext context = check_start();
    CUdeviceptr a = some_memory(), b = some_memory(), c = some_memory();
    int counters[2] = {0, 0};
    CUDA_MEMSET_NODE_PARAMS fill = set_words(a, 1);
    CUDA_MEMCPY3D move = line(b, a, WORDS * 4);
    CUDA_HOST_NODE_PARAMS call = {count, &counters[0]};
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddMemsetNode(&set, graph, NULL, 0, &fill, context));
    EXPECT_OK(cuGraphAddMemcpyNode(&copy, graph, &set, 1, &move, context));
    EXPECT_OK(cuGraphAddHostNode(&host, graph, &copy, 1, &call));
    CUgraphExec exec = instantiated(graph);
    fill.value = 4;
    move.dstDevice = c;
    call.userData = &counters[1];
    EXPECT_OK(cuGraphExecMemsetNodeSetParams(exec, set, &fill, context));
    EXPECT_OK(cuGraphExecMemcpyNodeSetParams(exec, copy, &move, context));
    EXPECT_OK(cuGraphExecHostNodeSetParams(exec, host, &call));
    EXPECT_CODE(cuGraphExecHostNodeSetParams(exec, copy, &call), CUDA_ERROR_INVALID_VALUE);
    run(exec, a_stream());
    EXPECT_EQUAL(word_of(b), 0);
    EXPECT_EQUAL(word_of(c), 4);
    EXPECT(counters[0] == 0 && counters[1] == 1);
}

TEST(an_exec_is_updated_from_a_graph_of_the_same_shape)
{
    CUgraphNode last;
    CUgraphExecUpdateResultInfo info;
    check_start();
    CUdeviceptr a = some_memory();
    CUgraphExec exec = instantiated(two_fills(a, 1, 2, &last));
    EXPECT_OK(cuGraphExecUpdate(exec, two_fills(a, 3, 4, &last), &info));
    EXPECT_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run(exec, a_stream());
    EXPECT_EQUAL(word_of(a), 4);
}

TEST(another_shape_is_no_update)
{
    CUgraphNode last, node;
    CUgraphExecUpdateResultInfo info;
    check_start();
    CUdeviceptr a = some_memory();
    CUgraph graph = two_fills(a, 1, 2, &last);
    CUgraphExec exec = instantiated(graph);
    EXPECT_OK(cuGraphAddEmptyNode(&node, graph, &last, 1));
    EXPECT_CODE(cuGraphExecUpdate(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    EXPECT_CODE(cuGraphExecUpdate(exec, NULL, &info), CUDA_ERROR_INVALID_VALUE);
    run(exec, a_stream());
    EXPECT_EQUAL(word_of(a), 2);
}

TEST(another_type_of_node_is_no_update)
{
    CUgraph graph;
    CUgraphNode last, first, second;
    CUgraphExecUpdateResultInfo info;
    CUcontext context = check_start();
    CUdeviceptr a = some_memory();
    CUgraphExec exec = instantiated(two_fills(a, 1, 2, &last));
    CUDA_KERNEL_NODE_PARAMS kernel = fill_kernel(a, 1);
    CUDA_MEMSET_NODE_PARAMS set = set_words(a, 1);
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddKernelNode(&first, graph, NULL, 0, &kernel));
    EXPECT_OK(cuGraphAddMemsetNode(&second, graph, &first, 1, &set, context));
    EXPECT_CODE(cuGraphExecUpdate(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    EXPECT(info.errorNode == second);
}

TEST(a_disabled_node_does_nothing_until_it_is_enabled)
{
    CUgraphNode last, empty;
    unsigned is_enabled;
    check_start();
    CUdeviceptr a = some_memory();
    CUgraph graph = two_fills(a, 1, 2, &last);
    EXPECT_OK(cuGraphAddEmptyNode(&empty, graph, NULL, 0));
    CUgraphExec exec = instantiated(graph);
    EXPECT_OK(cuGraphNodeSetEnabled(exec, last, 0));
    EXPECT_OK(cuGraphNodeGetEnabled(exec, last, &is_enabled));
    EXPECT_EQUAL(is_enabled, 0);
    run(exec, a_stream());
    EXPECT_EQUAL(word_of(a), 1);
    EXPECT_OK(cuGraphNodeSetEnabled(exec, last, 1));
    run(exec, a_stream());
    EXPECT_EQUAL(word_of(a), 2);
    EXPECT_CODE(cuGraphNodeSetEnabled(exec, empty, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(every_form_of_instantiation_works)
{
    CUgraphNode last, error_node;
    CUgraphExec execs[3];
    char log[64];
    cuuint64_t flags;
    CUresult (*first_form)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
    CUdriverProcAddressQueryResult status;
    check_start();
    CUdeviceptr a = some_memory();
    CUstream stream = a_stream();
    CUgraph graph = two_fills(a, 1, 2, &last);
    EXPECT_OK(cuGetProcAddress("cuGraphInstantiate", (void **)&first_form, 10000, 0, &status));
    EXPECT_OK(first_form(&execs[0], graph, &error_node, log, sizeof log));
    EXPECT_OK(cuGraphInstantiateWithFlags(&execs[1], graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, .hUploadStream = stream};
    EXPECT_OK(cuGraphInstantiateWithParams(&execs[2], graph, &params));
    EXPECT_EQUAL(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    EXPECT_OK(cuGraphExecGetFlags(execs[1], &flags));
    EXPECT_EQUAL(flags, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
    EXPECT_OK(cuGraphExecGetFlags(execs[2], &flags));
    EXPECT_EQUAL(flags, 0);
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(cuMemsetD32(a, 0, WORDS));
        EXPECT_OK(cuGraphUpload(execs[i], stream));
        run(execs[i], stream);
        EXPECT_EQUAL(word_of(a), 2);
    }
    EXPECT_CODE(cuGraphInstantiate(&execs[0], graph, 1 << 20), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphInstantiate(&execs[0], NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(an_exec_destroyed_while_it_runs_runs_to_its_end)
{
    CUgraph graph;
    CUgraphNode spin, host;
    check_start();
    int counter = 0;
    CUstream stream = a_stream();
    CUDA_KERNEL_NODE_PARAMS kernel = spin_kernel(20000000);
    CUDA_HOST_NODE_PARAMS call = {count, &counter};
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddKernelNode(&spin, graph, NULL, 0, &kernel));
    EXPECT_OK(cuGraphAddHostNode(&host, graph, &spin, 1, &call));
    CUgraphExec exec = instantiated(graph);
    EXPECT_OK(cuGraphLaunch(exec, stream));
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(counter, 1);
}

TEST(event_nodes_record_and_wait)
{
    CUgraph graph;
    CUgraphNode spin, record, wait;
    CUevent start, passed, asked;
    float milliseconds;
    check_start();
    CUstream stream = a_stream();
    CUDA_KERNEL_NODE_PARAMS kernel = spin_kernel(2000000);
    EXPECT_OK(cuEventCreate(&start, 0));
    EXPECT_OK(cuEventCreate(&passed, 0));
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddEventWaitNode(&wait, graph, NULL, 0, start));
    EXPECT_OK(cuGraphAddKernelNode(&spin, graph, &wait, 1, &kernel));
    EXPECT_OK(cuGraphAddEventRecordNode(&record, graph, &spin, 1, passed));
    EXPECT_OK(cuGraphEventRecordNodeGetEvent(record, &asked));
    EXPECT(asked == passed);
    EXPECT_OK(cuGraphEventWaitNodeGetEvent(wait, &asked));
    EXPECT(asked == start);
    CUgraphExec exec = instantiated(graph);
    EXPECT_OK(cuEventRecord(start, stream));
    run(exec, stream);
    EXPECT_OK(cuEventElapsedTime(&milliseconds, start, passed));
    EXPECT(milliseconds >= 2.0f);
    EXPECT_CODE(cuGraphEventRecordNodeGetEvent(spin, &asked), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_user_object_lives_as_long_as_anything_keeps_it)
{
    CUgraph graph;
    CUuserObject object;
    check_start();
    int counter = 0;
    EXPECT_OK(cuUserObjectCreate(&object, &counter, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    EXPECT_OK(cuUserObjectRetain(object, 2));
    EXPECT_OK(cuUserObjectRelease(object, 2));
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CUgraphExec exec = instantiated(graph);
    EXPECT_OK(cuGraphDestroy(graph));
    run(exec, a_stream());
    EXPECT_EQUAL(__atomic_load_n(&counter, __ATOMIC_SEQ_CST), 0);
    EXPECT_OK(cuGraphExecDestroy(exec));
    for (int i = 0; i < 10000 && !__atomic_load_n(&counter, __ATOMIC_SEQ_CST); i++)
        usleep(1000); /* a thread of the driver's calls it */
    EXPECT_EQUAL(counter, 1);
}

TEST(a_user_object_needs_its_flag_and_a_count)
{
    CUuserObject object;
    CUgraph graph;
    check_start();
    EXPECT_CODE(cuUserObjectCreate(&object, NULL, count, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuUserObjectCreate(&object, NULL, NULL, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
                CUDA_ERROR_INVALID_VALUE);
    int counter = 0;
    EXPECT_OK(cuUserObjectCreate(&object, &counter, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    EXPECT_CODE(cuUserObjectRetain(object, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGraphCreate(&graph, 0));
    if (check_is_software()) /* a reference that the graph does not hold */
        EXPECT_CODE(cuGraphReleaseUserObject(graph, object, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGraphRetainUserObject(graph, object, 1, 0));
    EXPECT_OK(cuGraphReleaseUserObject(graph, object, 1));
}

TEST(handles_that_are_gone_are_invalid)
{
    CUgraphNode last;
    CUgraphNodeType type;
    check_start();
    CUgraph graph = two_fills(some_memory(), 1, 2, &last);
    CUgraphExec exec = instantiated(graph);
    EXPECT_OK(cuGraphExecDestroy(exec));
    ONLY_ON_THE_SOFTWARE_GPU();
    EXPECT_CODE(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphLaunch(exec, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT_CODE(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphNodeGetType(last, &type), CUDA_ERROR_INVALID_VALUE);
}
