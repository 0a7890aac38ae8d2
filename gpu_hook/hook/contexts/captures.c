#include "contexts/captures.h"

#include "interpose/driver.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

struct capture {
    CUstream stream;
    CUcontext context;
    CUstreamCaptureMode mode;
    pthread_t thread; /* the thread that began it */
    struct capture *next;
};

static struct {
    pthread_mutex_t mutex; /* guards the list */
    struct capture *all;   /* a capture is missing, for which there was no memory */
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

/* The driver's rule, from cuThreadExchangeStreamCaptureMode: a thread in RELAXED mode may call
 * whatever it likes, a capture begun so forbids nothing, the thread's own capture forbids, and
 * another thread's does where both modes are GLOBAL. */
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
    for (const struct capture *capture = state.all; capture && !is_forbidden;
         capture = capture->next)
        is_forbidden = is_forbidding(capture, own);
    pthread_mutex_unlock(&state.mutex);
    return is_forbidden;
}

void captures_put(struct capture *added)
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

/* Take at most so many captures of the stream, or of the context where that is not NULL. They stay
 * counted. */
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

struct capture *captures_take(CUstream stream, unsigned most)
{
    return take(stream, NULL, most);
}

void captures_count(void)
{
    __atomic_fetch_add(&state.count, 1, __ATOMIC_ACQ_REL);
}

void captures_uncount(struct capture *ended)
{
    __atomic_fetch_sub(&state.count, 1, __ATOMIC_ACQ_REL);
    free(ended);
}

void captures_uncount_all(struct capture *ended)
{
    while (ended) {
        struct capture *next = ended->next;
        captures_uncount(ended);
        ended = next;
    }
}

void captures_forget_context(CUcontext context)
{
    if (context && captures_are_on())
        captures_uncount_all(take(NULL, context, UINT32_MAX));
}

/* A stream without a context of its own, as a thread's default one, captures in the current one. */
struct capture *captures_describe(CUstream stream, CUstreamCaptureMode mode)
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
