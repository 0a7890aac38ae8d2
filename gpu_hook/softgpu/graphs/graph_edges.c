/* Dependencies: the edges of a graph, in every form that the API asks for them. Edges with data
 * (programmatic launch) are kept and given back; here they mean full completion, as a driver may
 * take them. */
#include <stdlib.h>
#include <string.h>

#include "graphs/graph_state.h"
#include "implemented.h"

int edges_add(struct edges *edges, struct node *node, const CUgraphEdgeData *data)
{
    if (edges->count == edges->room) {
        size_t room = edges->room ? edges->room * 2 : 4;
        struct edge *items = realloc(edges->items, room * sizeof *items);
        if (items == NULL)
            return -1;
        edges->items = items;
        edges->room = room;
    }
    edges->items[edges->count] = (struct edge){.node = node};
    if (data)
        edges->items[edges->count].data = *data;
    edges->count++;
    return 0;
}

int edges_find(const struct edges *edges, const struct node *node)
{
    for (size_t i = 0; i < edges->count; i++)
        if (edges->items[i].node == node)
            return (int)i;
    return -1;
}

void edges_remove(struct edges *edges, size_t index)
{
    edges->count--;
    memmove(&edges->items[index], &edges->items[index + 1], (edges->count - index) * sizeof *edges->items);
}

int node_connect(struct node *from, struct node *to, const CUgraphEdgeData *data)
{
    if (edges_add(&from->serves, to, data) != 0)
        return -1;
    if (edges_add(&to->needs, from, data) == 0)
        return 0;
    edges_remove(&from->serves, from->serves.count - 1);
    return -1;
}

static int is_plain(const CUgraphEdgeData *data)
{
    static const CUgraphEdgeData plain;
    return data == NULL || memcmp(data, &plain, sizeof plain) == 0;
}

/* Only kernel nodes have other ports than completion, and only programmatic edges use them. */
static int is_valid(const struct node *from, const struct node *to, const CUgraphEdgeData *data)
{
    static const unsigned char zero[sizeof data->reserved];
    if (is_plain(data))
        return 1;
    if (data->to_port || data->type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ||
        data->from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER || memcmp(data->reserved, zero, sizeof zero) != 0)
        return 0;
    if (from->params.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return 0;
    return data->type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ||
           (data->from_port != 0 && (to == NULL || to->params.type == CU_GRAPH_NODE_TYPE_KERNEL));
}

CUresult graph_check_needs(const struct graph *graph, const CUgraphNode *needs, const CUgraphEdgeData *data,
                           size_t count)
{
    if (count && needs == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct node *node = node_of(needs[i]);
        if (node == NULL || node->graph != graph || !is_valid(node, NULL, data ? &data[i] : NULL))
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t j = 0; j < i; j++)
            if (needs[j] == needs[i])
                return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

int graph_sort(struct graph *graph, struct node **order)
{
    size_t done = 0, ready = 0;
    for (size_t i = 0; i < graph->count; i++) {
        graph->nodes[i]->mark = graph->nodes[i]->needs.count;
        if (graph->nodes[i]->mark == 0)
            order[ready++] = graph->nodes[i];
    }
    for (; done < ready; done++)
        for (size_t e = 0; e < order[done]->serves.count; e++)
            if (--order[done]->serves.items[e].node->mark == 0)
                order[ready++] = order[done]->serves.items[e].node;
    if (ready == graph->count)
        return 0;
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->mark)
            order[0] = graph->nodes[i];
    return -1;
}

CUresult impl_cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                        const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    struct graph *graph = graph_of(hGraph);
    if (graph == NULL || (numDependencies && (from == NULL || to == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numDependencies; i++) {
        struct node *before = node_of(from[i]), *after = node_of(to[i]);
        if (before == NULL || after == NULL || before == after || before->graph != graph || after->graph != graph ||
            edges_find(&after->needs, before) >= 0 || !is_valid(before, after, edgeData ? &edgeData[i] : NULL))
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t j = 0; j < i; j++)
            if (from[j] == from[i] && to[j] == to[i])
                return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < numDependencies; i++)
        if (node_connect((struct node *)from[i], (struct node *)to[i], edgeData ? &edgeData[i] : NULL) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                     size_t numDependencies)
{
    return impl_cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult impl_cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                           const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    static const CUgraphEdgeData plain;
    struct graph *graph = graph_of(hGraph);
    if (graph == NULL || (numDependencies && (from == NULL || to == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    if (numDependencies && graph->memory_nodes)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numDependencies; i++) {
        struct node *before = node_of(from[i]), *after = node_of(to[i]);
        int found = before && after && after->graph == graph ? edges_find(&after->needs, before) : -1;
        const CUgraphEdgeData *data = edgeData ? &edgeData[i] : &plain;
        if (found < 0 || memcmp(&after->needs.items[found].data, data, sizeof plain) != 0)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < numDependencies; i++) {
        struct node *before = (struct node *)from[i], *after = (struct node *)to[i];
        int in = edges_find(&after->needs, before), out = edges_find(&before->serves, after);
        if (in < 0 || out < 0) /* the same edge named twice */
            return CUDA_ERROR_INVALID_VALUE;
        edges_remove(&after->needs, (size_t)in);
        edges_remove(&before->serves, (size_t)out);
    }
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                        size_t numDependencies)
{
    return impl_cuGraphRemoveDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult impl_cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                                 size_t *numEdges)
{
    struct graph *graph = graph_of(hGraph);
    size_t found = 0;
    if (graph == NULL || numEdges == NULL || !from != !to || (edgeData && !from))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->count; i++)
        for (size_t e = 0; e < graph->nodes[i]->needs.count && (!from || found < *numEdges); e++, found++) {
            const struct edge *edge = &graph->nodes[i]->needs.items[e];
            if (from && !edgeData && !is_plain(&edge->data))
                return CUDA_ERROR_LOSSY_QUERY;
            if (from) {
                from[found] = (CUgraphNode)edge->node;
                to[found] = (CUgraphNode)graph->nodes[i];
            }
            if (edgeData)
                edgeData[found] = edge->data;
        }
    for (size_t i = found; from && i < *numEdges; i++)
        from[i] = to[i] = NULL;
    *numEdges = found;
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    return impl_cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

static CUresult list_edges(const struct edges *edges, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *room)
{
    if (room == NULL || (data && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    size_t count = nodes && *room < edges->count ? *room : edges->count;
    for (size_t i = 0; nodes && i < count; i++) {
        if (!data && !is_plain(&edges->items[i].data))
            return CUDA_ERROR_LOSSY_QUERY;
        nodes[i] = (CUgraphNode)edges->items[i].node;
        if (data)
            data[i] = edges->items[i].data;
    }
    for (size_t i = count; nodes && i < *room; i++)
        nodes[i] = NULL;
    *room = count;
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
                                            size_t *numDependencies)
{
    struct node *node = node_of(hNode);
    return node ? list_edges(&node->needs, dependencies, edgeData, numDependencies) : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
    return impl_cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

CUresult impl_cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                              CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
    struct node *node = node_of(hNode);
    return node ? list_edges(&node->serves, dependentNodes, edgeData, numDependentNodes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes)
{
    return impl_cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}
