#include "captures.h"

#include "activation.h"
#include "driver.h"
#include "elastic.h"
#include "residency.h"

#include <stdint.h>

typedef CUresult (*capture_query)(CUstream, CUstreamCaptureStatus *);

static struct {
    uint32_t count; /* atomic */
} state;

bool captures_are_on(void)
{
    return __atomic_load_n(&state.count, __ATOMIC_ACQUIRE) != 0;
}

void captures_reset(void)
{
    state.count = 0;
}

/* Counted before the driver's call, so that nobody waits for the context once it captures; and never begun while the
 * memory is moved. */
#define DEFINE_BEGIN(name, parameters, arguments)                        \
    CUresult name parameters                                             \
    {                                                                    \
        if (!activation_enter())                                         \
            return driver()->name arguments;                             \
        residency_enter();                                               \
        __atomic_fetch_add(&state.count, 1, __ATOMIC_ACQ_REL);           \
        CUresult result = driver()->name arguments;                      \
        if (result != CUDA_SUCCESS)                                      \
            __atomic_fetch_sub(&state.count, 1, __ATOMIC_ACQ_REL);       \
        residency_leave();                                               \
        activation_leave();                                              \
        return result;                                                   \
    }

#define INTO_GRAPH                                                                                              \
    (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, \
     CUstreamCaptureMode mode)

DEFINE_BEGIN(cuStreamBeginCapture, (CUstream stream), (stream))
DEFINE_BEGIN(cuStreamBeginCapture_ptsz, (CUstream stream), (stream))
DEFINE_BEGIN(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
DEFINE_BEGIN(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
DEFINE_BEGIN(cuStreamBeginCaptureToGraph, INTO_GRAPH, (stream, graph, dependencies, edges, count, mode))
DEFINE_BEGIN(cuStreamBeginCaptureToGraph_ptsz, INTO_GRAPH, (stream, graph, dependencies, edges, count, mode))

static bool is_capturing(CUstream stream, capture_query query)
{
    CUstreamCaptureStatus status;
    return query(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A call that fails ends an invalid capture, and leaves one that another thread began. */
static CUresult end(CUstream stream, CUgraph *graph, capture_query query, CUresult (*real)(CUstream, CUgraph *))
{
    if (!activation_enter())
        return real(stream, graph);
    bool was_capturing = is_capturing(stream, query);
    CUresult result = real(stream, graph);
    if (was_capturing && !is_capturing(stream, query))
        __atomic_fetch_sub(&state.count, 1, __ATOMIC_ACQ_REL);
    elastic_sweep();
    activation_leave();
    return result;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return end(stream, graph, driver()->cuStreamIsCapturing, driver()->cuStreamEndCapture);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return end(stream, graph, driver()->cuStreamIsCapturing_ptsz, driver()->cuStreamEndCapture_ptsz);
}
