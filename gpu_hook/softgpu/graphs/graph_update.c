/* Changes of an executable graph: one node's parameters, or all of them from a graph of the same
 * shape. A change is made to the exec's own copy, so launches in progress keep what they were made
 * of. */
#include <stdlib.h>
#include <string.h>

#include "graphs/graph_execs.h"
#include "implemented.h"

/* Memory types as seen by a copy; a change of them would be another kind of copy. */
static int is_same_copy(const CUDA_MEMCPY3D *a, const CUDA_MEMCPY3D *b)
{
    return a->srcMemoryType == b->srcMemoryType && a->dstMemoryType == b->dstMemoryType;
}

static int is_line(const CUDA_MEMCPY3D *copy)
{
    return copy->Height <= 1 && copy->Depth <= 1;
}

/* Whether `own` of an exec can take what `fresh` holds, and if not, why. */
static CUgraphExecUpdateResult compare_nodes(const struct node *own, const struct node *fresh)
{
    if (own->params.type != fresh->params.type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    switch ((int)own->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (own->context != fresh->context)
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        return own->kernel->is_cooperative == fresh->kernel->is_cooperative
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return own->context == fresh->context &&
                       is_same_copy(&own->params.memcpy.copyParams, &fresh->params.memcpy.copyParams)
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        const CUDA_MEMSET_NODE_PARAMS_v2 *a = &own->params.memset, *b = &fresh->params.memset;
        int is_same = a->height == b->height &&
                      (a->height == 1 || (a->width == b->width && a->pitch == b->pitch &&
                                          a->elementSize == b->elementSize));
        return own->context == fresh->context && is_same ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                         : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    default:
        return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    }
}

/* Nodes are paired in the order of their creation, dependencies in the order in which they were
 * given. */
static int compare_graphs(const struct graph *own, const struct graph *fresh, CUgraphExecUpdateResultInfo *info)
{
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
    if (own->count != fresh->count)
        return -1;
    for (size_t i = 0; i < own->count; i++) {
        const struct node *mine = own->nodes[i], *other = fresh->nodes[i];
        info->errorNode = (CUgraphNode)other;
        if (mine->needs.count != other->needs.count)
            return -1;
        for (size_t e = 0; e < mine->needs.count; e++)
            if (mine->needs.items[e].node->index != other->needs.items[e].node->index) {
                info->errorFromNode = (CUgraphNode)other->needs.items[e].node;
                return -1;
            }
        info->result = compare_nodes(mine, other);
        if (info->result)
            return -1;
        if (mine->params.type == CU_GRAPH_NODE_TYPE_GRAPH &&
            compare_graphs((struct graph *)mine->params.graph.graph, (struct graph *)other->params.graph.graph, info))
            return -1;
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    return 0;
}

/* Takes the contents of a copy, which it frees. */
static void take(struct node *own, struct node *copy)
{
    struct node old = *own;
    own->params = copy->params;
    own->kernel = copy->kernel;
    own->work = copy->work;
    own->context = copy->context;
    copy->params = old.params;
    copy->kernel = old.kernel;
    copy->work = old.work;
    node_free(copy);
}

static CUresult take_graph(struct graph *own, const struct graph *fresh)
{
    for (size_t i = 0; i < own->count; i++) {
        struct node *copy;
        CUresult result = CUDA_SUCCESS;
        if (own->nodes[i]->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
            result = take_graph((struct graph *)own->nodes[i]->params.graph.graph,
                                (struct graph *)fresh->nodes[i]->params.graph.graph);
        else if ((result = node_copy(fresh->nodes[i], 1, &copy)) == CUDA_SUCCESS)
            take(own->nodes[i], copy);
        if (result)
            return result;
    }
    return CUDA_SUCCESS;
}

static CUresult update(struct graph_exec *exec, struct graph *own, const struct graph *fresh,
                       CUgraphExecUpdateResultInfo *info)
{
    pthread_mutex_lock(&exec->mutex);
    CUresult result = compare_graphs(own, fresh, info) ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_SUCCESS;
    result = result ? result : take_graph(own, fresh);
    pthread_mutex_unlock(&exec->mutex);
    return result;
}

CUresult impl_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
    struct graph_exec *exec = exec_of(hGraphExec);
    struct graph *graph = graph_of(hGraph);
    if (resultInfo)
        *resultInfo = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    if (exec == NULL || graph == NULL || resultInfo == NULL || graph->captures)
        return CUDA_ERROR_INVALID_VALUE;
    return update(exec, exec->graph, graph, resultInfo);
}

CUresult impl_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                                CUgraphExecUpdateResult *updateResult_out)
{
    CUgraphExecUpdateResultInfo info;
    if (updateResult_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = impl_cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
    *updateResult_out = info.result;
    if (hErrorNode_out)
        *hErrorNode_out = info.errorNode;
    return result;
}

/* One node. Its new parameters are checked as those of a new node, then as an update of the whole
 * would. */
static CUresult set(CUgraphExec handle, CUgraphNode which, CUgraphNodeParams *params)
{
    struct graph_exec *exec = exec_of(handle);
    struct node *own = exec_find(exec, which), *fresh;
    if (own == NULL || own->params.type != params->type)
        return CUDA_ERROR_INVALID_VALUE;
    if (own->allocation)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY &&
        (!is_line(&own->params.memcpy.copyParams) || !is_line(&params->memcpy.copyParams) ||
         params->memcpy.copyParams.WidthInBytes == 0))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = node_new(params, &fresh);
    if (result == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_KERNEL)
        fresh->kernel->is_cooperative = own->kernel->is_cooperative;
    if (result)
        return result;
    pthread_mutex_lock(&exec->mutex);
    if (compare_nodes(own, fresh) == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        take(own, fresh);
    } else {
        node_free(fresh);
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&exec->mutex);
    return result;
}

CUresult impl_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, nodeParams, sizeof *nodeParams);
    return set(hGraphExec, hNode, &params);
}

CUresult impl_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, nodeParams, sizeof *nodeParams);
    return set(hGraphExec, hNode, &params);
}

CUresult impl_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    if (copyParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    params.memcpy.copyCtx = ctx;
    params.memcpy.copyParams = *copyParams;
    return set(hGraphExec, hNode, &params);
}

CUresult impl_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    if (memsetParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    memcpy(&params.memset, memsetParams, sizeof *memsetParams);
    params.memset.ctx = ctx;
    return set(hGraphExec, hNode, &params);
}

CUresult impl_cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
    params.host.fn = nodeParams->fn;
    params.host.userData = nodeParams->userData;
    return set(hGraphExec, hNode, &params);
}

CUresult impl_cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    params.eventRecord.event = event;
    return set(hGraphExec, hNode, &params);
}

CUresult impl_cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
    params.eventWait.event = event;
    return set(hGraphExec, hNode, &params);
}

CUresult impl_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
    struct graph_exec *exec = exec_of(hGraphExec);
    struct node *own = exec_find(exec, hNode);
    struct graph *child = graph_of(childGraph);
    CUgraphExecUpdateResultInfo info;
    if (own == NULL || child == NULL || own->params.type != CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = update(exec, (struct graph *)own->params.graph.graph, child, &info);
    return result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE ? CUDA_ERROR_INVALID_VALUE : result;
}
