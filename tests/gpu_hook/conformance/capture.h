/* The shared parts of the capture families. */
#ifndef ALIQUOT_CONFORMANCE_CAPTURE_H
#define ALIQUOT_CONFORMANCE_CAPTURE_H

#include "graphs.h"

static inline CUstream capturing(CUstreamCaptureMode mode)
{
    CUstream stream = a_stream();
    EXPECT_OK(cuStreamBeginCapture(stream, mode));
    return stream;
}

static inline CUevent an_event(void)
{
    CUevent event;
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static inline CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status;
    EXPECT_OK(cuStreamIsCapturing(stream, &status));
    return status;
}

static inline CUgraph ended(CUstream stream, size_t want_nodes)
{
    CUgraph graph;
    size_t nodes;
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    EXPECT_OK(cuGraphGetNodes(graph, NULL, &nodes));
    EXPECT_EQUAL(nodes, want_nodes);
    return graph;
}

static inline void launch_fill(CUdeviceptr pointer, uint32_t value, CUstream stream)
{
    CUDA_KERNEL_NODE_PARAMS kernel = fill_kernel(pointer, value);
    EXPECT_OK(cuLaunchKernel(kernel.func, 1, 1, 1, 128, 1, 1, 0, stream, kernel.kernelParams, NULL));
}

static inline void expect_broken(CUstream stream)
{
    CUgraph graph = (CUgraph)1;
    EXPECT_EQUAL(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(graph == NULL);
    EXPECT_EQUAL(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

#endif
