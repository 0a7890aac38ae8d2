#include "swap/swap_steps.h"

#include "contexts/captures.h"
#include "contexts/contexts.h"
#include "contexts/drain.h"
#include "charging/graph_memory.h"
#include "swappable/managed_mode.h"
#include "copy_engine/mover.h"
#include "agent_link/page.h"
#include "swap/extents.h"
#include "charging/pools.h"
#include "ordered/ordered_pools.h"
#include "gate/residency.h"
#include "copy_engine/segments.h"
#include "base/times.h"
#include "interpose/unknown_functions.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define HOLDERS_MILLISECONDS 5000u /* for frees that are under way when a swap in begins */

void swap_answer(struct aliquot_moved *answer, enum aliquot_move_outcome outcome,
                 const char *format, ...)
{
    va_list arguments;
    answer->outcome = outcome;
    va_start(arguments, format);
    vsnprintf(answer->text, sizeof answer->text, format, arguments);
    va_end(arguments);
}

static bool is_managed(void)
{
    return __atomic_load_n(&page_agent()->residency_mode, __ATOMIC_ACQUIRE) ==
           ALIQUOT_RESIDENCY_MANAGED;
}

/* True: no call touches the device, and none begins. */
static bool stop_calls(struct aliquot_moved *answer, const struct timespec *deadline)
{
    unsigned inside = residency_await_calls(deadline);
    if (inside)
        swap_answer(answer, ALIQUOT_MOVE_BUSY, "%u calls have not returned", inside);
    else if (captures_are_on())
        swap_answer(answer, ALIQUOT_MOVE_BUSY, "a capture is under way");
    else if (unknown_functions_called()) /* perhaps by a call that was inside until now */
        swap_answer(answer, ALIQUOT_MOVE_REFUSED, "unknown driver function %s",
                    unknown_functions_called());
    else
        return true;
    return false;
}

static bool drain(struct aliquot_moved *answer, const struct timespec *deadline)
{
    struct live_context *contexts;
    size_t count;
    CUresult failed;
    enum drain_outcome outcome = DRAIN_NO_THREAD;
    if (contexts_list(&contexts, &count))
        outcome = drain_contexts(contexts, count, deadline, &failed);
    free(contexts);
    if (outcome == DRAIN_LATE)
        swap_answer(answer, ALIQUOT_MOVE_BUSY,
                    "the device was still at work when the time was over");
    else if (outcome == DRAIN_LOST)
        swap_answer(answer, ALIQUOT_MOVE_REFUSED, "a context is broken: error %d", (int)failed);
    else if (outcome == DRAIN_NO_THREAD)
        swap_answer(answer, ALIQUOT_MOVE_FAILED, "no memory to wait for the contexts");
    return outcome == DRAIN_DONE;
}

/* Release the memory that no stream and no graph uses. */
static void trim(void)
{
    for (int device = 0; device < devices_count(); device++) {
        if (!contexts_find(device))
            continue;
        ordered_trim(device);
        pools_trim(device);
        if (driver()->cuDeviceGraphMemTrim(device) == CUDA_SUCCESS)
            graph_memory_trimmed(device);
    }
}

static uint64_t bytes_of(const struct extent *extents, size_t count)
{
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++)
        if (extents[i].host_offset + extents[i].bytes > end)
            end = extents[i].host_offset + extents[i].bytes;
    return end;
}

static bool copy(struct aliquot_moved *answer, const struct extent *extents, size_t count,
                 enum mover_direction way)
{
    struct mover_timing timing = {0};
    uint64_t before = times_now_nanoseconds();
    int failure = count ? mover_copy(extents, count, way, &timing) : 0;
    answer->copy_nanoseconds = times_now_nanoseconds() - before;
    if (failure)
        swap_answer(answer, ALIQUOT_MOVE_FAILED, "%s failed with %d",
                    timing.failed_step ? timing.failed_step : "the copy", failure);
    return !failure;
}

/* Called with the device drained. True: all memory is on the host, and none is left behind. */
static bool copy_out_and_unmap(struct aliquot_moved *answer, uint32_t segments)
{
    struct extent *extents = NULL;
    size_t count = extents_list(&extents);
    bool is_done = false;
    uint64_t wanted = count == EXTENTS_FAILED ? 0 : bytes_of(extents, count);
    if (count == EXTENTS_FAILED) {
        swap_answer(answer, ALIQUOT_MOVE_FAILED, "no memory for the list of what leaves");
    } else if (wanted > segments_bytes(segments) || (wanted && segments_keep(segments) != 0)) {
        answer->wanted_bytes = wanted;
        swap_answer(answer, ALIQUOT_MOVE_NO_SPACE, "%llu bytes leave, the segments hold %llu",
                  (unsigned long long)wanted, (unsigned long long)segments_bytes(segments));
    } else if (copy(answer, extents, count, MOVER_OUT)) {
        uint64_t before = times_now_nanoseconds();
        CUresult result = extents_unmap(extents, count);
        answer->map_nanoseconds = times_now_nanoseconds() - before;
        is_done = result == CUDA_SUCCESS;
        if (!is_done)
            swap_answer(answer, ALIQUOT_MOVE_FAILED, "unmapping failed with %d", (int)result);
    }
    extents_finish();
    free(extents);
    return is_done;
}

/* Unified memory: the driver moves it, and brings touched pages in. */
static bool prefetch(struct aliquot_moved *answer, bool out)
{
    uint64_t before = times_now_nanoseconds();
    CUresult result = managed_mode_move(out);
    answer->copy_nanoseconds = times_now_nanoseconds() - before;
    if (out && result != CUDA_SUCCESS)
        swap_answer(answer, ALIQUOT_MOVE_FAILED, "prefetching to the host failed with %d",
                    (int)result);
    return !out || result == CUDA_SUCCESS;
}

bool swap_out_steps(struct aliquot_moved *answer, const struct aliquot_swap *order)
{
    struct timespec deadline = times_after(order->drain_milliseconds);
    uint64_t before = times_now_nanoseconds();
    bool is_done = false;
    if (!stop_calls(answer, &deadline))
        return false;
    contexts_hold(); /* not before: a call that is inside may use it */
    bool is_still = drain(answer, &deadline);
    answer->drain_nanoseconds = times_now_nanoseconds() - before;
    if (is_still) {
        trim();
        is_done = is_managed() ? prefetch(answer, true)
                               : copy_out_and_unmap(answer, order->segment_count);
    }
    contexts_release();
    return is_done;
}

/* True: all memory is on the devices again. */
static bool map_and_copy_in(struct aliquot_moved *answer)
{
    struct extent *extents = NULL;
    size_t count = extents_list(&extents);
    bool is_done = false;
    if (count == EXTENTS_FAILED) {
        swap_answer(answer, ALIQUOT_MOVE_FAILED, "no memory for the list of what is out");
    } else {
        uint64_t before = times_now_nanoseconds();
        CUresult result = extents_map(extents, count);
        answer->map_nanoseconds = times_now_nanoseconds() - before;
        if (result != CUDA_SUCCESS)
            swap_answer(answer,
                        result == CUDA_ERROR_OUT_OF_MEMORY ? ALIQUOT_MOVE_NO_ROOM
                                                           : ALIQUOT_MOVE_FAILED,
                        "mapping failed with %d", (int)result);
        else
            is_done = copy(answer, extents, count, MOVER_IN);
        if (result == CUDA_SUCCESS && !is_done)
            extents_unmap(extents, count); /* the host copy is whole */
    }
    extents_finish();
    free(extents);
    return is_done;
}

bool swap_in_steps(struct aliquot_moved *answer)
{
    struct timespec deadline = times_after(HOLDERS_MILLISECONDS);
    unsigned inside = residency_await_calls(&deadline);
    if (inside) {
        swap_answer(answer, ALIQUOT_MOVE_BUSY, "%u calls have not returned", inside);
        return false;
    }
    contexts_hold();
    bool is_done = is_managed() ? prefetch(answer, false) : map_and_copy_in(answer);
    contexts_release();
    return is_done;
}
