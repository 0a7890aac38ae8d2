#include "swap/moves.h"

#include "accounting/devices.h"
#include "base/guest_thread.h"
#include "base/log.h"
#include "agent_link/page.h"
#include "swap/extents.h"
#include "accounting/quota.h"
#include "gate/residency.h"
#include "copy_engine/segments.h"
#include "agent_link/session.h"
#include "swap/swap_steps.h"
#include "interpose/unknown_functions.h"
#include "accounting/pin_reasons.h"
#include "agent_link/interrupts.h"

#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define ORDERS_MOST 4u               /* that wait; an agent gives one and waits for the answer */
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
    /* an order is being carried out: its answer tells a new agent where the memory is */
    bool is_busy;
    uint32_t reported_residency; /* by the last HELLO; the session's thread alone uses it */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Describe where all memory is, for a message and for the page. */
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
        answer->pin_reasons |= extents_pinned(device, &words->unswappable_bytes);
        words->swapped_bytes = pin_reasons_out(device);
        page_write(&page->devices[index].swappable_bytes, pin_reasons_bytes(device, PIN_NONE));
        page_write(&page->devices[index].swapped_bytes, words->swapped_bytes);
    }
    __atomic_store_n(&page->pin_reasons, answer->pin_reasons, __ATOMIC_RELEASE);
}

static bool send_once(const struct aliquot_moved *answer, const struct order *order)
{
    union socket_message message = {.moved = *answer};
    bool is_asked = order && order->connection == session_connections();
    message.header.sequence = is_asked ? order->swap.header.sequence : 0;
    return session_send(&message, ALIQUOT_MOVED, sizeof message.moved);
}

/* A slow agent receives the message again later. A lost agent receives it after the next
 * WELCOME. The mutex decides whether this thread sends it or the session's. */
static void send_answer(const struct aliquot_moved *answer, const struct order *order)
{
    bool is_settled = false;
    while (!is_settled && !guest_threads_are_over()) {
        struct timespec pause = {0, ANSWER_PAUSE_NANOSECONDS};
        pthread_mutex_lock(&state.mutex);
        is_settled = send_once(answer, order) || !session_is_connected();
        state.is_busy = !is_settled;
        pthread_mutex_unlock(&state.mutex);
        if (!is_settled)
            nanosleep(&pause, NULL);
    }
    LOG("event=moved outcome=%u residency=%u text=\"%s\"", answer->outcome, answer->residency,
        answer->text);
}

static void swap_out(struct aliquot_moved *answer, const struct aliquot_swap *order)
{
    uint32_t mode = __atomic_load_n(&page_agent()->residency_mode, __ATOMIC_ACQUIRE);
    if (residency_describe() != ALIQUOT_RESIDENT) {
        swap_answer(answer, ALIQUOT_MOVE_REFUSED, "it is swapped out already");
        return;
    }
    if (mode == ALIQUOT_RESIDENCY_OFF) {
        swap_answer(answer, ALIQUOT_MOVE_REFUSED, "the kernel's residency mode is off");
        segments_drop();
        return;
    }
    if (unknown_functions_called()) {
        swap_answer(answer, ALIQUOT_MOVE_REFUSED, "unknown driver function %s",
                    unknown_functions_called());
        segments_drop();
        return;
    }
    residency_begin_move(ALIQUOT_SWAPPING_OUT);
    bool is_done = swap_out_steps(answer, order);
    if (!is_done && answer->outcome != ALIQUOT_MOVE_NO_SPACE)
        segments_drop();
    residency_end_move(is_done ? ALIQUOT_SWAPPED : ALIQUOT_RESIDENT);
    if (is_done)
        quota_return_spare();
}

static void swap_in(struct aliquot_moved *answer)
{
    if (residency_describe() != ALIQUOT_SWAPPED) {
        swap_answer(answer, ALIQUOT_MOVE_REFUSED, "it is resident");
        return;
    }
    residency_begin_move(ALIQUOT_SWAPPING_IN);
    bool is_done = swap_in_steps(answer);
    if (is_done)
        segments_drop();
    residency_end_move(is_done ? ALIQUOT_RESIDENT : ALIQUOT_SWAPPED);
}

static void carry_out(const struct order *order)
{
    struct aliquot_moved answer = {.outcome = ALIQUOT_MOVE_DONE};
    if (order->connection != session_connections())
        return; /* from a lost agent: the next one knows where the memory is */
    if (order->swap.header.type == ALIQUOT_SWAP_OUT)
        swap_out(&answer, &order->swap);
    else
        swap_in(&answer);
    pthread_mutex_lock(&state.mutex);
    describe(&answer);
    pthread_mutex_unlock(&state.mutex);
    send_answer(&answer, order);
    residency_wake();
    segments_sweep();
}

static void *run(void *unused)
{
    /* this thread's calls do not disturb other threads' captures */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    prctl(PR_SET_NAME, "aliquot-mover");
    if (guest_threads_enter()) {
        driver()->cuThreadExchangeStreamCaptureMode(&mode);
        guest_threads_leave();
    }
    pthread_mutex_lock(&state.mutex);
    while (!guest_threads_are_over()) {
        state.is_busy = state.count > 0;
        if (!state.count) {
            pthread_cond_wait(&state.changed, &state.mutex);
            continue;
        }
        struct order order = state.orders[state.first];
        state.first = (state.first + 1) % ORDERS_MOST;
        state.count--;
        pthread_mutex_unlock(&state.mutex);
        if (guest_threads_enter()) {
            carry_out(&order);
            guest_threads_leave();
        }
        pthread_mutex_lock(&state.mutex);
    }
    pthread_mutex_unlock(&state.mutex);
    return unused;
}

void moves_ordered(const struct aliquot_swap *swap)
{
    struct order order = {*swap, session_connections()};
    pthread_mutex_lock(&state.mutex);
    if (!state.has_thread) {
        interrupts_watch_exit();
        state.has_thread = guest_thread_start(run, NULL) == 0;
    }
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
    swap_answer(&answer, ALIQUOT_MOVE_FAILED, "no thread to move memory");
    describe(&answer);
    send_once(&answer, &order);
}

uint32_t moves_place(void)
{
    state.reported_residency = residency_describe();
    return state.reported_residency;
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
    describe(&answer);
    if (!state.is_busy &&
        (answer.residency == ALIQUOT_SWAPPED || answer.residency != state.reported_residency))
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
}
