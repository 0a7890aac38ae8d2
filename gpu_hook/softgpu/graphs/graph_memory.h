/* Memory nodes: allocations that a graph makes and frees when it runs. Their addresses are fixed
 * when the node is made; memory of the device is taken by the launch, stays reserved for graphs,
 * and goes back by cuDeviceGraphMemTrim. */
#ifndef SOFTGPU_GRAPH_MEMORY_H
#define SOFTGPU_GRAPH_MEMORY_H

#include "graphs/graph_state.h"
#include "device/machine.h"

/* The graph memory of each device that an executable graph needs and holds. Guarded by the graph
 * memory's mutex. */
struct graph_lease {
    int is_listed;
    struct graph_lease *next;
    unsigned long long stream_id; /* of its latest launch: launches of one stream share memory */
    struct work_item *end;             /* of that launch; NULL: none */
    int is_mapped;                /* it counts in its device's use */
    int is_pinned;                /* a launch is being queued */
    uint64_t within[MACHINE_DEVICES]; /* bytes that the graph takes and gives back itself */
    /* bytes that outlive the launch, while only an upload holds them */
    uint64_t beyond[MACHINE_DEVICES];
};

/* Makes what a memory node holds from its parameters; attached when it comes into a graph. */
CUresult graph_memory_fill(struct node *node);
CUresult graph_memory_attach(struct graph *graph, struct node *node);
void graph_memory_copy(struct node *to, const struct node *from);
void graph_memory_free(struct node *node);

/* Before and after a launch is queued, under the exec's mutex: memory for all its nodes, and what
 * became of it. */
CUresult graph_memory_begin(struct graph_exec *exec, struct stream *stream);
void graph_memory_end(struct graph_exec *exec, CUresult result);
/* With CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, what the launch before left is freed
 * first. */
CUresult graph_memory_free_unfreed(struct graph_exec *exec, struct stream *stream);
CUresult graph_memory_upload(struct graph_exec *exec, struct stream *stream);
/* An exec goes: its memory stays reserved, for others. */
void graph_memory_close(struct graph_exec *exec);

/* Frees from outside: INVALID_VALUE where the allocation is not live, or is freed in its own
 * graph. */
CUresult graph_memory_free_now(CUdeviceptr address);
CUresult graph_memory_free_async(CUdeviceptr address, struct stream *stream);
/* The last context of the device is gone, and all memory with it. */
void graph_memory_close_device(unsigned physical);

#endif
