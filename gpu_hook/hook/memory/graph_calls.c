/* Entry points of executable graphs, as far as they take or release memory. */
#include "base/guard.h"
#include "charging/graph_memory.h"
#include "streams/launch.h"
#include "charging/pools.h"
#include "accounting/quota.h"
#include "gate/residency.h"
#include "compute/samples.h"

#include <stdlib.h>

#define DEEPEST 8 /* child graphs within child graphs */

static void add_nodes(CUgraph graph, uint64_t needs[DEVICES_MAX], int depth);

static void add_node(CUgraphNode node, uint64_t needs[DEVICES_MAX], int depth)
{
    CUgraphNodeType type;
    CUgraph child;
    CUDA_MEM_ALLOC_NODE_PARAMS allocation;
    if (driver()->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEEPEST &&
        driver()->cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
        add_nodes(child, needs, depth + 1);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        driver()->cuGraphMemAllocNodeGetParams(node, &allocation) != CUDA_SUCCESS)
        return;
    int device = allocation.poolProps.location.id;
    bool is_counted = allocation.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                      device >= 0 && device < DEVICES_MAX;
    if (is_counted &&
        __builtin_add_overflow(needs[device], quota_rounded(allocation.bytesize), &needs[device]))
        needs[device] = UINT64_MAX;
}

/* Add up the allocation nodes, however they came into the graph: by a call, by a capture, with a
 * child. */
static void add_nodes(CUgraph graph, uint64_t needs[DEVICES_MAX], int depth)
{
    size_t count = 0;
    if (driver()->cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    if (nodes && driver()->cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            add_node(nodes[i], needs, depth);
    free(nodes);
}

/* These calls touch the device, whether they have memory nodes or not. False: they answer out of
 * memory. */
static bool enter(bool *acts)
{
    *acts = guard_enter();
    if (!*acts || residency_enter())
        return true;
    guard_leave();
    return false;
}

/* These calls give memory back. */
static bool hold(void)
{
    bool acts = guard_enter();
    if (acts)
        residency_hold();
    return acts;
}

/* After the driver's call; the caller requests credit outside. */
static CUresult called(bool acts, CUresult result)
{
    if (acts)
        residency_leave();
    return result;
}

static CUresult leave(bool acts, CUresult result)
{
    if (acts) {
        pools_refresh(); /* on a full device the driver takes what graphs need from pools */
        guard_leave();
    }
    return result;
}

static CUresult instantiated(bool acts, CUresult result, CUgraphExec *exec, CUgraph graph)
{
    uint64_t needs[DEVICES_MAX] = {0};
    called(acts, result);
    if (acts && result == CUDA_SUCCESS) {
        add_nodes(graph, needs, 0);
        if (!graph_memory_instantiated(*exec, needs)) {
            driver()->cuGraphExecDestroy(*exec);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return leave(acts, result);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
                            size_t log_bytes)
{
    bool acts;
    if (!enter(&acts))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return instantiated(acts, driver()->cuGraphInstantiate(exec, graph, node, log, log_bytes), exec,
                        graph);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
                               size_t log_bytes)
{
    bool acts;
    if (!enter(&acts))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return instantiated(acts, driver()->cuGraphInstantiate_v2(exec, graph, node, log, log_bytes),
                        exec, graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    bool acts;
    if (!enter(&acts))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return instantiated(acts, driver()->cuGraphInstantiateWithFlags(exec, graph, flags), exec,
                        graph);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    bool acts;
    if (!enter(&acts))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return instantiated(acts, driver()->cuGraphInstantiateWithParams(exec, graph, parameters), exec,
                        graph);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    bool acts;
    if (!enter(&acts))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return instantiated(acts, driver()->cuGraphInstantiateWithParams_ptsz(exec, graph, parameters),
                        exec, graph);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    bool acts = guard_enter();
    return leave(acts, acts ? graph_memory_launch(exec, stream, driver()->cuGraphUpload)
                            : driver()->cuGraphUpload(exec, stream));
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    bool acts = guard_enter();
    return leave(acts, acts ? graph_memory_launch(exec, stream, driver()->cuGraphUpload_ptsz)
                            : driver()->cuGraphUpload_ptsz(exec, stream));
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    bool acts = hold();
    if (acts)
        samples_forget(exec);
    CUresult result = acts && graph_memory_is_used()
                          ? graph_memory_end(exec, driver()->cuGraphExecDestroy)
                          : driver()->cuGraphExecDestroy(exec);
    return leave(acts, called(acts, result));
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    bool acts = hold();
    CUresult result = called(acts, driver()->cuDeviceGraphMemTrim(device));
    if (acts)
        graph_memory_trimmed(device);
    return leave(acts, result);
}

static CUresult launch_with_memory(CUgraphExec exec, CUstream stream,
                                   CUresult (*real)(CUgraphExec, CUstream),
                                   CUresult (*entered)(CUgraphExec, CUstream))
{
    bool acts = guard_enter();
    if (acts)
        launch_count();
    return leave(acts, acts ? graph_memory_launch(exec, stream, entered) : real(exec, stream));
}

CUresult launch_graph(CUgraphExec exec, CUstream stream)
{
    return launch_with_memory(exec, stream, driver_calls.cuGraphLaunch, cuGraphLaunch_entered);
}

CUresult launch_graph_ptsz(CUgraphExec exec, CUstream stream)
{
    return launch_with_memory(exec, stream, driver_calls.cuGraphLaunch_ptsz,
                              cuGraphLaunch_ptsz_entered);
}
