#include "streams/captures.h"

#include "activation.h"
#include "interpose/driver.h"
#include "swap/elastic.h"
#include "compute/pacing.h"
#include "swap/residency.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

typedef CUresult (*capture_query)(CUstream, CUstreamCaptureStatus *);

struct capture {
    CUstream stream;
    CUcontext context;
    CUstreamCaptureMode mode;
    pthread_t thread; /* that began it */
    struct capture *next;
};

static struct {
    pthread_mutex_t mutex; /* guards the list */
    struct capture *all;   /* one that there was no memory for is missing */
    uint32_t count;        /* atomic */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

bool captures_are_on(void)
{
    return __atomic_load_n(&state.count, __ATOMIC_ACQUIRE) != 0;
}

void captures_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    state.all = NULL; /* the parent's */
    state.count = 0;
}

/* The driver's rule, from cuThreadExchangeStreamCaptureMode: a thread in RELAXED mode may call whatever it likes, a capture
 * begun so forbids nothing, the thread's own capture forbids, and another thread's does where both modes are GLOBAL. */
static bool is_forbidding(const struct capture *capture, CUstreamCaptureMode own)
{
    if (own == CU_STREAM_CAPTURE_MODE_RELAXED || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    return pthread_equal(capture->thread, pthread_self()) ||
           (own == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

bool captures_forbid_unsafe_calls(void)
{
    CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool is_forbidden = false;
    if (!captures_are_on() || driver()->cuThreadExchangeStreamCaptureMode(&own) != CUDA_SUCCESS)
        return false;
    CUstreamCaptureMode again = own; /* the driver answers into it */
    driver()->cuThreadExchangeStreamCaptureMode(&again);
    pthread_mutex_lock(&state.mutex);
    for (const struct capture *capture = state.all; capture && !is_forbidden; capture = capture->next)
        is_forbidden = is_forbidding(capture, own);
    pthread_mutex_unlock(&state.mutex);
    return is_forbidden;
}

static void put(struct capture *added)
{
    pthread_mutex_lock(&state.mutex);
    while (added) {
        struct capture *next = added->next;
        added->next = state.all;
        state.all = added;
        added = next;
    }
    pthread_mutex_unlock(&state.mutex);
}

/* Of the stream, or of the context where that is not NULL; at most so many. They stay counted. */
static struct capture *take(CUstream stream, CUcontext context, unsigned most)
{
    struct capture *taken = NULL;
    pthread_mutex_lock(&state.mutex);
    for (struct capture **link = &state.all; *link && most;) {
        struct capture *capture = *link;
        if (context ? capture->context != context : capture->stream != stream) {
            link = &capture->next;
            continue;
        }
        *link = capture->next;
        capture->next = taken;
        taken = capture;
        most--;
    }
    pthread_mutex_unlock(&state.mutex);
    return taken;
}

static void uncount(void)
{
    __atomic_fetch_sub(&state.count, 1, __ATOMIC_ACQ_REL);
}

static void uncount_all(struct capture *ended)
{
    while (ended) {
        struct capture *next = ended->next;
        free(ended);
        uncount();
        ended = next;
    }
}

void captures_forget_context(CUcontext context)
{
    if (context && captures_are_on())
        uncount_all(take(NULL, context, UINT32_MAX));
}

/* A stream without a context of its own, as a thread's default one, captures in the current one. */
static struct capture *describe(CUstream stream, CUstreamCaptureMode mode)
{
    struct capture *capture = calloc(1, sizeof *capture);
    bool is_own = stream != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
    if (capture && (!is_own || driver()->cuStreamGetCtx(stream, &capture->context) != CUDA_SUCCESS))
        driver()->cuCtxGetCurrent(&capture->context);
    if (capture) {
        capture->stream = stream;
        capture->mode = mode;
        capture->thread = pthread_self();
    }
    return capture;
}

/* After the driver's call. */
static void begun(CUresult result, struct capture *capture)
{
    if (result == CUDA_SUCCESS) {
        put(capture);
    } else {
        free(capture);
        uncount();
    }
}

/* Counted before the driver's call, so that nobody waits for the context once it captures; and never begun while the
 * memory is moved. */
#define DEFINE_BEGIN(name, parameters, arguments, mode)                  \
    CUresult name parameters                                             \
    {                                                                    \
        if (!activation_enter())                                         \
            return driver()->name arguments;                             \
        if (!residency_enter()) {                                        \
            activation_leave();                                          \
            return CUDA_ERROR_OUT_OF_MEMORY;                             \
        }                                                                \
        struct capture *capture = describe(stream, mode);                \
        pacing_close(); /* nothing is recorded once it counts */         \
        __atomic_fetch_add(&state.count, 1, __ATOMIC_ACQ_REL);           \
        pacing_begin_capture(stream);                                    \
        CUresult result = driver()->name arguments;                      \
        begun(result, capture);                                          \
        residency_leave();                                               \
        activation_leave();                                              \
        return result;                                                   \
    }

#define INTO_GRAPH                                                                                              \
    (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, \
     CUstreamCaptureMode mode)

#define GLOBAL CU_STREAM_CAPTURE_MODE_GLOBAL

DEFINE_BEGIN(cuStreamBeginCapture, (CUstream stream), (stream), GLOBAL)
DEFINE_BEGIN(cuStreamBeginCapture_ptsz, (CUstream stream), (stream), GLOBAL)
DEFINE_BEGIN(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode), mode)
DEFINE_BEGIN(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode), (stream, mode), mode)
DEFINE_BEGIN(cuStreamBeginCaptureToGraph, INTO_GRAPH, (stream, graph, dependencies, edges, count, mode), mode)
DEFINE_BEGIN(cuStreamBeginCaptureToGraph_ptsz, INTO_GRAPH, (stream, graph, dependencies, edges, count, mode), mode)

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
    if (was_capturing && !is_capturing(stream, query)) {
        free(take(stream, NULL, 1));
        uncount();
    }
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

/* Ends the stream's capture, too. Taken from the list before the call, for the next stream may get the same handle. */
static CUresult destroy(CUstream stream, CUresult (*real)(CUstream))
{
    if ((!captures_are_on() && !pacing_is_used()) || !activation_enter())
        return real(stream);
    bool is_left = pacing_end_stream(stream, real);
    struct capture *ended = take(stream, NULL, UINT32_MAX);
    CUresult result = is_left ? CUDA_SUCCESS : real(stream);
    if (result == CUDA_SUCCESS)
        uncount_all(ended);
    else
        put(ended);
    elastic_sweep();
    activation_leave();
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
