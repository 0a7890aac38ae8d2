/* Entry points that begin and end captures, and end streams with theirs. */
#include "base/guard.h"
#include "contexts/captures.h"
#include "interpose/driver.h"
#include "ordered/ordered_pools.h"
#include "swappable/swappable.h"
#include "compute/pacing.h"
#include "gate/residency.h"

#include <stdint.h>

typedef CUresult (*capture_query)(CUstream, CUstreamCaptureStatus *);

/* After the driver's call. */
static void begun(CUresult result, struct capture *capture)
{
    if (result == CUDA_SUCCESS)
        captures_put(capture);
    else
        captures_uncount(capture);
}

/* A capture is counted before the driver's call, so that no thread waits for the context once it
 * captures. It never begins while the memory is moved. */
#define DEFINE_BEGIN(name, parameters, arguments, mode)            \
    CUresult name parameters                                       \
    {                                                              \
        if (!guard_enter())                                        \
            return driver()->name arguments;                       \
        if (!residency_enter()) {                                  \
            guard_leave();                                         \
            return CUDA_ERROR_OUT_OF_MEMORY;                       \
        }                                                          \
        struct capture *capture = captures_describe(stream, mode); \
        pacing_close(); /* nothing is recorded once it counts */   \
        captures_count();                                          \
        ordered_stream_closes(stream, false);                      \
        pacing_begin_capture(stream);                              \
        CUresult result = driver()->name arguments;                \
        begun(result, capture);                                    \
        residency_leave();                                         \
        guard_leave();                                             \
        return result;                                             \
    }

#define INTO_GRAPH                                                    \
    (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, \
     const CUgraphEdgeData *edges, size_t count,                      \
     CUstreamCaptureMode mode)

#define GLOBAL CU_STREAM_CAPTURE_MODE_GLOBAL

DEFINE_BEGIN(cuStreamBeginCapture, (CUstream stream), (stream), GLOBAL)
DEFINE_BEGIN(cuStreamBeginCapture_ptsz, (CUstream stream), (stream), GLOBAL)
DEFINE_BEGIN(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode),
             mode)
DEFINE_BEGIN(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode),
             (stream, mode), mode)
DEFINE_BEGIN(cuStreamBeginCaptureToGraph, INTO_GRAPH,
             (stream, graph, dependencies, edges, count, mode), mode)
DEFINE_BEGIN(cuStreamBeginCaptureToGraph_ptsz, INTO_GRAPH,
             (stream, graph, dependencies, edges, count, mode), mode)

static bool is_capturing(CUstream stream, capture_query query)
{
    CUstreamCaptureStatus status;
    return query(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A call that fails ends an invalid capture, and leaves one that another thread began. */
static CUresult end(CUstream stream, CUgraph *graph, capture_query query,
                    CUresult (*real)(CUstream, CUgraph *))
{
    if (!guard_enter())
        return real(stream, graph);
    bool was_capturing = is_capturing(stream, query);
    CUresult result = real(stream, graph);
    if (was_capturing && !is_capturing(stream, query)) {
        captures_uncount(captures_take(stream, 1));
    }
    swappable_sweep();
    guard_leave();
    return result;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return end(stream, graph, driver()->cuStreamIsCapturing, driver()->cuStreamEndCapture);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return end(stream, graph, driver()->cuStreamIsCapturing_ptsz,
               driver()->cuStreamEndCapture_ptsz);
}

/* Ends the stream's capture, too. Taken from the list before the call, for the next stream may get
 * the same handle. */
static CUresult destroy(CUstream stream, CUresult (*real)(CUstream))
{
    if ((!captures_are_on() && !pacing_is_used() && !ordered_is_used()) || !guard_enter())
        return real(stream);
    ordered_stream_closes(stream, true);
    bool is_left = pacing_end_stream(stream, real);
    struct capture *ended = captures_take(stream, UINT32_MAX);
    CUresult result = is_left ? CUDA_SUCCESS : real(stream);
    if (result == CUDA_SUCCESS)
        captures_uncount_all(ended);
    else
        captures_put(ended);
    swappable_sweep();
    guard_leave();
    return result;
}

CUresult cuStreamDestroy(CUstream stream)
{
    return destroy(stream, driver()->cuStreamDestroy);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    return destroy(stream, driver()->cuStreamDestroy_v2);
}
