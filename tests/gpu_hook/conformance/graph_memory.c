/* Memory nodes: addresses fixed at creation, memory at launch, reserved until trimmed; which calls may free it, and when. */
#include "graphs.h"

#define BIG (64 * MIB)

static cuuint64_t attribute(CUgraphMem_attribute which)
{
    cuuint64_t value;
    EXPECT_OK(cuDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

static cuuint64_t reserved(void)
{
    return attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
}

static CUDA_MEM_ALLOC_NODE_PARAMS allocation(size_t bytes)
{
    return (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = bytes};
}

static CUgraph new_graph(void)
{
    CUgraph graph;
    EXPECT_OK(cuGraphCreate(&graph, 0));
    return graph;
}

static CUdeviceptr add_allocation(CUgraph graph, size_t bytes, CUgraphNode *node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = allocation(bytes);
    EXPECT_OK(cuGraphAddMemAllocNode(node, graph, NULL, 0, &params));
    EXPECT(params.dptr != 0);
    return params.dptr;
}

/* Allocates, fills all of it with `value`, copies the first words to `out` (unless 0), frees it when `frees`. */
static CUgraph a_graph(size_t bytes, uint32_t value, CUdeviceptr out, int frees, CUdeviceptr *made)
{
    CUgraphNode node, set;
    CUcontext context;
    CUgraph graph = new_graph();
    EXPECT_OK(cuCtxGetCurrent(&context));
    CUdeviceptr memory = add_allocation(graph, bytes, &node);
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = memory, .value = value, .elementSize = 4, .width = WORDS, .height = 1};
    EXPECT_OK(cuGraphAddMemsetNode(&set, graph, &node, 1, &fill, context));
    if (out) {
        CUDA_MEMCPY3D copy = line(out, memory, WORDS * 4);
        EXPECT_OK(cuGraphAddMemcpyNode(&set, graph, &set, 1, &copy, context));
    }
    if (frees)
        EXPECT_OK(cuGraphAddMemFreeNode(&node, graph, &set, 1, memory));
    if (made)
        *made = memory;
    return graph;
}

TEST(a_graph_uses_memory_of_its_own)
{
    check_start();
    CUdeviceptr out = some_memory();
    CUgraphExec exec = instantiated(a_graph(MIB, 42, out, 1, NULL));
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(cuMemsetD32(out, 0, WORDS));
        run(exec, a_stream());
        EXPECT_EQUAL(word_of(out), 42);
    }
}

TEST(memory_is_reserved_by_the_launch_and_given_back_by_a_trim)
{
    size_t before, during, after, total;
    check_start();
    CUstream stream = a_stream();
    EXPECT_OK(cuMemGetInfo(&before, &total));
    CUgraphExec exec = instantiated(a_graph(BIG, 1, 0, 1, NULL));
    EXPECT_EQUAL(reserved(), 0);
    run(exec, stream);
    EXPECT(reserved() >= BIG);
    EXPECT_OK(cuMemGetInfo(&during, &total));
    EXPECT(before - during >= BIG);
    cuuint64_t once = reserved();
    run(exec, stream);
    EXPECT_EQUAL(reserved(), once);
    EXPECT_OK(cuDeviceGraphMemTrim(0));
    EXPECT_EQUAL(reserved(), 0);
    EXPECT_OK(cuMemGetInfo(&after, &total));
    EXPECT(after - during >= BIG);
    EXPECT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) >= BIG);
    EXPECT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) >= BIG);
    run(exec, stream);
    EXPECT(reserved() >= BIG);
}

TEST(graphs_that_follow_each_other_share_memory)
{
    check_start();
    CUstream stream = a_stream();
    CUgraphExec execs[4];
    for (int i = 0; i < 4; i++)
        execs[i] = instantiated(a_graph(BIG, 1, 0, 1, NULL));
    EXPECT_OK(cuGraphLaunch(execs[0], stream));
    cuuint64_t once = reserved();
    for (int i = 1; i < 4; i++)
        EXPECT_OK(cuGraphLaunch(execs[i], stream));
    EXPECT_EQUAL(reserved(), once);
    EXPECT_OK(cuStreamSynchronize(stream));
}

TEST(graphs_that_run_side_by_side_do_not)
{
    check_start();
    CUstream streams[2] = {a_stream(), a_stream()};
    CUgraphNode nodes[2], spin, end;
    CUDA_KERNEL_NODE_PARAMS kernel = spin_kernel(50000000);
    for (int i = 0; i < 2; i++) {
        CUgraph graph = new_graph();
        CUdeviceptr memory = add_allocation(graph, BIG, &nodes[i]);
        EXPECT_OK(cuGraphAddKernelNode(&spin, graph, &nodes[i], 1, &kernel));
        EXPECT_OK(cuGraphAddMemFreeNode(&end, graph, &spin, 1, memory));
        EXPECT_OK(cuGraphLaunch(instantiated(graph), streams[i]));
    }
    EXPECT(reserved() >= 2 * BIG);
    for (int i = 0; i < 2; i++)
        EXPECT_OK(cuStreamSynchronize(streams[i]));
}

TEST(what_a_graph_leaves_is_used_and_freed_by_others)
{
    CUdeviceptr memory;
    CUgraphNode node;
    uint32_t words[WORDS];
    check_start();
    CUstream stream = a_stream();
    CUgraphExec exec = instantiated(a_graph(MIB, 9, 0, 0, &memory));
    for (int way = 0; way < 3; way++) {
        run(exec, stream);
        EXPECT_OK(cuMemcpyDtoH(words, memory, sizeof words));
        EXPECT_EQUAL(words[WORDS - 1], 9);
        EXPECT_CODE(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE); /* not freed yet */
        if (way == 0) {
            EXPECT_OK(cuMemFreeAsync(memory, stream));
        } else if (way == 1) {
            EXPECT_OK(cuMemFree(memory));
        } else {
            CUgraph other = new_graph();
            EXPECT_OK(cuGraphAddMemFreeNode(&node, other, NULL, 0, memory));
            EXPECT_OK(cuGraphLaunch(instantiated(other), stream));
        }
    }
    EXPECT_OK(cuGraphLaunch(exec, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
}

TEST(unfreed_memory_stays_through_a_trim)
{
    CUdeviceptr memory;
    check_start();
    run(instantiated(a_graph(BIG, 9, 0, 0, &memory)), a_stream());
    EXPECT_OK(cuDeviceGraphMemTrim(0));
    EXPECT(reserved() >= BIG);
    EXPECT_OK(cuMemFree(memory));
    EXPECT(reserved() >= BIG);
    EXPECT_OK(cuDeviceGraphMemTrim(0));
    EXPECT_EQUAL(reserved(), 0);
    EXPECT_CODE(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
}

TEST(an_exec_can_free_what_it_left_when_it_is_launched_again)
{
    CUgraphExec exec;
    CUdeviceptr memory;
    check_start();
    CUdeviceptr out = some_memory();
    CUgraph graph = a_graph(MIB, 3, out, 0, &memory);
    EXPECT_OK(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    CUstream streams[2] = {a_stream(), a_stream()};
    for (int i = 0; i < 6; i++)
        EXPECT_OK(cuGraphLaunch(exec, streams[i % 2]));
    for (int i = 0; i < 2; i++)
        EXPECT_OK(cuStreamSynchronize(streams[i]));
    EXPECT_EQUAL(word_of(out), 3);
    EXPECT_EQUAL(word_of(memory), 3);
    EXPECT_OK(cuMemFree(memory));
}

TEST(an_allocation_is_freed_once_and_in_one_place)
{
    CUdeviceptr inside, outside;
    CUgraphNode node, again;
    check_start();
    CUgraph graph = new_graph(), other = new_graph();
    inside = add_allocation(graph, MIB, &node);
    outside = add_allocation(graph, MIB, &node);
    EXPECT_OK(cuGraphAddMemFreeNode(&node, graph, &node, 1, inside));
    EXPECT_CODE(cuGraphAddMemFreeNode(&again, graph, &node, 1, inside), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGraphAddMemFreeNode(&again, other, NULL, 0, outside));
    EXPECT_CODE(cuGraphAddMemFreeNode(&again, graph, &node, 1, some_memory()), CUDA_ERROR_INVALID_VALUE);
    ONLY_ON_THE_SOFTWARE_GPU(); /* a driver looks at one graph */
    EXPECT_CODE(cuGraphAddMemFreeNode(&again, other, NULL, 0, inside), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphAddMemFreeNode(&again, graph, &node, 1, outside), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemFree(outside), CUDA_ERROR_INVALID_VALUE); /* no launch has made it */
}

TEST(memory_nodes_fix_their_graph)
{
    CUgraphNode node, set, child;
    CUgraph clone;
    CUgraphExec second;
    CUcontext context = check_start();
    CUgraph graph = new_graph(), outer = new_graph();
    CUdeviceptr memory = add_allocation(graph, MIB, &node);
    CUDA_MEMSET_NODE_PARAMS fill = set_words(memory, 1);
    EXPECT_OK(cuGraphAddMemsetNode(&set, graph, &node, 1, &fill, context));
    EXPECT(cuGraphClone(&clone, graph) != CUDA_SUCCESS);
    EXPECT(cuGraphAddChildGraphNode(&child, outer, NULL, 0, graph) != CUDA_SUCCESS);
    EXPECT(cuGraphDestroyNode(set) != CUDA_SUCCESS);
    EXPECT(cuGraphRemoveDependencies(graph, &node, &set, NULL, 1) != CUDA_SUCCESS);
    CUgraphExec exec = instantiated(graph);
    EXPECT(cuGraphInstantiate(&second, graph, 0) != CUDA_SUCCESS);
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_OK(cuGraphInstantiate(&second, graph, 0));
}

TEST(memory_nodes_tell_what_they_are)
{
    CUgraphNode node, end;
    CUdeviceptr freed;
    CUDA_MEM_ALLOC_NODE_PARAMS asked;
    check_start();
    CUgraph graph = new_graph();
    CUdeviceptr memory = add_allocation(graph, 3 * MIB, &node);
    EXPECT_OK(cuGraphAddMemFreeNode(&end, graph, &node, 1, memory));
    EXPECT_OK(cuGraphMemAllocNodeGetParams(node, &asked));
    EXPECT(asked.dptr == memory && asked.bytesize == 3 * MIB && asked.poolProps.location.id == 0);
    EXPECT_OK(cuGraphMemFreeNodeGetParams(end, &freed));
    EXPECT(freed == memory);
    EXPECT_CODE(cuGraphMemFreeNodeGetParams(node, &freed), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphMemAllocNodeGetParams(end, &asked), CUDA_ERROR_INVALID_VALUE);
}

TEST(an_allocation_node_needs_a_size_and_a_device)
{
    CUgraphNode node;
    check_start();
    CUgraph graph = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS params = allocation(0);
    EXPECT_CODE(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    params = allocation(MIB);
    params.poolProps.location.id = 99;
    EXPECT(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params) != CUDA_SUCCESS);
    params = allocation(MIB);
    params.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params) != CUDA_SUCCESS);
    EXPECT_CODE(cuGraphAddMemAllocNode(&node, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(stream_ordered_memory_is_captured_as_nodes)
{
    CUgraph graph;
    CUgraphNode nodes[8];
    CUgraphNodeType type;
    CUdeviceptr memory;
    size_t count = 8;
    check_start();
    CUdeviceptr out = some_memory();
    CUstream stream = a_stream();
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_OK(cuMemAllocAsync(&memory, MIB, stream));
    EXPECT_OK(cuMemsetD32Async(memory, 12, WORDS, stream));
    EXPECT_OK(cuMemcpyDtoDAsync(out, memory, WORDS * 4, stream));
    EXPECT_OK(cuMemFreeAsync(memory, stream));
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    EXPECT_OK(cuGraphGetNodes(graph, nodes, &count));
    EXPECT_EQUAL(count, 4);
    EXPECT_OK(cuGraphNodeGetType(nodes[0], &type));
    EXPECT_EQUAL(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    EXPECT_OK(cuGraphNodeGetType(nodes[3], &type));
    EXPECT_EQUAL(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
    CUgraphExec exec = instantiated(graph);
    run(exec, stream);
    run(exec, stream);
    EXPECT_EQUAL(word_of(out), 12);
}

TEST(a_launch_without_room_is_out_of_memory)
{
    size_t free_bytes, total;
    CUdeviceptr filler, memory;
    check_start();
    if (!check_is_software())
        SKIP("would fill the device");
    CUgraphExec exec = instantiated(a_graph(BIG, 1, 0, 0, &memory));
    EXPECT_OK(cuMemGetInfo(&free_bytes, &total));
    EXPECT_OK(cuMemAlloc(&filler, free_bytes - BIG / 2));
    CUstream stream = a_stream();
    EXPECT_CODE(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQUAL(reserved(), 0);
    EXPECT_OK(cuMemFree(filler));
    run(exec, stream);
    EXPECT_EQUAL(word_of(memory), 1);
}

TEST(memory_outlives_its_graph_until_it_is_freed)
{
    CUdeviceptr memory;
    check_start();
    CUgraph graph = a_graph(MIB, 5, 0, 0, &memory);
    CUgraphExec exec = instantiated(graph);
    run(exec, a_stream());
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT_EQUAL(word_of(memory), 5);
    EXPECT_OK(cuMemFree(memory));
    EXPECT_OK(cuDeviceGraphMemTrim(0));
    EXPECT_EQUAL(reserved(), 0);
}

TEST(high_marks_can_only_be_reset)
{
    cuuint64_t zero = 0, one = 1;
    check_start();
    run(instantiated(a_graph(BIG, 5, 0, 1, NULL)), a_stream());
    EXPECT_OK(cuDeviceGraphMemTrim(0));
    EXPECT_OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
    EXPECT_OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
    EXPECT_EQUAL(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 0);
    EXPECT(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &one) != CUDA_SUCCESS);
    EXPECT(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &zero) != CUDA_SUCCESS);
    EXPECT_CODE(cuDeviceGraphMemTrim(99), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDeviceGetGraphMemAttribute(99, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero), CUDA_ERROR_INVALID_DEVICE);
}

TEST(an_upload_takes_the_memory_ahead)
{
    check_start();
    CUstream stream = a_stream();
    CUgraphExec exec = instantiated(a_graph(BIG, 5, 0, 1, NULL));
    EXPECT_OK(cuGraphUpload(exec, stream));
    EXPECT(reserved() >= BIG);
    cuuint64_t once = reserved();
    run(exec, stream);
    EXPECT_EQUAL(reserved(), once);
}
