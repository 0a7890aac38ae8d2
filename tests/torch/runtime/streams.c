/* Streams, events, capture and graphs: thin, for the handles of the two interfaces are the same. */
#include "runtime.h"

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    FORWARD(driver()->cuStreamCreateWithPriority(stream, flags, priority));
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    FORWARD(driver()->cuStreamDestroy(stream));
}

EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    FORWARD(driver()->cuStreamQuery(stream));
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    FORWARD(driver()->cuStreamSynchronize(stream));
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    FORWARD(driver()->cuStreamWaitEvent(stream, event, flags));
}

EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    FORWARD(driver()->cuStreamGetPriority(stream, priority));
}

EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data,
                                         unsigned int flags)
{
    FORWARD(driver()->cuStreamAddCallback(stream, (CUstreamCallback)(void *)callback, data, flags));
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    FORWARD(driver()->cuLaunchHostFunc(stream, function, data));
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    FORWARD(driver()->cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    FORWARD(driver()->cuStreamEndCapture(stream, graph));
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    FORWARD(driver()->cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status));
}

EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                            unsigned long long *id, cudaGraph_t *graph,
                                            const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges,
                                            size_t *count)
{
    FORWARD(driver()->cuStreamGetCaptureInfo(stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id, graph,
                                             dependencies, (const CUgraphEdgeData **)edges, count));
}

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    FORWARD(driver()->cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    FORWARD(driver()->cuEventCreate(event, flags));
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    FORWARD(driver()->cuEventDestroy(event));
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event)
{
    FORWARD(driver()->cuEventQuery(event));
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    FORWARD(driver()->cuEventRecord(event, stream));
}

EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    FORWARD(driver()->cuEventRecordWithFlags(event, stream, flags));
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    FORWARD(driver()->cuEventSynchronize(event));
}

EXPORT cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    FORWARD(driver()->cuEventElapsedTime(milliseconds, begin, end));
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    FORWARD(driver()->cuGraphDestroy(graph));
}

EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    FORWARD(driver()->cuGraphGetNodes(graph, nodes, count));
}

EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies,
                                                cudaGraphEdgeData *edges, size_t *count)
{
    FORWARD(driver()->cuGraphNodeGetDependencies(node, dependencies, (CUgraphEdgeData *)edges, count));
}

EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    FORWARD(driver()->cuGraphInstantiateWithFlags(exec, graph, flags));
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    FORWARD(driver()->cuGraphExecDestroy(exec));
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    FORWARD(driver()->cuGraphLaunch(exec, stream));
}

EXPORT cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned int flags)
{
    FORWARD(driver()->cuGraphDebugDotPrint(graph, path, flags));
}

EXPORT cudaError_t cudaProfilerStart(void)
{
    return cudaSuccess;
}

EXPORT cudaError_t cudaProfilerStop(void)
{
    return cudaSuccess;
}
