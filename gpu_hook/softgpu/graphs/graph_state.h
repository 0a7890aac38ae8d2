/* The inside of graphs. A node keeps what it was given (`params`, whose pointers are the node's
 * own) and the work item that this makes, of which each launch takes copies. CUDA's rule holds: one
 * thread at a time uses a CUgraph. */
#ifndef SOFTGPU_GRAPH_STATE_H
#define SOFTGPU_GRAPH_STATE_H

#include <stddef.h>

#include "queue/streams.h"

struct graph;
struct graph_exec;
struct graph_allocation;
struct user_object;

/* A dependency: of `needs`, the node before; of `serves`, the node after. */
struct edge {
    struct node *node;
    CUgraphEdgeData data;
};

struct edges {
    struct edge *items;
    size_t count, room;
};

/* The state of a kernel node in addition to its work item. */
struct kernel_state {
    int is_cooperative;
    void **pointers; /* one for each argument */
    size_t packed_bytes;
    void *extra[5];
};

/* A CUgraphNode is a pointer to this. */
struct node {
    struct graph *graph;
    CUgraphNodeParams params;
    struct kernel_state *kernel;
    struct work_item *work;       /* a template; NULL: nothing to run */
    struct context *context; /* the context where it runs; NULL: the launch's own */
    struct graph_allocation *allocation; /* of a memory node */
    unsigned long long id, origin;       /* origin: the id of the node that this is a copy of */
    struct edges needs, serves;
    size_t index; /* in its graph */
    size_t mark;  /* scratch for walks through the graph */
    int is_disabled;
};

struct object_reference {
    struct user_object *object;
    unsigned count;
    struct object_reference *next;
};

/* A CUgraph is a pointer to this. */
struct graph {
    struct node **nodes; /* in order of creation */
    size_t count, room;
    struct node *owner; /* the child node that it lies in */
    struct object_reference *objects;
    struct graph_exec *exec; /* of a graph with memory nodes: the one that may exist */
    int memory_nodes;
    int captures; /* how many captures write into it */
    unsigned long long origin;
    unsigned long long id;
};

struct graph *graph_new(void);
void graph_free(struct graph *graph);
/* A copy of all, with its child graphs, apart from the rights of memory nodes. With `is_exec`,
 * memory nodes may be copied. */
CUresult graph_copy(const struct graph *from, int is_exec, struct graph **to);
struct graph *graph_of(CUgraph handle);    /* NULL: no such graph */
struct node *node_of(CUgraphNode handle);  /* NULL: no such node */
struct node *graph_find_copy(const struct graph *graph, unsigned long long origin);
/* Writes to `order` (count entries) an order in which every node comes after what it needs. -1:
 * there is a cycle, and order[0] lies on it or behind it. */
int graph_sort(struct graph *graph, struct node **order);

/* Checks the nodes that are to come before a new one: CUDA_SUCCESS or INVALID_VALUE. */
CUresult graph_check_needs(const struct graph *graph, const CUgraphNode *needs, const CUgraphEdgeData *data,
                           size_t count);
/* 0, or -1 without memory */
int edges_add(struct edges *edges, struct node *node, const CUgraphEdgeData *data);
int edges_find(const struct edges *edges, const struct node *node); /* index or -1 */
void edges_remove(struct edges *edges, size_t index);
/* 0, or -1 without memory */
int node_connect(struct node *from, struct node *to, const CUgraphEdgeData *data);

/* A node that belongs to no graph yet. */
CUresult node_new(CUgraphNodeParams *params, struct node **made);
/* Takes new parameters of the same type; on an error the node stays as it is. */
CUresult node_set(struct node *node, CUgraphNodeParams *params);
CUresult node_copy(const struct node *from, int is_exec, struct node **to);
void node_free(struct node *node);
/* Puts a new node into a graph, behind `needs`. Owns the node from then on, also when it fails. */
CUresult graph_attach(struct graph *graph, struct node *node, const CUgraphNode *needs, const CUgraphEdgeData *data,
                      size_t count);
/* node_new and graph_attach. */
CUresult graph_add(struct graph *graph, CUgraphNodeParams *params, const CUgraphNode *needs,
                   const CUgraphEdgeData *data, size_t count, CUgraphNode *made);

/* Kernel nodes. */
CUresult kernel_fill(struct node *node, const CUDA_KERNEL_NODE_PARAMS_v3 *params, int is_cooperative);
CUresult kernel_copy(struct node *to, const struct node *from);
void kernel_free(struct node *node);

/* User objects of a graph. */
CUresult objects_copy(struct graph *to, const struct graph *from);
void objects_release(struct graph *graph);

#endif
