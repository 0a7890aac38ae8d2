/* Graph memory from the inside; all of it under its mutex. */
#ifndef SOFTGPU_GRAPH_MEMORY_STATE_H
#define SOFTGPU_GRAPH_MEMORY_STATE_H

#include "graphs/graph_memory.h"

/* The allocation of a node, made again at each launch and always at the same address. */
struct graph_allocation {
    uint64_t address, bytes; /* as asked */
    unsigned physical;
    int references;              /* nodes, frees under way, and one while it is live */
    unsigned long long graph_id; /* of the graph that its node is in */
    /* a free node for it lies in its own graph; in another */
    int is_freed_inside, is_freed_outside;
    int is_live;  /* by the order of calls: a launch made it, nothing has freed it */
    int holds;    /* launches whose memory for it is not given back yet */
    CUmemAccessDesc *access;
    struct graph_allocation *next;
};

extern pthread_mutex_t graph_memory_mutex;

uint64_t graph_memory_round(uint64_t bytes); /* the bytes that an allocation counts */
/* Changes the device's use by memory that outlives launches. */
void graph_reserve_count(unsigned physical, int64_t bytes);
/* Reserves the memory that the device's graphs use beyond the reserved; CUDA_SUCCESS, or an error
 * and nothing changed. */
CUresult graph_reserve_grow(unsigned physical);
void graph_lease_map(struct graph_lease *lease, unsigned long long stream_id);
void graph_lease_set_end(struct graph_lease *lease, struct work_item *end);
void graph_lease_drop(struct graph_lease *lease);
/* Gives back what graphs do not use; 1 if that was something. */
int graph_reserve_trim(unsigned physical);
void graph_reserve_reset(unsigned physical);
/* Host pages of allocations that nothing uses go back. */
void graph_memory_forget_pages(unsigned physical);

#endif
