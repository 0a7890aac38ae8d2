/* Memory nodes. */
#include "graph_memory.h"

CUresult graph_memory_fill(struct node *node)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

void graph_memory_copy(struct node *to, const struct node *from)
{
    to->allocation = from->allocation;
}

void graph_memory_free(struct node *node)
{
}

CUresult graph_memory_begin(struct graph_exec *exec, struct stream *stream, struct graph_launch_memory *memory)
{
    return CUDA_SUCCESS;
}

void graph_memory_end(struct graph_exec *exec, const struct graph_launch_memory *memory, CUresult result)
{
}

CUresult graph_memory_map(struct graph_exec *exec, struct stream *stream)
{
    return CUDA_SUCCESS;
}

void graph_memory_close(struct graph_exec *exec)
{
}
