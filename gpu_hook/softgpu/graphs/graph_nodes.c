/* The contents of a node of each type: taken from parameters, copied, freed. Every way to make or
 * change a node ends here, with the parameters in the one tagged form, CUgraphNodeParams. */
#include <stdlib.h>
#include <string.h>

#include "copies/copies.h"
#include "graphs/graph_memory.h"
#include "graphs/graph_state.h"
#include "driver/handles.h"
#include "implemented.h"
#include "queue/work_items.h"

/* The context in which a node is to run; NULL asks for the current one. */
static CUresult resolve_context(CUcontext *handle, struct context **context)
{
    CUresult result = CUDA_SUCCESS;
    if (*handle == NULL)
        result = context_current(context);
    else if (!handles_has(HANDLE_CONTEXT, *handle))
        result = CUDA_ERROR_INVALID_CONTEXT;
    else
        *context = (struct context *)*handle;
    if (result == CUDA_SUCCESS)
        *handle = (CUcontext)*context;
    return result;
}

static CUresult fill_memcpy(struct node *node)
{
    CUDA_MEMCPY_NODE_PARAMS *params = &node->params.memcpy;
    if (params->flags || params->reserved)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = resolve_context(&params->copyCtx, &node->context);
    return result ? result : work_of_copy(&params->copyParams, node->context->physical, &node->work);
}

static CUresult fill_memset(struct node *node)
{
    CUDA_MEMSET_NODE_PARAMS_v2 *params = &node->params.memset;
    if ((params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4) || params->width == 0 ||
        params->height == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = resolve_context(&params->ctx, &node->context);
    struct place to = {params->dst, params->height == 1 ? params->width * params->elementSize : params->pitch,
                       params->height};
    struct shape shape = {params->width, params->height, 1};
    return result ? result
                  : fill_work(to, params->value, params->elementSize, shape, node->context->physical, &node->work);
}

static CUresult fill_host(struct node *node)
{
    if (node->params.host.fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    node->work = work_of_host_call(node->params.host.fn, node->params.host.userData);
    return node->work ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Cloned, or moved where the ownership says so: only so may memory nodes come in. */
static CUresult fill_child(struct node *node)
{
    struct graph *child = graph_of(node->params.graph.graph), *copy;
    if (child == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (node->params.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
        return child->owner || child->captures || child->exec ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (node->params.graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
        return CUDA_ERROR_INVALID_VALUE;
    if (child->memory_nodes)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = graph_copy(child, 0, &copy);
    if (result == CUDA_SUCCESS)
        node->params.graph.graph = (CUgraph)copy;
    return result;
}

static CUresult fill(struct node *node)
{
    switch ((int)node->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS_v3 params = node->params.kernel;
        return kernel_fill(node, &params, 0);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return fill_memcpy(node);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return fill_memset(node);
    case CU_GRAPH_NODE_TYPE_HOST:
        return fill_host(node);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return fill_child(node);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return handles_has(HANDLE_EVENT, node->params.eventWait.event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return handles_has(HANDLE_EVENT, node->params.eventRecord.event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return graph_memory_fill(node);
    default:
        return CUDA_ERROR_NOT_SUPPORTED; /* semaphores, batches of memory operations, conditions */
    }
}

static void empty(struct node *node)
{
    kernel_free(node);
    work_drop(node->work);
    if (node->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
        graph_free((struct graph *)node->params.graph.graph);
    graph_memory_free(node);
    free(node->needs.items);
    free(node->serves.items);
}

void node_free(struct node *node)
{
    handles_remove(HANDLE_GRAPH_NODE, node);
    empty(node);
    free(node);
}

CUresult node_new(CUgraphNodeParams *params, struct node **made)
{
    struct node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->params = *params;
    CUresult result = fill(node);
    if (result) { /* the caller keeps what params point to */
        free(node);
        return result;
    }
    *made = node;
    return CUDA_SUCCESS;
}

CUresult node_set(struct node *node, CUgraphNodeParams *params)
{
    struct node *fresh;
    if (params->type != node->params.type)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = node_new(params, &fresh);
    if (result == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_KERNEL)
        fresh->kernel->is_cooperative = node->kernel->is_cooperative;
    if (result)
        return result;
    struct node old = *node;
    node->params = fresh->params;
    node->kernel = fresh->kernel;
    node->work = fresh->work;
    node->context = fresh->context;
    fresh->params = old.params;
    fresh->kernel = old.kernel;
    fresh->work = old.work;
    node_free(fresh);
    return CUDA_SUCCESS;
}

CUresult node_copy(const struct node *from, int is_exec, struct node **to)
{
    struct node *copy = calloc(1, sizeof *copy);
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    copy->params = from->params;
    copy->context = from->context;
    copy->origin = from->id;
    copy->is_disabled = from->is_disabled;
    copy->work = from->work;
    if (copy->work)
        work_hold(copy->work); /* templates do not change: they are replaced */
    if (from->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
        struct graph *child = NULL;
        result = graph_copy((struct graph *)from->params.graph.graph, is_exec, &child);
        copy->params.graph.graph = (CUgraph)child;
    } else if (from->params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
        result = kernel_copy(copy, from);
    } else if (from->allocation) {
        graph_memory_copy(copy, from);
    }
    if (result)
        node_free(copy);
    else
        *to = copy;
    return result;
}
