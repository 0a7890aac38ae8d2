#include "contexts/drain.h"

#include "base/cancellation.h"
#include "base/guest_thread.h"
#include "base/log.h"
#include "base/times.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_NANOSECONDS 20000000 /* whether the program exits */

/* No call of the driver waits for a context with a time limit: so a thread waits, and is left
 * behind when it is late. */
struct wait { /* the thread that lets go of it last frees it */
    uint32_t is_over;      /* a futex */
    uint32_t is_abandoned; /* no further context is begun: the program captures again, perhaps */
    uint32_t holders;
    CUresult failed;
    size_t count;
    struct live_context contexts[];
};

static struct {
    uint32_t left; /* waits that have not ended; a futex */
} state;

static void let_go(struct wait *wait)
{
    if (__atomic_sub_fetch(&wait->holders, 1, __ATOMIC_ACQ_REL) == 0)
        free(wait);
}

static void raise_word(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* One that ended meanwhile has nothing to wait for. */
static bool is_lost(CUresult result)
{
    return result != CUDA_SUCCESS && result != CUDA_ERROR_CONTEXT_IS_DESTROYED &&
           result != CUDA_ERROR_INVALID_CONTEXT;
}

static void wait_for_contexts(struct wait *wait)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver()->cuThreadExchangeStreamCaptureMode(&mode);
    for (size_t i = 0; i < wait->count && !__atomic_load_n(&wait->is_abandoned, __ATOMIC_ACQUIRE);
         i++) {
        CUcontext context = wait->contexts[i].context;
        CUresult result = driver()->cuCtxPushCurrent_v2(context);
        if (result == CUDA_SUCCESS) {
            result = driver()->cuCtxSynchronize();
            driver()->cuCtxPopCurrent_v2(&context);
        }
        if (is_lost(result) && wait->failed == CUDA_SUCCESS)
            wait->failed = result;
    }
}

static void *run(void *argument)
{
    struct wait *wait = argument;
    prctl(PR_SET_NAME, "aliquot-drain");
    if (guest_threads_enter()) {
        wait_for_contexts(wait);
        guest_threads_leave();
    }
    raise_word(&wait->is_over, 1);
    let_go(wait);
    raise_word(&state.left, 0);
    return NULL;
}

/* False: the deadline passed first, or the program exits. */
static bool await_word(const uint32_t *word, uint32_t wanted, const struct timespec *deadline)
{
    const struct timespec look = {0, LOOK_NANOSECONDS};
    uint32_t now;
    while ((now = __atomic_load_n(word, __ATOMIC_ACQUIRE)) != wanted) {
        struct timespec left = times_until(deadline);
        if (left.tv_sec < 0 || guest_threads_are_over())
            return false;
        bool is_long = left.tv_sec > 0 || left.tv_nsec > LOOK_NANOSECONDS;
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, now, is_long ? &look : &left, NULL, 0);
    }
    return true;
}

static struct wait *begin(const struct live_context *contexts, size_t count)
{
    struct wait *wait = calloc(1, sizeof *wait + count * sizeof *contexts);
    if (!wait)
        return NULL;
    wait->holders = 2;
    wait->count = count;
    memcpy(wait->contexts, contexts, count * sizeof *contexts);
    __atomic_store_n(&state.left, 1, __ATOMIC_RELEASE);
    if (guest_thread_start(run, wait) == 0)
        return wait;
    __atomic_store_n(&state.left, 0, __ATOMIC_RELEASE);
    free(wait);
    return NULL;
}

enum drain_outcome drain_contexts(const struct live_context *contexts, size_t count,
                                  const struct timespec *deadline, CUresult *failed)
{
    *failed = CUDA_SUCCESS;
    if (!count)
        return DRAIN_DONE;
    if (!await_word(&state.left, 0, deadline)) /* of an earlier attempt */
        return DRAIN_LATE;
    struct wait *wait = begin(contexts, count);
    if (!wait)
        return DRAIN_NO_THREAD;
    bool is_over = await_word(&wait->is_over, 1, deadline);
    if (is_over)
        *failed = wait->failed;
    else
        LOG("event=drain_outlasts contexts=%zu "
            "note=\"the wait goes on: a context's end waits for it\"",
            count);
    __atomic_store_n(&wait->is_abandoned, 1, __ATOMIC_RELEASE);
    let_go(wait);
    return !is_over ? DRAIN_LATE : *failed != CUDA_SUCCESS ? DRAIN_LOST : DRAIN_DONE;
}

bool drain_is_left(void)
{
    return __atomic_load_n(&state.left, __ATOMIC_ACQUIRE) != 0;
}

void drain_await_end(void)
{
    while (drain_is_left()) {
        DEFER_CANCELLATION;
        syscall(SYS_futex, &state.left, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
    }
}

void drain_reset(void)
{
    state.left = 0;
}
