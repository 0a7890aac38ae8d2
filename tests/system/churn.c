/* Allocates and frees every kind of memory as fast as it can, until it is killed. Prints "on"
 * when it has begun; it ignores failures (a limit reached, a family that a device lacks). */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LIVE 48
#define KIB ((size_t)1024)
#define MIB (KIB * 1024)

enum kind { FREE, LINEAR, MANAGED, POOL, ARRAY, MAPPED, HOST, GRAPH, KINDS };

struct piece {
    enum kind kind;
    union {
        CUdeviceptr pointer;
        CUarray array;
        void *host;
        CUgraphExec graph;
    };
    size_t bytes;
};

static struct piece pieces[LIVE];
static const size_t sizes[] = {512, 100 * KIB, MIB, 3 * MIB, 20 * MIB};

static CUresult take_mapped(struct piece *piece)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    piece->bytes = (piece->bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    CUresult result = cuMemCreate(&handle, piece->bytes, &properties, 0);
    if (result)
        return result;
    result = cuMemAddressReserve(&piece->pointer, piece->bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = cuMemMap(piece->pointer, piece->bytes, 0, handle, 0);
        if (result)
            cuMemAddressFree(piece->pointer, piece->bytes);
    }
    cuMemRelease(handle); /* the mapping keeps it */
    return result;
}

static CUresult take_array(struct piece *piece)
{
    CUDA_ARRAY_DESCRIPTOR descriptor = {
        .Width = 1024, .Height = piece->bytes / 4096 + 1, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    return cuArrayCreate(&piece->array, &descriptor);
}

static CUresult take_graph(struct piece *piece)
{
    CUgraph graph;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = piece->bytes};
    CUresult result = cuGraphCreate(&graph, 0);
    if (result)
        return result;
    result = cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters);
    CUgraphNode free_node;
    if (result == CUDA_SUCCESS)
        result = cuGraphAddMemFreeNode(&free_node, graph, &node, 1, parameters.dptr);
    if (result == CUDA_SUCCESS)
        result = cuGraphInstantiate(&piece->graph, graph, 0);
    if (result == CUDA_SUCCESS)
        cuGraphLaunch(piece->graph, NULL);
    cuGraphDestroy(graph);
    return result;
}

static CUresult take(struct piece *piece)
{
    switch (piece->kind) {
    case LINEAR:
        return cuMemAlloc(&piece->pointer, piece->bytes);
    case MANAGED:
        return cuMemAllocManaged(&piece->pointer, piece->bytes, CU_MEM_ATTACH_GLOBAL);
    case POOL:
        return cuMemAllocAsync(&piece->pointer, piece->bytes, NULL);
    case ARRAY:
        return take_array(piece);
    case MAPPED:
        return take_mapped(piece);
    case HOST:
        return cuMemHostAlloc(&piece->host, piece->bytes, 0);
    case GRAPH:
        return take_graph(piece);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static void give_back(struct piece *piece)
{
    switch (piece->kind) {
    case LINEAR:
    case MANAGED:
        cuMemFree(piece->pointer);
        break;
    case POOL:
        cuMemFreeAsync(piece->pointer, NULL);
        break;
    case ARRAY:
        cuArrayDestroy(piece->array);
        break;
    case MAPPED:
        cuMemUnmap(piece->pointer, piece->bytes);
        cuMemAddressFree(piece->pointer, piece->bytes);
        break;
    case HOST:
        cuMemFreeHost(piece->host);
        break;
    case GRAPH:
        cuGraphExecDestroy(piece->graph);
        break;
    default:
        break;
    }
    piece->kind = FREE;
}

int main(int count, char **arguments)
{
    CUcontext context;
    unsigned seed = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    puts("on");
    fflush(stdout);
    for (;;) {
        struct piece *piece = &pieces[(unsigned)rand_r(&seed) % LIVE];
        if (piece->kind != FREE) {
            give_back(piece);
            continue;
        }
        piece->bytes = sizes[(unsigned)rand_r(&seed) % (sizeof sizes / sizeof *sizes)];
        piece->kind = (enum kind)(1 + (unsigned)rand_r(&seed) % (KINDS - 1));
        if (take(piece) != CUDA_SUCCESS)
            piece->kind = FREE;
    }
}
