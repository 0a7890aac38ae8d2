/* Stream capture. */
#include "fuzz.h"

static void begin(void)
{
    CUstream stream = pick_stream();
    settle();
    draw_modestly(true);
    CALL(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)draw(chance(4) ? 5 : 3)));
}

static void begin_to_graph(void)
{
    struct object *at;
    CUstream stream = pick_stream();
    settle();
    draw_modestly(true);
    CALL(cuStreamBeginCaptureToGraph(stream, (CUgraph)pick(GRAPH, &at), NULL, NULL, 0, (CUstreamCaptureMode)draw(3)));
}

static void end(void)
{
    CUgraph graph = (CUgraph)UNTOUCHED;
    CUstream stream = NULL;
    struct object *slot = room(GRAPH);
    for (int i = 0; i < SLOTS && chance(80); i++)
        if (objects[STREAM][i].state == LIVE && is_captured((CUstream)objects[STREAM][i].value))
            stream = (CUstream)objects[STREAM][i].value;
    if (!stream)
        stream = pick_stream();
    if (!slot)
        return;
    if (CALL(cuStreamEndCapture(stream, &graph)) != CUDA_SUCCESS) {
        note_untouched("graph", (uint64_t)graph);
        return;
    }
    size_t count = 0;
    CALL(cuGraphGetNodes(graph, NULL, &count));
    note("nodes", count);
    for (int i = 0; i < SLOTS; i++)
        if (objects[GRAPH][i].state == LIVE && objects[GRAPH][i].value == (uint64_t)graph)
            return; /* captured into a graph that is there already */
    if (graph)
        keep(slot, (uint64_t)graph, 0);
}

static void ask(void)
{
    CUstream stream = pick_stream();
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)55;
    cuuint64_t number = 0;
    CUgraph graph = NULL;
    const CUgraphNode *dependencies = NULL;
    size_t count = 0;
    CALL(cuStreamIsCapturing(stream, chance(3) ? NULL : &status));
    note("status", status);
    CALL(cuStreamGetCaptureInfo_v2(stream, &status, &number, &graph, &dependencies, &count));
    note("status", status);
    note("graph", graph != NULL);
    note("count", count);
}

static void exchange(void)
{
    CUstreamCaptureMode mode = (CUstreamCaptureMode)draw(chance(4) ? 5 : 3);
    CALL(cuThreadExchangeStreamCaptureMode(chance(3) ? NULL : &mode));
    note("mode", mode);
}

static const struct operation operations[] = {
    {"capture_begin", 3, begin},  {"capture_to_graph", 1, begin_to_graph}, {"capture_end", 7, end},
    {"capture_ask", 2, ask},      {"capture_mode", 1, exchange},
};
const struct family capture_family = FAMILY(operations);
