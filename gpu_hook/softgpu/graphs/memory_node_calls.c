/* The calls that make memory nodes and say where their memory is. */
#include <string.h>

#include "graphs/graph_state.h"
#include "implemented.h"

CUresult impl_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                     size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    _Static_assert(sizeof params.alloc == sizeof *nodeParams, "both versions of the parameters are one");
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.alloc, nodeParams, sizeof *nodeParams);
    CUresult result = graph_add(graph_of(hGraph), &params, dependencies, NULL, numDependencies, phGraphNode);
    if (result == CUDA_SUCCESS)
        nodeParams->dptr = ((struct node *)*phGraphNode)->params.alloc.dptr;
    return result;
}

CUresult impl_cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    struct node *node = node_of(hNode);
    if (node == NULL || params_out == NULL || node->params.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(params_out, &node->params.alloc, sizeof *params_out);
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                    size_t numDependencies, CUdeviceptr dptr)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
    params.free.dptr = dptr;
    return graph_add(graph_of(hGraph), &params, dependencies, NULL, numDependencies, phGraphNode);
}

CUresult impl_cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    struct node *node = node_of(hNode);
    if (node == NULL || dptr_out == NULL || node->params.type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *dptr_out = node->params.free.dptr;
    return CUDA_SUCCESS;
}
