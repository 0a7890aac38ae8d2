/* Graphs: their life, their nodes, copies of them. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/graph_memory.h"
#include "graphs/graph_state.h"
#include "driver/handles.h"
#include "implemented.h"

static struct {
    /* of graphs and nodes: never the same twice, as addresses may be */
    _Atomic unsigned long long next_id;
} ids;

struct graph *graph_of(CUgraph handle)
{
    return handles_has(HANDLE_GRAPH, handle) ? (struct graph *)handle : NULL;
}

struct node *node_of(CUgraphNode handle)
{
    return handles_has(HANDLE_GRAPH_NODE, handle) ? (struct node *)handle : NULL;
}

struct graph *graph_new(void)
{
    struct graph *graph = calloc(1, sizeof *graph);
    if (graph)
        graph->id = 1 + atomic_fetch_add(&ids.next_id, 1);
    return graph;
}

void graph_free(struct graph *graph)
{
    if (graph == NULL)
        return;
    handles_remove(HANDLE_GRAPH, graph);
    for (size_t i = 0; i < graph->count; i++)
        node_free(graph->nodes[i]);
    objects_release(graph);
    free(graph->nodes);
    free(graph);
}

static int make_room(struct graph *graph)
{
    if (graph->count < graph->room)
        return 0;
    size_t room = graph->room ? graph->room * 2 : 16;
    struct node **nodes = realloc(graph->nodes, room * sizeof *nodes);
    if (nodes == NULL)
        return -1;
    graph->nodes = nodes;
    graph->room = room;
    return 0;
}

static int append(struct graph *graph, struct node *node)
{
    if (make_room(graph) != 0)
        return -1;
    node->graph = graph;
    node->index = graph->count;
    node->id = 1 + atomic_fetch_add(&ids.next_id, 1);
    graph->nodes[graph->count++] = node;
    graph->memory_nodes += node->allocation != NULL;
    if (node->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
        struct graph *child = (struct graph *)node->params.graph.graph;
        child->owner = node;
        graph->memory_nodes += child->memory_nodes;
    }
    return 0;
}

CUresult graph_attach(struct graph *graph, struct node *node, const CUgraphNode *needs, const CUgraphEdgeData *data,
                      size_t count)
{
    CUresult result = graph_check_needs(graph, needs, data, count);
    if (result == CUDA_SUCCESS && node->allocation)
        result = graph_memory_attach(graph, node);
    if (result == CUDA_SUCCESS && handles_add(HANDLE_GRAPH_NODE, node) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        if (node_connect((struct node *)needs[i], node, data ? &data[i] : NULL) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && append(graph, node) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        while (node->needs.count) {
            struct node *before = node->needs.items[node->needs.count - 1].node;
            edges_remove(&before->serves, before->serves.count - 1);
            edges_remove(&node->needs, node->needs.count - 1);
        }
        node_free(node);
    }
    return result;
}

CUresult graph_add(struct graph *graph, CUgraphNodeParams *params, const CUgraphNode *needs,
                   const CUgraphEdgeData *data, size_t count, CUgraphNode *made)
{
    struct node *node;
    if (graph == NULL || made == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = graph_check_needs(graph, needs, data, count);
    result = result ? result : node_new(params, &node);
    result = result ? result : graph_attach(graph, node, needs, data, count);
    if (result == CUDA_SUCCESS)
        *made = (CUgraphNode)node;
    return result;
}

static CUresult copy_edges(const struct graph *from, struct graph *to)
{
    for (size_t i = 0; i < from->count; i++) {
        const struct edges *needs = &from->nodes[i]->needs;
        for (size_t e = 0; e < needs->count; e++)
            if (node_connect(to->nodes[needs->items[e].node->index], to->nodes[i], &needs->items[e].data) != 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult graph_copy(const struct graph *from, int is_exec, struct graph **to)
{
    struct graph *copy = graph_new();
    CUresult result = copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (copy && !is_exec && handles_add(HANDLE_GRAPH, copy) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; result == CUDA_SUCCESS && i < from->count; i++) {
        struct node *node;
        result = node_copy(from->nodes[i], is_exec, &node);
        if (result == CUDA_SUCCESS &&
            ((!is_exec && handles_add(HANDLE_GRAPH_NODE, node) != 0) || append(copy, node) != 0)) {
            node_free(node);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    result = result ? result : copy_edges(from, copy);
    result = result ? result : objects_copy(copy, from);
    if (result) {
        graph_free(copy);
        return result;
    }
    copy->origin = from->id;
    *to = copy;
    return CUDA_SUCCESS;
}

struct node *graph_find_copy(const struct graph *graph, unsigned long long origin)
{
    for (size_t i = 0; i < graph->count; i++) {
        struct node *node = graph->nodes[i];
        if (node->origin == origin)
            return node;
        if (node->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
            struct node *found = graph_find_copy((struct graph *)node->params.graph.graph, origin);
            if (found)
                return found;
        }
    }
    return NULL;
}

CUresult impl_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    if (phGraph == NULL || flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct graph *graph = graph_new();
    if (graph == NULL || handles_add(HANDLE_GRAPH, graph) != 0) {
        graph_free(graph);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *phGraph = (CUgraph)graph;
    return CUDA_SUCCESS;
}

/* A child graph goes with its node; a graph that is being captured into, with its capture. */
CUresult impl_cuGraphDestroy(CUgraph hGraph)
{
    struct graph *graph = graph_of(hGraph);
    if (graph == NULL || graph->owner || graph->captures || !handles_remove(HANDLE_GRAPH, graph))
        return CUDA_ERROR_INVALID_VALUE;
    graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    struct graph *graph = graph_of(originalGraph), *copy;
    if (phGraphClone == NULL || graph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->memory_nodes)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = graph_copy(graph, 0, &copy);
    if (result == CUDA_SUCCESS)
        *phGraphClone = (CUgraph)copy;
    return result;
}

CUresult impl_cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
    struct node *original = node_of(hOriginalNode);
    struct graph *graph = graph_of(hClonedGraph);
    if (phNode == NULL || original == NULL || graph == NULL || graph->origin != original->graph->id)
        return CUDA_ERROR_INVALID_VALUE;
    struct node *found = graph_find_copy(graph, original->id);
    if (found == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *phNode = (CUgraphNode)found;
    return CUDA_SUCCESS;
}

/* `room` entries at most; the rest of the caller's list is cleared, as the API says. */
static CUresult list_nodes(struct graph *graph, int roots_only, CUgraphNode *nodes, size_t *room)
{
    size_t found = 0;
    if (graph == NULL || room == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->count; i++) {
        if (roots_only && graph->nodes[i]->needs.count)
            continue;
        if (nodes && found == *room)
            break;
        if (nodes)
            nodes[found] = (CUgraphNode)graph->nodes[i];
        found++;
    }
    for (size_t i = found; nodes && i < *room; i++)
        nodes[i] = NULL;
    *room = found;
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    return list_nodes(graph_of(hGraph), 0, nodes, numNodes);
}

CUresult impl_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    return list_nodes(graph_of(hGraph), 1, rootNodes, numRootNodes);
}

CUresult impl_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    struct node *node = node_of(hNode);
    if (node == NULL || type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->params.type;
    return CUDA_SUCCESS;
}

/* The rest of the graph must not change once memory nodes fixed which nodes may use which
 * addresses. */
CUresult impl_cuGraphDestroyNode(CUgraphNode hNode)
{
    struct node *node = node_of(hNode);
    if (node == NULL || node->graph->memory_nodes || node->graph->captures)
        return CUDA_ERROR_INVALID_VALUE;
    struct graph *graph = node->graph;
    for (size_t i = 0; i < node->needs.count; i++) {
        struct edges *other = &node->needs.items[i].node->serves;
        edges_remove(other, (size_t)edges_find(other, node));
    }
    for (size_t i = 0; i < node->serves.count; i++) {
        struct edges *other = &node->serves.items[i].node->needs;
        edges_remove(other, (size_t)edges_find(other, node));
    }
    for (size_t i = node->index; i + 1 < graph->count; i++) {
        graph->nodes[i] = graph->nodes[i + 1];
        graph->nodes[i]->index = i;
    }
    graph->count--;
    node_free(node);
    return CUDA_SUCCESS;
}
