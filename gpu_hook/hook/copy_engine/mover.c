#include "copy_engine/mover.h"

#include "contexts/contexts.h"
#include "base/guest_thread.h"
#include "base/log.h"
#include "copy_engine/copy_contexts.h"
#include "agent_link/page.h"
#include "copy_engine/ring.h"
#include "copy_engine/segments.h"
#include "copy_engine/copy_chunks.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define SLOT_BYTES (8ull << 20) /* a device's engine is at its full speed, and the first slot is soon there */
#define LEAST_SLOT_BYTES (1ull << 20)
#define DEPTH_MAX 4u /* slots of a thread */
#define THREADS_MAX 16u
#define DEFAULT_THREADS 4u
#define DEFAULT_RING_BYTES (256ull << 20)
#define FIRST_RING_BYTES (8ull << 20) /* locked before it is needed */
#define STACK_BYTES (1u << 20) /* driver calls are made on it */

/* One copy. Threads take windows by `next`, and stop at the first failure, which alone is kept. */
struct copy {
    const struct piece *pieces;
    enum mover_direction direction;
    struct window *windows;
    size_t window_count, next;
    struct lanes lanes;
    struct ring ring;
    size_t slot_bytes;
    unsigned depth, threads;
    int failure;
    const char *failed_step;
    uint64_t device_nanoseconds, segment_nanoseconds;
    uint64_t told_bytes; /* in the page */
};

/* One thread, with slots of its own that it uses in turn: it puts the device to work on several, and moves bytes of one
 * between ring and segments meanwhile. */
struct hand {
    struct copy *copy;
    unsigned number;
    struct slot {
        char *memory;
        const struct window *window; /* NULL: free */
    } slots[DEPTH_MAX];
    unsigned current; /* lane + 1; 0: none */
    uint64_t device_nanoseconds, segment_nanoseconds;
    pthread_t thread;
};

static uint64_t now_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool fail(struct copy *copy, int failure, const char *step)
{
    int none = 0;
    if (failure && __atomic_compare_exchange_n(&copy->failure, &none, failure, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        __atomic_store_n(&copy->failed_step, step, __ATOMIC_RELEASE);
    return failure == 0;
}

/* How far it is, for who waits: once for each window. */
static void tell_progress(struct copy *copy, uint64_t bytes)
{
    struct aliquot_hook_page *page = page_hook();
    __atomic_fetch_add(&copy->told_bytes, bytes, __ATOMIC_RELAXED);
    if (page)
        __atomic_fetch_add(&page->copied_bytes, bytes, __ATOMIC_RELAXED);
}

static bool enter_lane(struct hand *hand, unsigned lane)
{
    if (hand->current == lane + 1)
        return true;
    hand->current = 0;
    if (!fail(hand->copy, driver()->cuCtxSetCurrent(hand->copy->lanes.rows[lane]->context), "context"))
        return false;
    hand->current = lane + 1;
    return true;
}

/* A copy that would outlast the program's exit comes to its end. */
static bool may_go_on(struct copy *copy)
{
    return fail(copy, guest_threads_are_over() ? -ECANCELED : 0, "the program's exit");
}

static const struct window *take_window(struct copy *copy)
{
    if (!may_go_on(copy) || __atomic_load_n(&copy->failure, __ATOMIC_ACQUIRE))
        return NULL;
    size_t index = __atomic_fetch_add(&copy->next, 1, __ATOMIC_RELAXED);
    return index < copy->window_count ? &copy->windows[index] : NULL;
}

/* Each part of a window that lies in one piece is one copy. */
static CUresult issue_parts(const struct copy *copy, const struct window *window, char *memory, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    size_t done = 0, skip = window->skip;
    for (size_t i = window->piece; done < window->bytes && result == CUDA_SUCCESS; i++, skip = 0) {
        const struct piece *piece = &copy->pieces[i];
        size_t left = window->bytes - done, part = piece->bytes - skip;
        part = part < left ? part : left;
        result = copy->direction == MOVER_OUT
                     ? driver()->cuMemcpyDtoHAsync_v2(memory + done, piece->address + skip, part, stream)
                     : driver()->cuMemcpyHtoDAsync_v2(piece->address + skip, memory + done, part, stream);
        done += part;
    }
    return result;
}

/* Each slot has one of each lane. */
static CUevent event_of(const struct hand *hand, const struct slot *slot, int lane)
{
    return hand->copy->lanes.rows[lane]->events[hand->number * hand->copy->depth + (slot - hand->slots)];
}

static bool issue(struct hand *hand, struct slot *slot, const struct window *window)
{
    struct copy *copy = hand->copy;
    int number = lanes_find(&copy->lanes, window->device);
    const struct lane *lane = copy->lanes.rows[number];
    CUstream stream = lane->streams[hand->number % lane->stream_count];
    if (!enter_lane(hand, (unsigned)number))
        return false;
    slot->window = window;
    return fail(copy, issue_parts(copy, window, slot->memory, stream), "copy") &&
           fail(copy, driver()->cuEventRecord(event_of(hand, slot, number), stream), "event");
}

static bool wait_for_slot(struct hand *hand, struct slot *slot)
{
    uint64_t begin = now_nanoseconds();
    int lane = lanes_find(&hand->copy->lanes, slot->window->device);
    bool is_done = enter_lane(hand, (unsigned)lane) &&
                   fail(hand->copy, driver()->cuEventSynchronize(event_of(hand, slot, lane)), "wait");
    hand->device_nanoseconds += now_nanoseconds() - begin;
    return is_done;
}

static bool exchange(struct hand *hand, const struct slot *slot, const struct window *window)
{
    uint64_t begin = now_nanoseconds();
    int failure = hand->copy->direction == MOVER_OUT
                      ? segments_write(window->host_offset, slot->memory, window->bytes)
                      : segments_read(window->host_offset, slot->memory, window->bytes);
    hand->segment_nanoseconds += now_nanoseconds() - begin;
    return fail(hand->copy, -failure, "segment");
}

static void copy_out(struct hand *hand)
{
    unsigned depth = hand->copy->depth, issued = 0, finished = 0;
    const struct window *window = take_window(hand->copy);
    for (;;) {
        for (; window && issued - finished < depth; window = take_window(hand->copy))
            if (!issue(hand, &hand->slots[issued++ % depth], window))
                return;
        if (issued == finished)
            return;
        struct slot *slot = &hand->slots[finished++ % depth];
        if (!wait_for_slot(hand, slot) || !exchange(hand, slot, slot->window))
            return;
        tell_progress(hand->copy, slot->window->bytes);
    }
}

static void copy_in(struct hand *hand)
{
    unsigned used = 0;
    for (const struct window *window; (window = take_window(hand->copy)) != NULL; used++) {
        struct slot *slot = &hand->slots[used % hand->copy->depth];
        if (slot->window && !wait_for_slot(hand, slot))
            return;
        if (slot->window)
            tell_progress(hand->copy, slot->window->bytes);
        if (!exchange(hand, slot, window) || !issue(hand, slot, window))
            return;
    }
}

static void *run(void *argument)
{
    struct hand *hand = argument;
    struct copy *copy = hand->copy;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool has_mode = driver()->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    for (unsigned i = 0; i < copy->depth; i++)
        hand->slots[i].memory = copy->ring.memory + (hand->number * copy->depth + i) * copy->slot_bytes;
    if (copy->direction == MOVER_OUT)
        copy_out(hand);
    else
        copy_in(hand);
    __atomic_fetch_add(&copy->device_nanoseconds, hand->device_nanoseconds, __ATOMIC_RELAXED);
    __atomic_fetch_add(&copy->segment_nanoseconds, hand->segment_nanoseconds, __ATOMIC_RELAXED);
    if (has_mode)
        driver()->cuThreadExchangeStreamCaptureMode(&mode);
    return NULL;
}

static void *run_thread(void *argument)
{
    prctl(PR_SET_NAME, "aliquot-copy");
    return run(argument);
}

/* The others' threads; hand 0 is the caller's. Returns how many hands there are: fewer where threads cannot be had. */
static unsigned start_hands(struct copy *copy, struct hand *hands)
{
    unsigned started = 1;
    sigset_t all, previous;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    while (started < copy->threads) {
        int failure = pthread_create(&hands[started].thread, &attributes, run_thread, &hands[started]);
        if (failure == EINVAL) /* the program's static TLS alone is larger */
            failure = pthread_create(&hands[started].thread, NULL, run_thread, &hands[started]);
        if (failure)
            break;
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static void copy_windows(struct copy *copy, struct mover_timing *timing)
{
    struct hand *hands = calloc(copy->threads, sizeof *hands);
    if (!hands) {
        fail(copy, -ENOMEM, "threads");
        return;
    }
    for (unsigned i = 0; i < copy->threads; i++)
        hands[i] = (struct hand){.copy = copy, .number = i};
    uint64_t begin = now_nanoseconds();
    unsigned started = start_hands(copy, hands);
    run(&hands[0]);
    for (unsigned i = 1; i < started; i++)
        pthread_join(hands[i].thread, NULL);
    fail(copy, lanes_wait(&copy->lanes), "wait");
    timing->copy_nanoseconds = now_nanoseconds() - begin;
    timing->threads = started;
    free(hands);
}

static size_t count_cpus(void)
{
    cpu_set_t mask;
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? (size_t)CPU_COUNT(&mask) : 1;
}

static unsigned count_threads(void)
{
    const struct aliquot_agent_page *page = page_agent();
    uint32_t asked = page ? __atomic_load_n(&page->copy_threads, __ATOMIC_RELAXED) : 0; /* read once: it is shared */
    size_t threads = asked ? asked : DEFAULT_THREADS, cpus = count_cpus();
    threads = threads < cpus ? threads : cpus;
    return (unsigned)(threads < THREADS_MAX ? threads : THREADS_MAX);
}

static unsigned count_streams(void)
{
    const struct aliquot_agent_page *page = page_agent();
    return page && page->copy_streams ? page->copy_streams : 2;
}

static uint64_t largest_ring(void)
{
    const struct aliquot_agent_page *page = page_agent();
    return page && page->ring_bytes ? page->ring_bytes : DEFAULT_RING_BYTES;
}

/* How many threads, and how large their slots: short copies get small ones, so that device and threads overlap. */
static bool lay_out(struct copy *copy, uint64_t bytes)
{
    size_t threads = count_threads();
    uint64_t most = largest_ring();
    copy->slot_bytes = SLOT_BYTES;
    while (copy->slot_bytes > LEAST_SLOT_BYTES && bytes < copy->slot_bytes * threads * DEPTH_MAX)
        copy->slot_bytes /= 2;
    uint64_t wanted = copy->slot_bytes * threads * DEPTH_MAX;
    copy->ring = ring_take(wanted < most ? wanted : most, 2 * LEAST_SLOT_BYTES);
    if (!copy->ring.memory)
        return fail(copy, -ENOMEM, "ring");
    while (copy->slot_bytes > LEAST_SLOT_BYTES && copy->ring.bytes / copy->slot_bytes < 2 * threads)
        copy->slot_bytes /= 2;
    size_t slots = copy->ring.bytes / copy->slot_bytes;
    copy->threads = (unsigned)(threads < slots / 2 ? threads : slots / 2);
    copy->depth = (unsigned)(slots / copy->threads < DEPTH_MAX ? slots / copy->threads : DEPTH_MAX);
    return true;
}

/* With as many events as there are: fewer slots where the device has no room for more. */
static void fit_events(struct copy *copy)
{
    unsigned events = copy->lanes.event_count;
    copy->depth = copy->depth < events ? copy->depth : events;
    copy->threads = copy->threads < events / copy->depth ? copy->threads : events / copy->depth;
}

static bool prepare(struct copy *copy, size_t count, uint64_t bytes)
{
    if (!may_go_on(copy) || !fail(copy, lanes_open(&copy->lanes, copy->pieces, count), "context") ||
        !fail(copy, driver()->cuCtxSetCurrent(copy->lanes.rows[0]->context), "context") || !lay_out(copy, bytes) ||
        !fail(copy, lanes_fill(&copy->lanes, count_streams(), copy->threads * copy->depth), "stream or event"))
        return false;
    fit_events(copy);
    copy->windows = windows_cut(copy->pieces, count, copy->slot_bytes, &copy->window_count);
    if (!copy->windows)
        return fail(copy, -ENOMEM, "windows");
    if (copy->threads > copy->window_count)
        copy->threads = (unsigned)copy->window_count;
    return true;
}

int mover_copy(const struct piece *pieces, size_t count, enum mover_direction direction, struct mover_timing *timing)
{
    struct copy copy = {.pieces = pieces, .direction = direction};
    CUcontext before = NULL;
    uint64_t begin = now_nanoseconds();
    *timing = (struct mover_timing){0};
    for (size_t i = 0; i < count; i++)
        timing->bytes += pieces[i].bytes;
    if (timing->bytes == 0)
        return 0;
    bool has_before = driver()->cuCtxGetCurrent(&before) == CUDA_SUCCESS;
    if (prepare(&copy, count, timing->bytes)) {
        timing->prepare_nanoseconds = now_nanoseconds() - begin;
        copy_windows(&copy, timing);
        if (!copy.failure) /* what the lanes were waited for */
            tell_progress(&copy, timing->bytes - copy.told_bytes);
    }
    timing->device_nanoseconds = copy.device_nanoseconds;
    timing->segment_nanoseconds = copy.segment_nanoseconds;
    timing->streams = copy.lanes.count ? copy.lanes.rows[0]->stream_count : 0;
    timing->is_pageable = !copy.ring.is_locked;
    timing->failed_step = copy.failed_step;
    lanes_close(&copy.lanes);
    if (has_before)
        driver()->cuCtxSetCurrent(before);
    free(copy.windows);
    return copy.failure;
}

/* With the context current. */
static CUresult prepare_in(CUcontext context, int device)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* other threads' captures do not mind */
    bool has_mode = driver()->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    CUresult result = lanes_prepare(device, context, count_streams(), count_threads() * DEPTH_MAX);
    if (result == CUDA_SUCCESS) {
        uint64_t most = largest_ring();
        ring_take(most < FIRST_RING_BYTES ? most : FIRST_RING_BYTES, 2 * LEAST_SLOT_BYTES);
    }
    if (has_mode)
        driver()->cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

/* The context is pushed, for the one that is current may have ended, and could not be set again. */
CUresult mover_prepare(int device)
{
    CUresult result = CUDA_SUCCESS;
    CUcontext popped;
    if (device < 0 || device >= (int)ALIQUOT_MAX_DEVICES || lanes_are_prepared(device))
        return CUDA_SUCCESS;
    contexts_hold();
    CUcontext context = contexts_find(device);
    if (context && driver()->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
        result = prepare_in(context, device);
        driver()->cuCtxPopCurrent_v2(&popped);
    }
    contexts_release();
    if (result != CUDA_SUCCESS)
        LOG("event=no_lane device=%d code=%d", device, (int)result);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_SUCCESS;
}
