/* A graph as text for Graphviz. */
#include <errno.h>
#include <stdio.h>

#include "graphs/graph_state.h"
#include "implemented.h"
#include "modules/modules.h"

static const char *name_type(CUgraphNodeType type)
{
    static const char *const names[] = {
        [CU_GRAPH_NODE_TYPE_KERNEL] = "KERNEL", [CU_GRAPH_NODE_TYPE_MEMCPY] = "MEMCPY",
        [CU_GRAPH_NODE_TYPE_MEMSET] = "MEMSET", [CU_GRAPH_NODE_TYPE_HOST] = "HOST",
        [CU_GRAPH_NODE_TYPE_GRAPH] = "GRAPH", [CU_GRAPH_NODE_TYPE_EMPTY] = "EMPTY",
        [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "EVENT_WAIT", [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "EVENT_RECORD",
        [CU_GRAPH_NODE_TYPE_MEM_ALLOC] = "MEM_ALLOC", [CU_GRAPH_NODE_TYPE_MEM_FREE] = "MEM_FREE"};
    return (unsigned)type < sizeof names / sizeof *names && names[type] ? names[type] : "NODE";
}

static void write_node(FILE *file, const struct node *node, unsigned flags)
{
    fprintf(file, "\"graph_%llu_node_%zu\"[label=\"{%zu|%s", node->graph->id, node->index, node->index,
            name_type(node->params.type));
    if (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &node->params.kernel;
        struct function *function = function_of(kernel->func ? (const void *)kernel->func : (const void *)kernel->kern);
        fprintf(file, "|%s\\<\\<\\<(%u,%u,%u),(%u,%u,%u),%u\\>\\>\\>", function ? function->name : "?",
                kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ, kernel->blockDimX, kernel->blockDimY,
                kernel->blockDimZ, kernel->sharedMemBytes);
    }
    if (flags & (CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE))
        fprintf(file, "|%p", (const void *)node);
    fprintf(file, "}\"];\n");
}

static void write_graph(FILE *file, const struct graph *graph, unsigned flags)
{
    fprintf(file, "subgraph cluster_%llu {\nlabel=\"graph_%llu\";\nnode[shape=record];\n", graph->id, graph->id);
    for (size_t i = 0; i < graph->count; i++)
        write_node(file, graph->nodes[i], flags);
    for (size_t i = 0; i < graph->count; i++)
        for (size_t e = 0; e < graph->nodes[i]->needs.count; e++)
            fprintf(file, "\"graph_%llu_node_%zu\" -> \"graph_%llu_node_%zu\";\n", graph->id,
                    graph->nodes[i]->needs.items[e].node->index, graph->id, i);
    fprintf(file, "}\n");
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
            write_graph(file, (struct graph *)graph->nodes[i]->params.graph.graph, flags);
}

CUresult impl_cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
    struct graph *graph = graph_of(hGraph);
    if (graph == NULL || path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return CUDA_ERROR_OPERATING_SYSTEM;
    fprintf(file, "digraph dot {\n");
    write_graph(file, graph, flags);
    fprintf(file, "}\n");
    int failed = ferror(file);
    return fclose(file) || failed ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
