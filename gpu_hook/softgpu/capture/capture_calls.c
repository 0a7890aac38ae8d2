/* The calls that begin, end, and look into a capture. */
#include "capture/capture_state.h"
#include "driver/handles.h"
#include "implemented.h"

/* `graph` NULL: a new one. */
static CUresult begin(CUstream handle, CUstreamCaptureMode mode, struct graph *graph, const struct front *front)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(handle, &stream, &context);
    if (result || (unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (stream->kind == STREAM_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    int is_given = graph != NULL;
    if (!is_given) {
        CUgraph made;
        result = impl_cuGraphCreate(&made, 0);
        if (result)
            return result;
        graph = (struct graph *)made;
    }
    pthread_mutex_lock(&capture_mutex);
    struct capture *capture = stream->captured ? NULL : capture_begin(stream, graph, mode);
    if (capture == NULL)
        result = stream->captured ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_OUT_OF_MEMORY;
    else
        capture->is_given = is_given;
    if (capture && front && front_set(&stream->captured->front, front->nodes, front->data, front->count) != 0) {
        capture_end(capture);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&capture_mutex);
    if (result && !is_given)
        graph_free(graph);
    return result;
}

CUresult impl_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    return begin(hStream, mode, NULL, NULL);
}

/* The first version knew no modes. */
CUresult impl_cuStreamBeginCapture(CUstream hStream)
{
    return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL);
}

CUresult impl_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                          CUstreamCaptureMode mode)
{
    struct graph *graph = graph_of(hGraph);
    CUresult result = graph ? graph_check_needs(graph, dependencies, dependencyData, numDependencies)
                            : CUDA_ERROR_INVALID_VALUE;
    struct front front = {(CUgraphNode *)dependencies, (CUgraphEdgeData *)dependencyData, numDependencies};
    return result ? result : begin(hStream, mode, graph, &front);
}

/* Under the mutex. An error that leaves the capture as it is comes first; the rest end it without a
 * graph. */
static CUresult end(struct stream *stream, CUgraph *out)
{
    struct captured *part = stream->captured;
    if (part == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = part->capture;
    if (capture->origin != stream) {
        capture->is_invalid = 1;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != capture_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = capture->is_invalid             ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : capture_is_unjoined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                                      : CUDA_SUCCESS;
    struct graph *graph = capture->graph;
    int is_given = capture->is_given;
    capture_end(capture);
    if (result == CUDA_SUCCESS)
        *out = (CUgraph)graph;
    else if (!is_given)
        graph_free(graph);
    return result;
}

CUresult impl_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || phGraph == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *phGraph = NULL;
    pthread_mutex_lock(&capture_mutex);
    result = end(stream, phGraph);
    pthread_mutex_unlock(&capture_mutex);
    return result;
}

CUresult impl_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                        cuuint64_t *id_out, CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                        const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || captureStatus_out == NULL || (edgeData_out && dependencies_out == NULL))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&capture_mutex);
    const struct captured *part = stream->captured;
    if (part == NULL && stream->kind == STREAM_LEGACY && capture_break_blocking(context, 0)) {
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else if (part == NULL) {
        *captureStatus_out = CU_STREAM_CAPTURE_STATUS_NONE;
    } else {
        *captureStatus_out = part->capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if (id_out)
            *id_out = part->capture->id;
        if (graph_out)
            *graph_out = (CUgraph)part->capture->graph;
        if (dependencies_out)
            *dependencies_out = part->front.nodes;
        if (edgeData_out)
            *edgeData_out = part->front.data;
        if (numDependencies_out)
            *numDependencies_out = part->front.count;
        for (size_t i = 0; dependencies_out && !edgeData_out && i < part->front.count; i++)
            if (part->front.data[i].type || part->front.data[i].from_port)
                result = CUDA_ERROR_LOSSY_QUERY;
    }
    pthread_mutex_unlock(&capture_mutex);
    return result;
}

CUresult impl_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                        CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                        size_t *numDependencies_out)
{
    return impl_cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                                          numDependencies_out);
}

CUresult impl_cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out)
{
    return impl_cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, NULL, NULL, NULL, NULL);
}

CUresult impl_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    return impl_cuStreamGetCaptureInfo_v3(hStream, captureStatus, NULL, NULL, NULL, NULL, NULL);
}

CUresult impl_cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                                   const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                                   unsigned int flags)
{
    struct stream *stream;
    struct context *context;
    CUresult result = stream_resolve(hStream, &stream, &context);
    if (result || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&capture_mutex);
    struct captured *part = stream->captured;
    if (part == NULL)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (part->capture->is_invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else
        result = graph_check_needs(part->capture->graph, dependencies, dependencyData, numDependencies);
    if (result == CUDA_SUCCESS) {
        int failed = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES
                         ? front_set(&part->front, dependencies, dependencyData, numDependencies)
                         : front_add(&part->front, dependencies, dependencyData, numDependencies);
        result = failed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&capture_mutex);
    return result;
}

CUresult impl_cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
                                                unsigned int flags)
{
    return impl_cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies, flags);
}
