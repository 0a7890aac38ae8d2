/* The life of executable graphs, and the calls that launch them. */
#include "graphs/graph_execs.h"

#include <stdio.h>
#include <stdlib.h>

#include "queue/captures.h"
#include "driver/handles.h"
#include "implemented.h"

struct graph_exec *exec_of(CUgraphExec handle)
{
    return handles_has(HANDLE_GRAPH_EXEC, handle) ? (struct graph_exec *)handle : NULL;
}

struct node *exec_find(struct graph_exec *exec, CUgraphNode handle)
{
    struct node *node = exec ? node_of(handle) : NULL;
    return node ? graph_find_copy(exec->graph, node->id) : NULL;
}

static void close_lanes(struct graph_exec *exec)
{
    for (unsigned i = 0; i < exec->lane_count; i++) {
        struct lane *lane = &exec->lanes[i];
        if (handles_has(HANDLE_STREAM, lane->stream) && lane->stream->id == lane->stream_id &&
            handles_remove(HANDLE_STREAM, lane->stream))
            stream_close(lane->stream);
    }
}

static void exec_free(struct graph_exec *exec)
{
    close_lanes(exec);
    graph_memory_close(exec);
    work_drop(exec->last);
    graph_free(exec->graph);
    free(exec->steps);
    free(exec->needs);
    free(exec->lanes);
    pthread_mutex_destroy(&exec->mutex);
    free(exec);
}

void exec_drop(struct graph_exec *exec)
{
    if (atomic_fetch_sub_explicit(&exec->references, 1, memory_order_acq_rel) == 1)
        exec_free(exec);
}

/* A graph may be instantiated unless a capture still writes it or it moved into another graph. With
 * memory nodes it may have one exec. */
static CUresult check_source(const struct graph *graph, unsigned long long flags)
{
    const unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (graph == NULL || flags & ~known || graph->captures || graph->exec)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->owner && graph->owner->params.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH ? CUDA_ERROR_INVALID_VALUE
                                                                        : CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

/* *culprit: a node of the caller's graph that stands in the way, or NULL. */
static CUresult instantiate(CUgraph handle, unsigned long long flags, CUgraphExec *out, struct node **culprit)
{
    struct graph *source = graph_of(handle);
    struct node *inner = NULL;
    *culprit = NULL;
    CUresult result = out ? check_source(source, flags) : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    struct graph_exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&exec->mutex, NULL);
    atomic_init(&exec->references, 1);
    exec->flags = flags;
    result = graph_copy(source, 1, &exec->graph);
    result = result ? result : exec_plan(exec, &inner);
    if (result == CUDA_SUCCESS && handles_add(HANDLE_GRAPH_EXEC, exec) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; inner && i < source->count; i++)
        if (source->nodes[i]->id == inner->origin)
            *culprit = source->nodes[i];
    if (result) {
        exec_free(exec);
        return result;
    }
    if (source->memory_nodes) {
        exec->source = source;
        exec->source_id = source->id;
        source->exec = exec;
    }
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    struct node *culprit;
    return instantiate(hGraph, flags, phGraphExec, &culprit);
}

CUresult impl_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                                    char *logBuffer, size_t bufferSize)
{
    struct node *culprit;
    CUresult result = instantiate(hGraph, 0, phGraphExec, &culprit);
    if (phErrorNode)
        *phErrorNode = (CUgraphNode)culprit;
    if (logBuffer && bufferSize)
        snprintf(logBuffer, bufferSize, "%s", culprit ? "the graph has a cycle" : "");
    return result;
}

CUresult impl_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    struct node *culprit;
    if (instantiateParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned long long upload = instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    CUresult result = instantiate(hGraph, instantiateParams->flags & ~upload, phGraphExec, &culprit);
    if (result == CUDA_SUCCESS && upload) {
        result = impl_cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
        if (result)
            impl_cuGraphExecDestroy(*phGraphExec);
    }
    instantiateParams->hErrNode_out = (CUgraphNode)culprit;
    instantiateParams->result_out = culprit  ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                    : result ? CUDA_GRAPH_INSTANTIATE_ERROR
                                             : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result;
}

CUresult impl_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    struct graph_exec *exec = (struct graph_exec *)hGraphExec;
    if (!handles_remove(HANDLE_GRAPH_EXEC, exec))
        return CUDA_ERROR_INVALID_VALUE;
    struct graph *source = graph_of((CUgraph)exec->source);
    if (source && source->id == exec->source_id && source->exec == exec)
        source->exec = NULL;
    exec_drop(exec);
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    struct graph_exec *exec = exec_of(hGraphExec);
    if (exec == NULL || flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    struct stream *stream;
    struct context *context;
    struct graph_exec *exec = exec_of(hGraphExec);
    CUresult result = exec ? stream_resolve(hStream, &stream, &context) : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    if (capture_takes(stream, &result))
        return captures->graph(stream, exec->graph);
    result = result ? result : stream_await_room(stream);
    return result ? result : exec_launch(exec, stream);
}

CUresult impl_cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    struct stream *stream;
    struct context *context;
    struct graph_exec *exec = exec_of(hGraphExec);
    CUresult result = exec ? stream_resolve(hStream, &stream, &context) : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    if (capture_takes(stream, &result))
        return captures->refuse(stream);
    return result ? result : exec_upload(exec, stream);
}

/* Return whether a node can be disabled: the API names the types. */
static int can_sleep(const struct node *node)
{
    return node->params.type == CU_GRAPH_NODE_TYPE_KERNEL || node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           node->params.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult impl_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    struct graph_exec *exec = exec_of(hGraphExec);
    struct node *node = exec_find(exec, hNode);
    if (node == NULL || !can_sleep(node))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&exec->mutex);
    node->is_disabled = !isEnabled;
    pthread_mutex_unlock(&exec->mutex);
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
    struct node *node = exec_find(exec_of(hGraphExec), hNode);
    if (node == NULL || isEnabled == NULL || !can_sleep(node))
        return CUDA_ERROR_INVALID_VALUE;
    *isEnabled = !node->is_disabled;
    return CUDA_SUCCESS;
}
