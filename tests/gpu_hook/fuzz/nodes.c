/* Nodes of graphs and the edges between them. */
#include <string.h>

#include "fuzz.h"

static void CUDA_CB nothing(void *unused)
{
    (void)unused;
}

static CUresult add_memory(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count)
{
    uint64_t bytes, other_bytes;
    CUdeviceptr to = pick_memory(&bytes), from = pick_memory(&other_bytes);
    size_t width = 1 + draw(256);
    if (chance(50)) {
        CUDA_MEMSET_NODE_PARAMS fill = {.dst = to, .value = (unsigned)draw(256), .elementSize = chance(4) ? 3 : 1,
                                        .width = width, .height = 1};
        return CALL(cuGraphAddMemsetNode(node, graph, needs, count, &fill, current_context()));
    }
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to,
                          .WidthInBytes = width, .Height = 1, .Depth = 1};
    return CALL(cuGraphAddMemcpyNode(node, graph, needs, count, &copy, current_context()));
}

static CUresult add_kernel(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count)
{
    uint64_t bytes, words;
    CUdeviceptr pointer = pick_memory(&bytes) & ~3ull;
    unsigned value = (unsigned)draw_bits();
    void *arguments[] = {&pointer, &value, &words};
    words = bytes / 4 ? draw(bytes / 4 < 2000 ? bytes / 4 : 2000) : 0;
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = builtin("aliquot_fill"), .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                      .blockDimX = chance(4) ? 0 : 64, .blockDimY = 1, .blockDimZ = 1,
                                      .kernelParams = arguments};
    return CALL(cuGraphAddKernelNode_v2(node, graph, needs, count, &kernel));
}

static CUresult add_allocation(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count)
{
    CUDA_MEM_ALLOC_NODE_PARAMS wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.poolProps.location.id = draw_device();
    wanted.bytesize = draw_bytes();
    CUresult code = CALL(cuGraphAddMemAllocNode(node, graph, needs, count, &wanted));
    CUgraphNode freed;
    if (code != CUDA_SUCCESS)
        return code;
    code = CALL(cuGraphAddMemFreeNode(&freed, graph, node, 1, wanted.dptr));
    if (code == CUDA_SUCCESS)
        *node = freed; /* what follows comes after the free, and a launch leaves nothing allocated */
    else
        CALL_TWICE(cuGraphDestroyNode(*node));
    return code;
}

static CUresult add_other(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count)
{
    struct object *at;
    CUDA_HOST_NODE_PARAMS host = {.fn = chance(3) ? NULL : nothing};
    switch (draw(5)) {
    case 0:
        return CALL(cuGraphAddHostNode(node, graph, needs, count, &host));
    case 1:
        if (!has_managed())
            return CALL(cuGraphAddEmptyNode(node, graph, needs, count));
        return CALL(cuGraphAddEventRecordNode(node, graph, needs, count, (CUevent)pick(EVENT, &at)));
    case 2:
        if (!has_managed())
            return CALL(cuGraphAddEmptyNode(node, graph, needs, count));
        return CALL(cuGraphAddEventWaitNode(node, graph, needs, count, (CUevent)pick(EVENT, &at)));
    case 3:
        return CALL(cuGraphAddChildGraphNode(node, graph, needs, count, (CUgraph)pick(GRAPH, &at)));
    default:
        return CALL(cuGraphAddEmptyNode(node, graph, needs, count));
    }
}

/* The node that was added last, of those that are known. */
static struct object *last_of(CUgraph graph)
{
    struct object *last = NULL;
    for (int i = 0; i < SLOTS; i++) {
        struct object *one = &objects[NODE][i];
        if (one->state == LIVE && one->bytes == (uint64_t)graph && (!last || one->uses > last->uses))
            last = one;
    }
    return last;
}

static bool is_empty(CUgraph graph)
{
    size_t count = 1;
    return cuGraphGetNodes(graph, NULL, &count) == CUDA_SUCCESS && count == 0;
}

/* In a graph that is to be launched each node comes after the one before: branches would race with each other. */
static bool may_add(struct object *graph, const struct object *last, const struct object *slot)
{
    return has_managed() || !graph || (slot && (last || is_empty((CUgraph)graph->value)));
}

static void add(void)
{
    static unsigned added;
    struct object *at, *before, *slot = room(NODE);
    CUgraphNode node = (CUgraphNode)UNTOUCHED, needed = (CUgraphNode)pick(NODE, &before);
    CUgraph graph = (CUgraph)pick(GRAPH, &at);
    struct object *last = at ? last_of(graph) : NULL;
    if (!may_add(at, last, slot))
        return;
    size_t count = before && chance(10);
    if (last && (!has_managed() || chance(50))) {
        needed = (CUgraphNode)last->value;
        count = 1;
    }
    unsigned way = (unsigned)draw(4);
    CUresult code = way == 0   ? add_memory(&node, graph, &needed, count)
                    : way == 1 ? add_kernel(&node, graph, &needed, count)
                    : way == 2 ? add_allocation(&node, graph, &needed, count)
                               : add_other(&node, graph, &needed, count);
    if (code == CUDA_SUCCESS && slot && at) {
        keep(slot, (uint64_t)node, (uint64_t)graph);
        slot->uses = ++added;
    } else if (code) {
        note_untouched("node", (uint64_t)node);
    }
}

static void depend(void)
{
    struct object *at, *from_at, *to_at;
    CUgraphNode from = (CUgraphNode)pick(NODE, &from_at), to = (CUgraphNode)pick(NODE, &to_at);
    CUgraph graph = (CUgraph)pick(GRAPH, &at);
    if (from_at && chance(90))
        graph = (CUgraph)from_at->bytes;
    if (!has_managed() || chance(70))
        CALL(cuGraphAddDependencies(graph, &from, &to, 1));
    else
        CALL(cuGraphRemoveDependencies(graph, &from, &to, 1));
}

static void ask(void)
{
    struct object *at;
    CUgraphNode node = (CUgraphNode)pick(NODE, &at);
    CUgraphNodeType type = (CUgraphNodeType)55;
    size_t count = 55;
    CUDA_MEMSET_NODE_PARAMS fill;
    memset(&fill, 0, sizeof fill);
    CALL(cuGraphNodeGetType(node, chance(3) ? NULL : &type));
    note("type", type);
    CALL(cuGraphNodeGetDependencies(node, NULL, &count));
    note("count", count);
    CALL(cuGraphNodeGetDependentNodes(node, NULL, &count));
    note("count", count);
    CALL(cuGraphMemsetNodeGetParams(node, &fill));
    note("value", fill.value);
}

static void destroy(void)
{
    struct object *at;
    CUgraphNode node = (CUgraphNode)pick(NODE, &at);
    if (at && !has_managed())
        return;
    if (CALL(cuGraphDestroyNode(node)) == CUDA_SUCCESS && at)
        drop(at);
}

static void enable(void)
{
    struct object *at, *other;
    unsigned is_enabled = 55;
    CUgraphExec exec = (CUgraphExec)pick(EXEC, &at);
    CUgraphNode node = (CUgraphNode)pick(NODE, &other);
    settle();
    CALL(cuGraphNodeSetEnabled(exec, node, (unsigned)draw(2)));
    CALL(cuGraphNodeGetEnabled(exec, node, &is_enabled));
    note("is_enabled", is_enabled);
}

static void set_parameters(void)
{
    struct object *at, *other;
    uint64_t bytes;
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = pick_memory(&bytes), .value = 7, .elementSize = 1,
                                    .width = 1 + draw(64), .height = 1};
    CUgraphNode node = (CUgraphNode)pick(NODE, &other);
    CUgraphExec exec = (CUgraphExec)pick(EXEC, &at);
    settle();
    if (chance(50))
        CALL(cuGraphMemsetNodeSetParams(node, &fill));
    else
        CALL(cuGraphExecMemsetNodeSetParams(exec, node, &fill, current_context()));
}

static void graph_memory(void)
{
    cuuint64_t value = UNTOUCHED;
    int device = draw_device();
    settle();
    CALL(cuDeviceGetGraphMemAttribute(device, (CUgraphMem_attribute)draw(5), &value));
    note("value", value);
    CALL(cuDeviceGraphMemTrim(device));
}

static const struct operation operations[] = {
    {"node_add", 9, add},         {"node_depend", 3, depend},       {"node_ask", 2, ask},
    {"node_destroy", 1, destroy}, {"node_enable", 1, enable},       {"node_set", 2, set_parameters},
    {"graph_memory", 1, graph_memory},
};
const struct family node_family = FAMILY(operations);
