/* Graphs, their executables, and user objects. */
#include <string.h>

#include "fuzz.h"

static void create(void)
{
    CUgraph graph = (CUgraph)UNTOUCHED;
    struct object *slot = room(GRAPH);
    if (!slot)
        return;
    CUgraph *result = chance(2) ? NULL : &graph;
    if (CALL(cuGraphCreate(result, chance(3) ? 1 : 0)) == CUDA_SUCCESS && result)
        keep(slot, (uint64_t)graph, 0);
    else
        note_untouched("graph", (uint64_t)graph);
}

static void forget_nodes(uint64_t graph)
{
    for (int i = 0; i < SLOTS; i++)
        if (objects[NODE][i].state == LIVE && objects[NODE][i].bytes == graph)
            drop(&objects[NODE][i]);
}

static void destroy(void)
{
    struct object *at;
    CUgraph graph = (CUgraph)pick(GRAPH, &at);
    settle();
    if (CALL(cuGraphDestroy(graph)) == CUDA_SUCCESS && at) {
        forget_nodes(at->value);
        drop(at);
    }
}

static void clone(void)
{
    struct object *at, *slot = room(GRAPH);
    CUgraph graph = (CUgraph)UNTOUCHED;
    if (slot && CALL(cuGraphClone(&graph, (CUgraph)pick(GRAPH, &at))) == CUDA_SUCCESS)
        keep(slot, (uint64_t)graph, 0);
}

static void instantiate(void)
{
    struct object *at, *slot = room(EXEC);
    CUgraphExec exec = (CUgraphExec)UNTOUCHED;
    CUgraph graph = (CUgraph)pick(GRAPH, &at);
    if (!slot)
        return;
    settle();
    CUresult code = chance(80) ? CALL(cuGraphInstantiateWithFlags(&exec, graph, chance(90) ? 0 : draw(16)))
                               : CALL(cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0));
    if (code == CUDA_SUCCESS)
        keep(slot, (uint64_t)exec, 0);
    else
        note_untouched("exec", (uint64_t)exec);
}

static void launch(void)
{
    struct object *at;
    CUgraphExec exec = (CUgraphExec)pick(EXEC, &at);
    CUstream stream = pick_stream();
    if (has_managed())
        return;
    begin_work(stream);
    if (chance(20))
        CALL(cuGraphUpload(exec, stream));
    CALL(cuGraphLaunch(exec, stream));
    settle();
}

static void update(void)
{
    struct object *at, *other;
    CUgraphExecUpdateResultInfo found;
    memset(&found, 0, sizeof found);
    settle();
    CALL(cuGraphExecUpdate_v2((CUgraphExec)pick(EXEC, &at), (CUgraph)pick(GRAPH, &other), &found));
    note("result", found.result);
}

static void exec_destroy(void)
{
    struct object *at;
    CUgraphExec exec = (CUgraphExec)pick(EXEC, &at);
    settle();
    if (CALL(cuGraphExecDestroy(exec)) == CUDA_SUCCESS && at)
        drop(at);
}

static void ask(void)
{
    struct object *at;
    CUgraph graph = (CUgraph)pick(GRAPH, &at);
    CUgraphNode nodes[64];
    size_t count = 64, roots = 0, edges = 0;
    CALL(cuGraphGetNodes(graph, chance(50) ? NULL : nodes, &count));
    note("nodes", count);
    CALL(cuGraphGetRootNodes(graph, NULL, &roots));
    note("roots", roots);
    CALL(cuGraphGetEdges(graph, NULL, NULL, &edges));
    note("edges", edges);
}

static void CUDA_CB nothing(void *unused)
{
    (void)unused;
}

static void user_object(void)
{
    struct object *at, *other, *slot = room(USER_OBJECT);
    CUuserObject made = (CUuserObject)UNTOUCHED;
    if (slot && chance(40)) {
        if (CALL(cuUserObjectCreate(&made, NULL, chance(3) ? NULL : nothing, chance(4) ? 0 : 1,
                                    CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)) == CUDA_SUCCESS)
            keep(slot, (uint64_t)made, 0);
        return;
    }
    CUuserObject old = (CUuserObject)pick(USER_OBJECT, &at);
    if (chance(40))
        CALL(cuGraphRetainUserObject((CUgraph)pick(GRAPH, &other), old, 1, chance(5) ? 4 : 0));
    if (CALL(cuUserObjectRelease(old, 1)) == CUDA_SUCCESS && at)
        drop(at);
}

static const struct operation operations[] = {
    {"graph_create", 3, create},      {"graph_destroy", 3, destroy}, {"graph_clone", 1, clone},
    {"graph_instantiate", 4, instantiate}, {"graph_launch", 6, launch}, {"graph_update", 2, update},
    {"exec_destroy", 3, exec_destroy}, {"graph_ask", 2, ask},        {"user_object", 2, user_object},
};
const struct family graph_family = FAMILY(operations);
