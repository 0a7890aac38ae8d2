/* Entry points that take device memory in families that are not charged yet: they pass through and are counted. */
#include "charge.h"

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *pointer, CUexternalMemory memory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *descriptor)
{
    charge_unaccounted();
    return driver()->cuExternalMemoryGetMappedBuffer(pointer, memory, descriptor);
}

CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *array, CUexternalMemory memory,
                                                 const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *descriptor)
{
    charge_unaccounted();
    return driver()->cuExternalMemoryGetMappedMipmappedArray(array, memory, descriptor);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    charge_unaccounted();
    return driver()->cuGraphAddMemAllocNode(node, graph, dependencies, count, parameters);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        CUgraphNodeParams *parameters)
{
    if (parameters && parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        charge_unaccounted();
    return driver()->cuGraphAddNode(node, graph, dependencies, count, parameters);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *parameters)
{
    if (parameters && parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        charge_unaccounted();
    return driver()->cuGraphAddNode_v2(node, graph, dependencies, edges, count, parameters);
}
