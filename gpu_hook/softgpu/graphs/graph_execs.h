/* Executable graphs: a private copy of a graph, laid out as steps in lanes. A lane is a stream; the
 * first is the one that the graph is launched into, so that a chain of nodes costs no thread of its
 * own. */
#ifndef SOFTGPU_GRAPH_EXECS_H
#define SOFTGPU_GRAPH_EXECS_H

#include <stdatomic.h>

#include "graphs/graph_memory.h"
#include "graphs/graph_state.h"

struct step {
    struct node *node; /* NULL: where a child graph begins or ends */
    size_t first_need, need_count;
    unsigned lane;
    int is_needed; /* by a later step */
};

struct lane {
    struct context *context; /* NULL: that of the launch */
    struct stream *stream;   /* its own, opened when first used */
    unsigned long long stream_id;
    size_t last; /* step, while they are laid out */
};

/* A CUgraphExec is a pointer to this. */
struct graph_exec {
    pthread_mutex_t mutex; /* one launch or change at a time */
    atomic_int references; /* the handle, and each launch that has not ended */
    struct graph *graph;
    struct graph *source; /* of a graph with memory nodes: for one exec at a time */
    unsigned long long source_id;
    unsigned long long flags;
    struct step *steps;
    size_t step_count, step_room;
    size_t *needs; /* of all steps: indexes of earlier ones */
    size_t need_count, need_room;
    struct lane *lanes;
    unsigned lane_count;
    struct work_item *last; /* the end of the latest launch */
    struct graph_lease lease;
};

struct graph_exec *exec_of(CUgraphExec handle); /* NULL: no such exec */
void exec_drop(struct graph_exec *exec);
/* Lays the graph out. INVALID_VALUE and the node where there is a cycle. */
CUresult exec_plan(struct graph_exec *exec, struct node **culprit);
CUresult exec_launch(struct graph_exec *exec, struct stream *stream);
CUresult exec_upload(struct graph_exec *exec, struct stream *stream);
/* The exec's own node for one of the graph that it was made from. */
struct node *exec_find(struct graph_exec *exec, CUgraphNode handle);

#endif
