/* The calls that make, read and change nodes of one type. Each brings its parameters into the
 * tagged form and passes them on. */
#include <string.h>

#include "graphs/graph_state.h"
#include "implemented.h"

static CUresult check_type(struct node *node, CUgraphNodeType type, const void *params)
{
    return node && params && node->params.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void widen_kernel(const CUDA_KERNEL_NODE_PARAMS_v1 *narrow, CUDA_KERNEL_NODE_PARAMS_v2 *wide)
{
    memset(wide, 0, sizeof *wide);
    memcpy(wide, narrow, sizeof *narrow);
}

/* v2 and v3 are the same but in name. */
static CUgraphNodeParams kernel_params(const CUDA_KERNEL_NODE_PARAMS_v2 *kernel)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    _Static_assert(sizeof *kernel == sizeof params.kernel, "the union's kernel parameters are those of version 2");
    memcpy(&params.kernel, kernel, sizeof *kernel);
    return params;
}

CUresult impl_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                      size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = kernel_params(nodeParams);
    return graph_add(graph_of(hGraph), &params, dependencies, NULL, numDependencies, phGraphNode);
}

CUresult impl_cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUDA_KERNEL_NODE_PARAMS_v2 wide;
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    widen_kernel(nodeParams, &wide);
    return impl_cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &wide);
}

CUresult impl_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams);
    if (result == CUDA_SUCCESS)
        memcpy(nodeParams, &node->params.kernel, sizeof *nodeParams);
    return result;
}

CUresult impl_cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams);
    if (result == CUDA_SUCCESS)
        memcpy(nodeParams, &node->params.kernel, sizeof *nodeParams);
    return result;
}

CUresult impl_cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams);
    if (result)
        return result;
    CUgraphNodeParams params = kernel_params(nodeParams);
    return node_set(node, &params);
}

CUresult impl_cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUDA_KERNEL_NODE_PARAMS_v2 wide;
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    widen_kernel(nodeParams, &wide);
    return impl_cuGraphKernelNodeSetParams_v2(hNode, &wide);
}

CUresult impl_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    if (copyParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    params.memcpy.copyCtx = ctx;
    params.memcpy.copyParams = *copyParams;
    return graph_add(graph_of(hGraph), &params, dependencies, NULL, numDependencies, phGraphNode);
}

CUresult impl_cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams);
    if (result == CUDA_SUCCESS)
        *nodeParams = node->params.memcpy.copyParams;
    return result;
}

CUresult impl_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams);
    if (result)
        return result;
    CUgraphNodeParams params = node->params;
    params.memcpy.copyParams = *nodeParams;
    return node_set(node, &params);
}

static CUgraphNodeParams memset_params(const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    memcpy(&params.memset, fill, sizeof *fill);
    params.memset.ctx = context;
    return params;
}

CUresult impl_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    if (memsetParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = memset_params(memsetParams, ctx);
    return graph_add(graph_of(hGraph), &params, dependencies, NULL, numDependencies, phGraphNode);
}

CUresult impl_cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams);
    if (result == CUDA_SUCCESS)
        memcpy(nodeParams, &node->params.memset, sizeof *nodeParams);
    return result;
}

CUresult impl_cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams);
    if (result)
        return result;
    CUgraphNodeParams params = memset_params(nodeParams, node->params.memset.ctx);
    return node_set(node, &params);
}

static CUgraphNodeParams host_params(const CUDA_HOST_NODE_PARAMS *call)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
    params.host.fn = call->fn;
    params.host.userData = call->userData;
    return params;
}

CUresult impl_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = host_params(nodeParams);
    return graph_add(graph_of(hGraph), &params, dependencies, NULL, numDependencies, phGraphNode);
}

CUresult impl_cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_HOST, nodeParams);
    if (result == CUDA_SUCCESS)
        *nodeParams = (CUDA_HOST_NODE_PARAMS){node->params.host.fn, node->params.host.userData};
    return result;
}

CUresult impl_cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_HOST, nodeParams);
    if (result)
        return result;
    CUgraphNodeParams params = host_params(nodeParams);
    return node_set(node, &params);
}

CUresult impl_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                       size_t numDependencies, CUgraph childGraph)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    params.graph.graph = childGraph;
    return graph_add(graph_of(hGraph), &params, dependencies, NULL, numDependencies, phGraphNode);
}

CUresult impl_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_GRAPH, phGraph);
    if (result == CUDA_SUCCESS)
        *phGraph = node->params.graph.graph;
    return result;
}

CUresult impl_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return graph_add(graph_of(hGraph), &params, dependencies, NULL, numDependencies, phGraphNode);
}

CUresult impl_cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                        size_t numDependencies, CUevent event)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    params.eventRecord.event = event;
    return graph_add(graph_of(hGraph), &params, dependencies, NULL, numDependencies, phGraphNode);
}

CUresult impl_cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                      size_t numDependencies, CUevent event)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
    params.eventWait.event = event;
    return graph_add(graph_of(hGraph), &params, dependencies, NULL, numDependencies, phGraphNode);
}

CUresult impl_cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
    if (result == CUDA_SUCCESS)
        *event_out = node->params.eventRecord.event;
    return result;
}

CUresult impl_cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    struct node *node = node_of(hNode);
    CUresult result = check_type(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
    if (result == CUDA_SUCCESS)
        *event_out = node->params.eventWait.event;
    return result;
}

CUresult impl_cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    struct node *node = node_of(hNode);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    params.eventRecord.event = event;
    return node ? node_set(node, &params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    struct node *node = node_of(hNode);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
    params.eventWait.event = event;
    return node ? node_set(node, &params) : CUDA_ERROR_INVALID_VALUE;
}
