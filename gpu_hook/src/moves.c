#include "moves.h"

#include "captures.h"
#include "contexts.h"
#include "drain.h"
#include "graph_memory.h"
#include "guest_thread.h"
#include "log.h"
#include "mover.h"
#include "page.h"
#include "pieces.h"
#include "pools.h"
#include "quota.h"
#include "residency.h"
#include "segments.h"
#include "session.h"
#include "times.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define ORDERS_MOST 4u               /* that wait; an agent gives one and waits for the answer */
#define HOLDERS_MILLISECONDS 5000u   /* for frees that are under way when a swap in begins */
#define ANSWER_PAUSE_NANOSECONDS 5000000

struct order {
    struct aliquot_swap swap;
    uint32_t connection; /* that it came by */
};

static struct { /* guarded by the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct order orders[ORDERS_MOST];
    unsigned first, count;
    bool has_thread;
    bool is_busy; /* an order is being carried out: its answer tells a new agent where the memory is */
    uint64_t moves, moved_bytes;
    uint32_t told_place; /* by the last HELLO; the session's thread alone knows it */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static __attribute__((format(printf, 3, 4))) void answer_as(struct aliquot_moved *answer,
                                                           enum aliquot_move_outcome outcome, const char *format, ...)
{
    va_list arguments;
    answer->outcome = outcome;
    va_start(arguments, format);
    vsnprintf(answer->text, sizeof answer->text, format, arguments);
    va_end(arguments);
}

/* Where everything is, for a message and for the page. */
static void describe(struct aliquot_moved *answer)
{
    struct aliquot_hook_page *page = page_hook();
    answer->residency = residency_describe();
    answer->device_count = __atomic_load_n(&page_agent()->device_count, __ATOMIC_ACQUIRE);
    for (int device = 0; device < devices_count(); device++) {
        int index = devices_page_index(device);
        if (index < 0)
            continue;
        struct aliquot_moved_device *words = &answer->devices[index];
        answer->staying |= pieces_staying(device, &words->staying_bytes);
        words->swapped_bytes = pieces_swapped_bytes(device);
        page_write(&page->devices[index].elastic_bytes, pieces_elastic_bytes(device));
        page_write(&page->devices[index].swapped_bytes, words->swapped_bytes);
    }
    __atomic_store_n(&page->staying, answer->staying, __ATOMIC_RELEASE);
}

static bool send_once(const struct aliquot_moved *answer, const struct order *order)
{
    union socket_message message = {.moved = *answer};
    bool is_asked = order && order->connection == session_connections();
    message.header.sequence = is_asked ? order->swap.header.sequence : 0;
    return session_send(&message, ALIQUOT_MOVED, sizeof message.moved);
}

/* An agent that is slow for a moment is sent it again. One that is gone hears of it after the next WELCOME: whether this
 * thread or the session's tells it, is decided under the mutex. */
static void send_answer(const struct aliquot_moved *answer, const struct order *order)
{
    bool is_settled = false;
    while (!is_settled) {
        struct timespec pause = {0, ANSWER_PAUSE_NANOSECONDS};
        pthread_mutex_lock(&state.mutex);
        is_settled = send_once(answer, order) || !session_is_connected();
        state.is_busy = !is_settled;
        pthread_mutex_unlock(&state.mutex);
        if (!is_settled)
            nanosleep(&pause, NULL);
    }
    LOG("event=moved outcome=%u residency=%u text=\"%s\"", answer->outcome, answer->residency, answer->text);
}

/* True: nothing that touches the device is under way, and nothing begins. */
static bool stop_calls(struct aliquot_moved *answer, const struct timespec *deadline)
{
    unsigned inside = residency_await_calls(deadline);
    if (inside)
        answer_as(answer, ALIQUOT_MOVE_BUSY, "%u calls have not returned", inside);
    else if (captures_are_on())
        answer_as(answer, ALIQUOT_MOVE_BUSY, "a capture is under way");
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
        answer_as(answer, ALIQUOT_MOVE_BUSY, "the device was still at work when the time was over");
    else if (outcome == DRAIN_LOST)
        answer_as(answer, ALIQUOT_MOVE_REFUSED, "a context is broken: error %d", (int)failed);
    else if (outcome == DRAIN_NO_THREAD)
        answer_as(answer, ALIQUOT_MOVE_FAILED, "no memory to wait for the contexts");
    return outcome == DRAIN_DONE;
}

/* What no stream and no graph uses. */
static void trim(void)
{
    for (int device = 0; device < devices_count(); device++) {
        if (!contexts_find(device))
            continue;
        pools_trim(device);
        if (driver()->cuDeviceGraphMemTrim(device) == CUDA_SUCCESS)
            graph_memory_trimmed(device);
    }
}

static uint64_t bytes_of(const struct piece *pieces, size_t count)
{
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++)
        if (pieces[i].host_offset + pieces[i].bytes > end)
            end = pieces[i].host_offset + pieces[i].bytes;
    return end;
}

static bool copy(struct aliquot_moved *answer, const struct piece *pieces, size_t count, enum mover_direction way)
{
    struct mover_timing timing = {0};
    uint64_t before = times_now_nanoseconds();
    int failure = count ? mover_copy(pieces, count, way, &timing) : 0;
    answer->copy_nanoseconds = times_now_nanoseconds() - before;
    state.moved_bytes += failure ? 0 : timing.bytes;
    if (failure)
        answer_as(answer, ALIQUOT_MOVE_FAILED, "%s failed with %d", timing.failed_step ? timing.failed_step : "the copy",
                  failure);
    return !failure;
}

/* With the device drained. True: all is on the host, and nothing is left behind. */
static bool take_out(struct aliquot_moved *answer, uint32_t segments)
{
    struct piece *pieces = NULL;
    size_t count = pieces_list(&pieces);
    bool is_done = false;
    uint64_t wanted = count == PIECES_FAILED ? 0 : bytes_of(pieces, count);
    if (count == PIECES_FAILED) {
        answer_as(answer, ALIQUOT_MOVE_FAILED, "no memory for the list of what leaves");
    } else if (wanted > segments_bytes(segments) || (wanted && segments_keep(segments) != 0)) {
        answer->wanted_bytes = wanted;
        answer_as(answer, ALIQUOT_MOVE_NO_SPACE, "%llu bytes leave, the segments hold %llu",
                  (unsigned long long)wanted, (unsigned long long)segments_bytes(segments));
    } else if (copy(answer, pieces, count, MOVER_OUT)) {
        uint64_t before = times_now_nanoseconds();
        CUresult result = pieces_take_out(pieces, count);
        answer->map_nanoseconds = times_now_nanoseconds() - before;
        is_done = result == CUDA_SUCCESS;
        if (!is_done)
            answer_as(answer, ALIQUOT_MOVE_FAILED, "unmapping failed with %d", (int)result);
    }
    pieces_finish();
    free(pieces);
    return is_done;
}

static bool move_out(struct aliquot_moved *answer, const struct aliquot_swap *order)
{
    struct timespec deadline = times_after(order->drain_milliseconds);
    uint64_t before = times_now_nanoseconds();
    bool is_still = stop_calls(answer, &deadline) && drain(answer, &deadline);
    answer->drain_nanoseconds = times_now_nanoseconds() - before;
    if (!is_still)
        return false;
    trim();
    return take_out(answer, order->segment_count);
}

static void swap_out(struct aliquot_moved *answer, const struct aliquot_swap *order)
{
    uint32_t mode = __atomic_load_n(&page_agent()->residency_mode, __ATOMIC_ACQUIRE);
    if (residency_describe() != ALIQUOT_RESIDENT) {
        answer_as(answer, ALIQUOT_MOVE_REFUSED, "it is swapped out already");
        return;
    }
    if (mode != ALIQUOT_RESIDENCY_VMM) {
        answer_as(answer, ALIQUOT_MOVE_REFUSED, "residency mode %u does not swap out", mode);
        segments_drop();
        return;
    }
    residency_begin_move(ALIQUOT_SWAPPING_OUT);
    contexts_hold();
    bool is_done = move_out(answer, order);
    contexts_release();
    if (!is_done && answer->outcome != ALIQUOT_MOVE_NO_SPACE)
        segments_drop();
    residency_end_move(is_done ? ALIQUOT_SWAPPED : ALIQUOT_RESIDENT);
    if (is_done)
        quota_return_spare();
}

/* True: all is on the devices again. */
static bool bring_in(struct aliquot_moved *answer)
{
    struct piece *pieces = NULL;
    size_t count = pieces_list(&pieces);
    bool is_done = false;
    if (count == PIECES_FAILED) {
        answer_as(answer, ALIQUOT_MOVE_FAILED, "no memory for the list of what is out");
    } else {
        uint64_t before = times_now_nanoseconds();
        CUresult result = pieces_bring_in(pieces, count);
        answer->map_nanoseconds = times_now_nanoseconds() - before;
        if (result != CUDA_SUCCESS)
            answer_as(answer, result == CUDA_ERROR_OUT_OF_MEMORY ? ALIQUOT_MOVE_NO_ROOM : ALIQUOT_MOVE_FAILED,
                      "mapping failed with %d", (int)result);
        else
            is_done = copy(answer, pieces, count, MOVER_IN);
        if (result == CUDA_SUCCESS && !is_done)
            pieces_take_out(pieces, count); /* the host copy is whole */
    }
    pieces_finish();
    free(pieces);
    return is_done;
}

static void swap_in(struct aliquot_moved *answer)
{
    if (residency_describe() != ALIQUOT_SWAPPED) {
        answer_as(answer, ALIQUOT_MOVE_REFUSED, "it is resident");
        return;
    }
    struct timespec deadline = times_after(HOLDERS_MILLISECONDS);
    residency_begin_move(ALIQUOT_SWAPPING_IN);
    contexts_hold();
    unsigned inside = residency_await_calls(&deadline);
    if (inside)
        answer_as(answer, ALIQUOT_MOVE_BUSY, "%u calls have not returned", inside);
    bool is_done = !inside && bring_in(answer);
    contexts_release();
    if (is_done)
        segments_drop();
    residency_end_move(is_done ? ALIQUOT_RESIDENT : ALIQUOT_SWAPPED);
}

static void carry_out(const struct order *order)
{
    struct aliquot_moved answer = {.outcome = ALIQUOT_MOVE_DONE};
    uint32_t before = residency_describe();
    if (order->swap.header.type == ALIQUOT_SWAP_OUT)
        swap_out(&answer, &order->swap);
    else
        swap_in(&answer);
    pthread_mutex_lock(&state.mutex);
    state.moves += residency_describe() != before;
    page_write(&page_hook()->moves, state.moves);
    page_write(&page_hook()->moved_bytes, state.moved_bytes);
    describe(&answer);
    pthread_mutex_unlock(&state.mutex);
    send_answer(&answer, order);
    residency_wake();
}

static void *run(void *unused)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* other threads' captures do not mind this one's calls */
    prctl(PR_SET_NAME, "aliquot-mover");
    driver()->cuThreadExchangeStreamCaptureMode(&mode);
    pthread_mutex_lock(&state.mutex);
    for (;;) {
        state.is_busy = state.count > 0;
        if (!state.count) {
            pthread_cond_wait(&state.changed, &state.mutex);
            continue;
        }
        struct order order = state.orders[state.first];
        state.first = (state.first + 1) % ORDERS_MOST;
        state.count--;
        pthread_mutex_unlock(&state.mutex);
        carry_out(&order);
        pthread_mutex_lock(&state.mutex);
    }
    return unused;
}

void moves_ordered(const struct aliquot_swap *swap)
{
    struct order order = {*swap, session_connections()};
    pthread_mutex_lock(&state.mutex);
    if (!state.has_thread)
        state.has_thread = guest_thread_start(run, NULL) == 0;
    bool is_taken = state.has_thread && state.count < ORDERS_MOST;
    if (is_taken) {
        state.orders[(state.first + state.count++) % ORDERS_MOST] = order;
        state.is_busy = true;
        pthread_cond_signal(&state.changed);
    }
    pthread_mutex_unlock(&state.mutex);
    if (is_taken)
        return;
    struct aliquot_moved answer = {0};
    answer_as(&answer, ALIQUOT_MOVE_FAILED, "no thread to move memory");
    describe(&answer);
    send_once(&answer, &order);
}

uint32_t moves_place(void)
{
    state.told_place = residency_describe();
    return state.told_place;
}

void moves_segment(const struct aliquot_segment *segment, int descriptor)
{
    int failure = segments_add(descriptor, segment->number, segment->bytes);
    if (failure)
        LOG("event=segment_refused number=%u reason=\"%s\"", segment->number, strerror(failure));
}

void moves_registered(void)
{
    struct aliquot_moved answer = {.outcome = ALIQUOT_MOVE_DONE};
    pthread_mutex_lock(&state.mutex);
    page_write(&page_hook()->moves, state.moves);
    page_write(&page_hook()->moved_bytes, state.moved_bytes);
    describe(&answer);
    if (!state.is_busy && (answer.residency == ALIQUOT_SWAPPED || answer.residency != state.told_place))
        send_once(&answer, NULL);
    pthread_mutex_unlock(&state.mutex);
}

void moves_tick(void)
{
    struct aliquot_moved answer = {0};
    describe(&answer);
}

void moves_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    pthread_cond_init(&state.changed, NULL);
    state.first = state.count = 0;
    state.has_thread = state.is_busy = false;
    state.moves = state.moved_bytes = 0;
}
