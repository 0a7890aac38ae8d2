/* Captured calls become nodes behind the front of their stream. Events carry a front to other
 * streams: so a capture forks and joins. */
#include <stdlib.h>
#include <string.h>

#include "capture/capture_state.h"
#include "queue/events.h"
#include "implemented.h"
#include "memory/window.h"

/* Under the mutex: the node goes behind all that its stream has captured, and is the stream's front
 * from then on. */
static CUresult put(struct stream *stream, struct node *node)
{
    struct captured *part = stream->captured;
    if (part == NULL || part->capture->is_invalid) {
        node_free(node);
        return part ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_ILLEGAL_STATE;
    }
    CUgraphNode handle = (CUgraphNode)node;
    CUresult result =
        graph_attach(part->capture->graph, node, part->front.nodes, part->front.data, part->front.count);
    if (result == CUDA_SUCCESS && front_set(&part->front, &handle, NULL, 1) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) /* a graph that lacks a node must not be used */
        part->capture->is_invalid = 1;
    return result;
}

static CUresult add(struct stream *stream, CUgraphNodeParams *params)
{
    struct node *node;
    CUresult result = node_new(params, &node);
    if (result)
        return result;
    pthread_mutex_lock(&capture_mutex);
    result = put(stream, node);
    pthread_mutex_unlock(&capture_mutex);
    return result;
}

CUresult capture_launch(struct stream *stream, const CUlaunchConfig *config, CUfunction function, void **parameters,
                        void **extra, int is_cooperative)
{
    struct node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUDA_KERNEL_NODE_PARAMS_v3 params = {
        .func = function, .gridDimX = config->gridDimX, .gridDimY = config->gridDimY, .gridDimZ = config->gridDimZ,
        .blockDimX = config->blockDimX, .blockDimY = config->blockDimY, .blockDimZ = config->blockDimZ,
        .sharedMemBytes = config->sharedMemBytes, .kernelParams = parameters, .extra = extra,
        .ctx = (CUcontext)stream->context};
    node->params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    CUresult result = kernel_fill(node, &params, is_cooperative);
    if (result) {
        free(node);
        return result;
    }
    pthread_mutex_lock(&capture_mutex);
    result = put(stream, node);
    pthread_mutex_unlock(&capture_mutex);
    return result;
}

/* The same bytes, as a descriptor. */
CUresult capture_copy(struct stream *stream, struct place to, struct place from, struct shape shape)
{
    if (shape.width == 0 || shape.height == 0 || shape.depth == 0)
        return CUDA_SUCCESS;
    int to_device = window_is_device(to.address), from_device = window_is_device(from.address);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    params.memcpy.copyCtx = (CUcontext)stream->context;
    params.memcpy.copyParams = (CUDA_MEMCPY3D){
        .srcMemoryType = from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .srcHost = from_device ? NULL : (const void *)from.address, .srcDevice = from_device ? from.address : 0,
        .srcPitch = from.pitch, .srcHeight = from.height,
        .dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .dstHost = to_device ? NULL : (void *)to.address, .dstDevice = to_device ? to.address : 0,
        .dstPitch = to.pitch, .dstHeight = to.height,
        .WidthInBytes = shape.width, .Height = shape.height, .Depth = shape.depth};
    return add(stream, &params);
}

CUresult capture_fill(struct stream *stream, struct place to, uint32_t value, unsigned element_bytes,
                      struct shape shape)
{
    if (shape.width == 0 || shape.height == 0)
        return CUDA_SUCCESS;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    params.memset = (CUDA_MEMSET_NODE_PARAMS_v2){.dst = to.address, .pitch = to.pitch, .value = value,
                                                 .elementSize = element_bytes, .width = shape.width / element_bytes,
                                                 .height = shape.height, .ctx = (CUcontext)stream->context};
    return add(stream, &params);
}

CUresult capture_host_call(struct stream *stream, CUhostFn function, void *data)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
    params.host.fn = function;
    params.host.userData = data;
    return add(stream, &params);
}

CUresult capture_external_event(struct stream *stream, CUevent event, int is_wait)
{
    CUgraphNodeParams params = {.type = is_wait ? CU_GRAPH_NODE_TYPE_WAIT_EVENT : CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    if (is_wait)
        params.eventWait.event = event;
    else
        params.eventRecord.event = event;
    return add(stream, &params);
}

CUresult capture_allocation(struct stream *stream, CUdevice device, size_t bytes, CUdeviceptr *address)
{
    struct node *node;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.alloc.poolProps.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    params.alloc.bytesize = bytes;
    CUresult result = node_new(&params, &node);
    if (result)
        return result;
    CUdeviceptr made = node->params.alloc.dptr;
    pthread_mutex_lock(&capture_mutex);
    result = put(stream, node);
    pthread_mutex_unlock(&capture_mutex);
    if (result == CUDA_SUCCESS)
        *address = made;
    return result;
}

CUresult capture_free(struct stream *stream, CUdeviceptr address)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
    params.free.dptr = address;
    return add(stream, &params);
}

/* A graph that is launched into a captured stream becomes a child graph. */
CUresult capture_graph(struct stream *stream, struct graph *graph)
{
    struct node *node = calloc(1, sizeof *node);
    struct graph *copy = NULL;
    CUresult result = node == NULL          ? CUDA_ERROR_OUT_OF_MEMORY
                      : graph->memory_nodes ? CUDA_ERROR_NOT_SUPPORTED
                                            : graph_copy(graph, 0, &copy);
    if (result) {
        free(node);
        return result;
    }
    node->params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    node->params.graph.graph = (CUgraph)copy;
    pthread_mutex_lock(&capture_mutex);
    result = put(stream, node);
    pthread_mutex_unlock(&capture_mutex);
    return result;
}

CUresult capture_event(struct stream *stream, struct event *event)
{
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct captured_event *mark = calloc(1, sizeof *mark);
    pthread_mutex_lock(&capture_mutex);
    const struct captured *part = stream->captured;
    if (part && !part->capture->is_invalid) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (mark && front_set(&mark->front, part->front.nodes, part->front.data, part->front.count) == 0) {
            mark->capture_id = part->capture->id;
            mark = atomic_exchange(&event->captured, mark);
            result = CUDA_SUCCESS;
        }
    }
    pthread_mutex_unlock(&capture_mutex);
    if (mark)
        front_free(&mark->front);
    free(mark);
    return result;
}

void capture_forget_event(struct event *event)
{
    struct captured_event *mark = atomic_exchange(&event->captured, NULL);
    if (mark)
        front_free(&mark->front);
    free(mark);
}

/* Under the mutex: the stream comes behind the event's front, and into its capture. */
static CUresult follow(struct stream *stream, const struct captured_event *mark)
{
    struct capture *capture = capture_find(mark->capture_id);
    struct captured *part = stream->captured;
    if (capture == NULL)
        /* of a capture that has ended: it stands for nothing that runs */
        return CUDA_ERROR_CAPTURED_EVENT;
    if (part && part->capture->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (part && part->capture != capture) {
        part->capture->is_invalid = capture->is_invalid = 1;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (capture->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->kind == STREAM_LEGACY) {
        capture->is_invalid = 1;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (part == NULL)
        part = capture_join(capture, stream);
    if (part == NULL || front_add(&part->front, mark->front.nodes, mark->front.data, mark->front.count) != 0) {
        capture->is_invalid = 1;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

int capture_wait(struct stream *stream, struct event *event, unsigned flags, CUresult *result)
{
    int takes = capture_takes_part(stream, result);
    if (takes && flags & CU_EVENT_WAIT_EXTERNAL) {
        *result = capture_external_event(stream, (CUevent)event, 1);
        return 1;
    }
    pthread_mutex_lock(&capture_mutex);
    const struct captured_event *mark = atomic_load(&event->captured);
    int is_done = 1;
    if (*result) {
        is_done = 1;
    } else if (mark) {
        *result = follow(stream, mark);
    } else if (stream->captured) {
        stream->captured->capture->is_invalid = 1;
        *result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    } else {
        is_done = 0;
    }
    pthread_mutex_unlock(&capture_mutex);
    return is_done;
}
