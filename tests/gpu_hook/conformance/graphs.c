/* Graphs: nodes, edges, copies, instantiation, launches, and the errors of each. */
#include "graphs.h"

TEST(an_empty_graph_has_no_nodes_and_runs)
{
    CUgraph graph;
    size_t nodes = 7, roots = 7, edges = 7;
    check_start();
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphGetNodes(graph, NULL, &nodes));
    EXPECT_OK(cuGraphGetRootNodes(graph, NULL, &roots));
    EXPECT_OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    EXPECT_EQUAL(nodes + roots + edges, 0);
    CUgraphExec exec = instantiated(graph);
    run(exec, a_stream());
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_OK(cuGraphDestroy(graph));
}

TEST(a_graph_takes_no_flags_and_no_null)
{
    CUgraph graph;
    check_start();
    EXPECT_CODE(cuGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphDestroy(NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(nodes_run_in_the_order_of_their_edges)
{
    CUgraph graph;
    CUgraphNode fill, copy, set;
    CUcontext context = check_start();
    CUdeviceptr a = some_memory(), b = some_memory();
    CUDA_KERNEL_NODE_PARAMS kernel = fill_kernel(a, 5);
    CUDA_MEMCPY3D a_to_b = line(b, a, WORDS * 4);
    CUDA_MEMSET_NODE_PARAMS clear = set_words(a, 9);
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddKernelNode(&fill, graph, NULL, 0, &kernel));
    EXPECT_OK(cuGraphAddMemcpyNode(&copy, graph, &fill, 1, &a_to_b, context));
    EXPECT_OK(cuGraphAddMemsetNode(&set, graph, &copy, 1, &clear, context));
    CUgraphExec exec = instantiated(graph);
    EXPECT_EQUAL(word_of(b), 0);
    for (int i = 0; i < 3; i++) {
        run(exec, a_stream());
        EXPECT_EQUAL(word_of(a), 9);
        EXPECT_EQUAL(word_of(b), 5);
    }
}

TEST(an_exec_lives_without_its_graph)
{
    CUgraph graph;
    CUgraphNode fill;
    check_start();
    CUdeviceptr a = some_memory();
    CUDA_KERNEL_NODE_PARAMS kernel = fill_kernel(a, 5);
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddKernelNode(&fill, graph, NULL, 0, &kernel));
    CUgraphExec exec = instantiated(graph);
    EXPECT_OK(cuGraphDestroy(graph));
    run(exec, a_stream());
    EXPECT_EQUAL(word_of(a), 5);
}

TEST(a_cycle_is_refused_when_instantiated)
{
    CUgraph graph;
    CUgraphNode nodes[3];
    CUgraphExec exec;
    check_start();
    EXPECT_OK(cuGraphCreate(&graph, 0));
    for (int i = 0; i < 3; i++)
        EXPECT_OK(cuGraphAddEmptyNode(&nodes[i], graph, i ? &nodes[i - 1] : NULL, i > 0));
    EXPECT_OK(cuGraphAddDependencies(graph, &nodes[2], &nodes[0], NULL, 1));
    EXPECT_CODE(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 0};
    EXPECT_CODE(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQUAL(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    EXPECT_OK(cuGraphRemoveDependencies(graph, &nodes[2], &nodes[0], NULL, 1));
    EXPECT_OK(cuGraphInstantiate(&exec, graph, 0));
}

TEST(edges_are_told_and_can_be_taken_back)
{
    CUgraph graph;
    CUgraphNode a, b, c, from[4], to[4], found[4];
    size_t edges = 4, needs = 4, serves = 4;
    check_start();
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    EXPECT_OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
    EXPECT_OK(cuGraphAddEmptyNode(&c, graph, &a, 1));
    EXPECT_OK(cuGraphAddDependencies(graph, &b, &c, NULL, 1));
    EXPECT_OK(cuGraphGetEdges(graph, from, to, NULL, &edges));
    EXPECT_EQUAL(edges, 3);
    EXPECT(from[3] == NULL && to[3] == NULL);
    EXPECT_OK(cuGraphNodeGetDependencies(c, found, NULL, &needs));
    EXPECT_EQUAL(needs, 2);
    EXPECT_OK(cuGraphNodeGetDependentNodes(a, found, NULL, &serves));
    EXPECT_EQUAL(serves, 2);
    EXPECT_CODE(cuGraphAddDependencies(graph, &b, &c, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGraphRemoveDependencies(graph, &b, &c, NULL, 1));
    EXPECT_CODE(cuGraphRemoveDependencies(graph, &b, &c, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    edges = 1;
    EXPECT_OK(cuGraphGetEdges(graph, from, to, NULL, &edges));
    EXPECT_EQUAL(edges, 1);
    EXPECT_OK(cuGraphDestroyNode(a));
    EXPECT_OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    EXPECT_EQUAL(edges, 0);
    EXPECT_OK(cuGraphGetRootNodes(graph, NULL, &edges));
    EXPECT_EQUAL(edges, 2);
}

TEST(the_first_forms_of_edge_calls_still_answer)
{
    CUgraph graph;
    CUgraphNode a, b, from, to;
    size_t edges = 1;
    CUresult (*get_edges)(CUgraph, CUgraphNode *, CUgraphNode *, size_t *);
    CUresult (*add)(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
    CUdriverProcAddressQueryResult status;
    check_start();
    EXPECT_OK(cuGetProcAddress("cuGraphGetEdges", (void **)&get_edges, 10000, 0, &status));
    EXPECT_OK(cuGetProcAddress("cuGraphAddDependencies", (void **)&add, 10000, 0, &status));
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    EXPECT_OK(cuGraphAddEmptyNode(&b, graph, NULL, 0));
    EXPECT_OK(add(graph, &a, &b, 1));
    EXPECT_OK(get_edges(graph, &from, &to, &edges));
    EXPECT(edges == 1 && from == a && to == b);
}

TEST(a_dependency_must_be_in_the_graph_and_named_once)
{
    CUgraph graph, other;
    CUgraphNode a, stranger, made;
    check_start();
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphCreate(&other, 0));
    EXPECT_OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    EXPECT_OK(cuGraphAddEmptyNode(&stranger, other, NULL, 0));
    CUgraphNode twice[2] = {a, a};
    EXPECT_CODE(cuGraphAddEmptyNode(&made, graph, &stranger, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphAddEmptyNode(&made, graph, twice, 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphAddEmptyNode(&made, graph, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphAddEmptyNode(&made, NULL, NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(branches_run_and_join)
{
    CUgraph graph;
    CUgraphNode branches[8], end;
    CUcontext context = check_start();
    CUdeviceptr memory[8];
    int counter = 0;
    CUDA_HOST_NODE_PARAMS call = {count, &counter};
    EXPECT_OK(cuGraphCreate(&graph, 0));
    for (int i = 0; i < 8; i++) {
        memory[i] = some_memory();
        CUDA_MEMSET_NODE_PARAMS set = set_words(memory[i], (uint32_t)i + 1);
        EXPECT_OK(cuGraphAddMemsetNode(&branches[i], graph, NULL, 0, &set, context));
    }
    EXPECT_OK(cuGraphAddHostNode(&end, graph, branches, 8, &call));
    CUgraphExec exec = instantiated(graph);
    run(exec, a_stream());
    EXPECT_EQUAL(counter, 1);
    for (int i = 0; i < 8; i++)
        EXPECT_EQUAL(word_of(memory[i]), i + 1);
}

TEST(a_launch_takes_the_time_of_its_nodes)
{
    CUgraph graph;
    CUgraphNode first, second;
    CUevent start, end;
    float milliseconds;
    check_start();
    CUstream stream = a_stream();
    CUDA_KERNEL_NODE_PARAMS spin = spin_kernel(3000000);
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddKernelNode(&first, graph, NULL, 0, &spin));
    EXPECT_OK(cuGraphAddKernelNode(&second, graph, &first, 1, &spin));
    CUgraphExec exec = instantiated(graph);
    run(exec, stream);
    EXPECT_OK(cuEventCreate(&start, 0));
    EXPECT_OK(cuEventCreate(&end, 0));
    EXPECT_OK(cuEventRecord(start, stream));
    EXPECT_OK(cuGraphLaunch(exec, stream));
    EXPECT_OK(cuGraphLaunch(exec, a_stream())); /* behind the other, though in another stream */
    EXPECT_OK(cuGraphLaunch(exec, stream));
    EXPECT_OK(cuEventRecord(end, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuEventElapsedTime(&milliseconds, start, end));
    EXPECT(milliseconds >= 18.0f);
}

TEST(a_child_graph_runs_in_place)
{
    CUgraph graph, child, found;
    CUgraphNode inner, before, node, after;
    CUcontext context = check_start();
    CUdeviceptr a = some_memory(), b = some_memory(), c = some_memory();
    CUDA_MEMSET_NODE_PARAMS set = set_words(a, 3), late = set_words(a, 8);
    CUDA_MEMCPY3D a_to_b = line(b, a, WORDS * 4), b_to_c = line(c, b, WORDS * 4);
    EXPECT_OK(cuGraphCreate(&child, 0));
    EXPECT_OK(cuGraphAddMemcpyNode(&inner, child, NULL, 0, &a_to_b, context));
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddMemsetNode(&before, graph, NULL, 0, &set, context));
    EXPECT_OK(cuGraphAddChildGraphNode(&node, graph, &before, 1, child));
    EXPECT_OK(cuGraphAddMemcpyNode(&after, graph, &node, 1, &b_to_c, context));
    EXPECT_OK(cuGraphAddMemsetNode(&inner, child, &inner, 1, &late, context)); /* not in the node's own copy */
    EXPECT_OK(cuGraphDestroy(child));
    CUgraphExec exec = instantiated(graph);
    run(exec, a_stream());
    EXPECT_EQUAL(word_of(c), 3);
    EXPECT_EQUAL(word_of(a), 3);
    EXPECT_OK(cuGraphChildGraphNodeGetGraph(node, &found));
    size_t nodes;
    EXPECT_OK(cuGraphGetNodes(found, NULL, &nodes));
    EXPECT_EQUAL(nodes, 1);
    EXPECT_CODE(cuGraphChildGraphNodeGetGraph(before, &found), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_clone_has_the_same_nodes_and_a_life_of_its_own)
{
    CUgraph graph, clone;
    CUgraphNode a, b, found;
    size_t nodes;
    check_start();
    CUdeviceptr memory = some_memory();
    CUDA_KERNEL_NODE_PARAMS kernel = fill_kernel(memory, 5), asked;
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    EXPECT_OK(cuGraphAddKernelNode(&b, graph, &a, 1, &kernel));
    EXPECT_OK(cuGraphClone(&clone, graph));
    EXPECT_OK(cuGraphNodeFindInClone(&found, b, clone));
    EXPECT(found != b);
    EXPECT_OK(cuGraphKernelNodeGetParams(found, &asked));
    EXPECT_EQUAL(*(uint32_t *)asked.kernelParams[1], 5);
    EXPECT_CODE(cuGraphNodeFindInClone(&found, b, graph), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGraphDestroyNode(a));
    EXPECT_OK(cuGraphGetNodes(clone, NULL, &nodes));
    EXPECT_EQUAL(nodes, 2);
    EXPECT_OK(cuGraphDestroy(graph));
    CUgraphExec exec = instantiated(clone);
    run(exec, a_stream());
    EXPECT_EQUAL(word_of(memory), 5);
}

TEST(parameters_are_given_back_as_they_were_taken)
{
    CUgraph graph;
    CUgraphNode kernel, copy, set, host;
    CUgraphNodeType type;
    CUcontext context = check_start();
    CUdeviceptr a = some_memory(), b = some_memory();
    int counter = 0;
    CUDA_KERNEL_NODE_PARAMS fill = fill_kernel(a, 77), fill_back;
    CUDA_MEMCPY3D line_in = line(b, a, 64), line_back;
    CUDA_MEMSET_NODE_PARAMS set_in = set_words(a, 3), set_back;
    CUDA_HOST_NODE_PARAMS call_in = {count, &counter}, call_back;
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphAddKernelNode(&kernel, graph, NULL, 0, &fill));
    EXPECT_OK(cuGraphAddMemcpyNode(&copy, graph, NULL, 0, &line_in, context));
    EXPECT_OK(cuGraphAddMemsetNode(&set, graph, NULL, 0, &set_in, context));
    EXPECT_OK(cuGraphAddHostNode(&host, graph, NULL, 0, &call_in));
    fill_kernel(b, 1); /* the node has its own copy */
    EXPECT_OK(cuGraphKernelNodeGetParams(kernel, &fill_back));
    EXPECT(fill_back.func == fill.func && fill_back.blockDimX == 128);
    EXPECT(*(CUdeviceptr *)fill_back.kernelParams[0] == a && *(uint32_t *)fill_back.kernelParams[1] == 77);
    EXPECT_OK(cuGraphMemcpyNodeGetParams(copy, &line_back));
    EXPECT(line_back.dstDevice == b && line_back.srcDevice == a && line_back.WidthInBytes == 64);
    EXPECT_OK(cuGraphMemsetNodeGetParams(set, &set_back));
    EXPECT(set_back.dst == a && set_back.value == 3 && set_back.width == WORDS && set_back.elementSize == 4);
    EXPECT_OK(cuGraphHostNodeGetParams(host, &call_back));
    EXPECT(call_back.fn == count && call_back.userData == &counter);
    EXPECT_CODE(cuGraphHostNodeGetParams(set, &call_back), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuGraphNodeGetType(set, &type));
    EXPECT_EQUAL(type, CU_GRAPH_NODE_TYPE_MEMSET);
    EXPECT_OK(cuGraphNodeGetType(host, &type));
    EXPECT_EQUAL(type, CU_GRAPH_NODE_TYPE_HOST);
}

TEST(a_node_with_bad_parameters_is_refused)
{
    CUgraph graph;
    CUgraphNode made;
    CUcontext context = check_start();
    CUdeviceptr a = some_memory();
    CUDA_MEMSET_NODE_PARAMS set = set_words(a, 1);
    CUDA_KERNEL_NODE_PARAMS kernel = fill_kernel(a, 1);
    EXPECT_OK(cuGraphCreate(&graph, 0));
    set.elementSize = 3;
    EXPECT_CODE(cuGraphAddMemsetNode(&made, graph, NULL, 0, &set, context), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphAddMemsetNode(&made, graph, NULL, 0, NULL, context), CUDA_ERROR_INVALID_VALUE);
    kernel.blockDimX = 0;
    EXPECT_CODE(cuGraphAddKernelNode(&made, graph, NULL, 0, &kernel), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphAddKernelNode(&made, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphAddHostNode(&made, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuGraphAddChildGraphNode(&made, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}
