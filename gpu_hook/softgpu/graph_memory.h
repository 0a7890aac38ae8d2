/* Memory nodes: allocations that a graph makes and frees when it runs. */
#ifndef SOFTGPU_GRAPH_MEMORY_H
#define SOFTGPU_GRAPH_MEMORY_H

#include "graph_state.h"

/* What an executable graph holds of the devices' graph memory. */
struct graph_lease {
    unsigned long long stream_id;
};

/* What one launch takes. */
struct graph_launch_memory {
    int unused;
};

/* Makes what a memory node holds from its parameters. */
CUresult graph_memory_fill(struct node *node);
void graph_memory_copy(struct node *to, const struct node *from);
void graph_memory_free(struct node *node);
/* Before and after a launch is queued: memory for all its nodes, and what became of it. Under the exec's mutex. */
CUresult graph_memory_begin(struct graph_exec *exec, struct stream *stream, struct graph_launch_memory *memory);
void graph_memory_end(struct graph_exec *exec, const struct graph_launch_memory *memory, CUresult result);
CUresult graph_memory_map(struct graph_exec *exec, struct stream *stream);
/* An exec goes: its memory stays reserved, for others. */
void graph_memory_close(struct graph_exec *exec);

#endif
