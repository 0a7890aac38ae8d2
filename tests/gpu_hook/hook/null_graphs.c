/* The null driver's graphs, of memory nodes alone, and its green contexts. A launch reserves the memory of its graph, which
 * stays until it is trimmed; graphs share what is reserved. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <stdlib.h>

#include "null_driver.h"

#define NODES 16

struct node {
    size_t bytes;
    struct graph *child;
};

struct graph {
    unsigned count;
    struct node nodes[NODES];
};

struct exec {
    size_t bytes;
};

static size_t reserved, used;
static int is_primary_gone;

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    *graph = (CUgraph)calloc(1, sizeof(struct graph));
    return CUDA_SUCCESS;
}

static struct node *add(CUgraph handle)
{
    struct graph *graph = (struct graph *)handle;
    return &graph->nodes[graph->count++];
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    struct node *added = add(graph);
    added->bytes = parameters->bytesize;
    *node = (CUgraphNode)added;
    parameters->dptr = (CUdeviceptr)added;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                  CUgraph child)
{
    struct node *added = add(graph);
    added->child = (struct graph *)child;
    *node = (CUgraphNode)added;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    struct graph *graph = (struct graph *)handle;
    for (unsigned i = 0; nodes && i < graph->count && i < *count; i++)
        nodes[i] = (CUgraphNode)&graph->nodes[i];
    *count = graph->count;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    *type = ((struct node *)node)->child ? CU_GRAPH_NODE_TYPE_GRAPH : CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
    *graph = (CUgraph)((struct node *)node)->child;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    *parameters = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = ((struct node *)node)->bytes};
    parameters->poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return CUDA_SUCCESS;
}

static size_t sum(const struct graph *graph)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < graph->count; i++)
        bytes += graph->nodes[i].child ? sum(graph->nodes[i].child) : graph->nodes[i].bytes;
    return bytes;
}

static CUresult reserve(size_t bytes)
{
    if (bytes > reserved && null_take(0, bytes - reserved) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    reserved = bytes > reserved ? bytes : reserved;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    struct exec *made = malloc(sizeof *made);
    made->bytes = sum((struct graph *)graph);
    *exec = (CUgraphExec)made;
    return flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD ? reserve(made->bytes) : CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return reserve(((struct exec *)exec)->bytes);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    return cuGraphLaunch(exec, stream);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    free(exec);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    if (device == 0) {
        null_give(0, reserved);
        reserved = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    *(cuuint64_t *)value = device == 0 && attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? reserved : used;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *is_active)
{
    *is_active = !is_primary_gone;
    return CUDA_SUCCESS;
}

/* The last use of the primary context. */
CUresult cuGreenCtxDestroy(CUgreenCtx context)
{
    is_primary_gone = 1;
    return CUDA_SUCCESS;
}
