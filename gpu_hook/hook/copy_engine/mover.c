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

/* a device's engine is at its full speed, and the first buffer is soon there */
#define BUFFER_BYTES (8ull << 20)
#define LEAST_BUFFER_BYTES (1ull << 20)
#define DEPTH_MAX 4u /* buffers of a thread */
#define THREADS_MAX 16u
#define DEFAULT_THREADS 4u
#define DEFAULT_RING_BYTES (256ull << 20)
#define FIRST_RING_BYTES (8ull << 20) /* locked before it is needed */
#define STACK_BYTES (1u << 20) /* driver calls are made on it */

/* One copy. Threads take chunks by `next`, and stop at the first failure, which alone is kept. */
struct copy {
    const struct extent *extents;
    enum mover_direction direction;
    struct copy_chunk *chunks;
    size_t chunk_count, next;
    struct copy_contexts contexts;
    struct ring ring;
    size_t buffer_bytes;
    unsigned depth, threads;
    int failure;
    const char *failed_step;
    uint64_t device_nanoseconds, segment_nanoseconds;
    uint64_t published_bytes; /* in the page */
};

/* One thread, with buffers of its own that it uses in turn: the device works on several of them,
 * while the thread moves bytes of one between ring and segments. */
struct copy_worker {
    struct copy *copy;
    unsigned number;
    struct buffer {
        char *memory;
        const struct copy_chunk *chunk; /* NULL: free */
    } buffers[DEPTH_MAX];
    unsigned current; /* copy context + 1; 0: none */
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
    if (failure && __atomic_compare_exchange_n(&copy->failure, &none, failure, false,
                                               __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        __atomic_store_n(&copy->failed_step, step, __ATOMIC_RELEASE);
    return failure == 0;
}

/* Report the progress to waiting users: once for each chunk. */
static void publish_progress(struct copy *copy, uint64_t bytes)
{
    struct aliquot_hook_page *page = page_hook();
    __atomic_fetch_add(&copy->published_bytes, bytes, __ATOMIC_RELAXED);
    if (page)
        __atomic_fetch_add(&page->copied_bytes, bytes, __ATOMIC_RELAXED);
}

static bool enter_copy_context(struct copy_worker *worker, unsigned row)
{
    if (worker->current == row + 1)
        return true;
    worker->current = 0;
    if (!fail(worker->copy, driver()->cuCtxSetCurrent(worker->copy->contexts.rows[row]->context),
              "context"))
        return false;
    worker->current = row + 1;
    return true;
}

/* A copy that would outlast the program's exit completes. */
static bool may_go_on(struct copy *copy)
{
    return fail(copy, guest_threads_are_over() ? -ECANCELED : 0, "the program's exit");
}

static const struct copy_chunk *take_chunk(struct copy *copy)
{
    if (!may_go_on(copy) || __atomic_load_n(&copy->failure, __ATOMIC_ACQUIRE))
        return NULL;
    size_t index = __atomic_fetch_add(&copy->next, 1, __ATOMIC_RELAXED);
    return index < copy->chunk_count ? &copy->chunks[index] : NULL;
}

/* Each part of a chunk that lies in one extent is one copy. */
static CUresult issue_parts(const struct copy *copy, const struct copy_chunk *chunk, char *memory,
                            CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    size_t done = 0, skip = chunk->skip;
    for (size_t i = chunk->extent; done < chunk->bytes && result == CUDA_SUCCESS; i++, skip = 0) {
        const struct extent *extent = &copy->extents[i];
        size_t left = chunk->bytes - done, part = extent->bytes - skip;
        part = part < left ? part : left;
        result = copy->direction == MOVER_OUT
                     ? driver()->cuMemcpyDtoHAsync_v2(memory + done, extent->address + skip, part,
                                                      stream)
                     : driver()->cuMemcpyHtoDAsync_v2(extent->address + skip, memory + done, part,
                                                      stream);
        done += part;
    }
    return result;
}

/* Each buffer has one of each copy context. */
static CUevent event_of(const struct copy_worker *worker, const struct buffer *buffer, int row)
{
    return worker->copy->contexts.rows[row]
        ->events[worker->number * worker->copy->depth + (buffer - worker->buffers)];
}

static bool issue(struct copy_worker *worker, struct buffer *buffer, const struct copy_chunk *chunk)
{
    struct copy *copy = worker->copy;
    int number = copy_contexts_find(&copy->contexts, chunk->device);
    const struct copy_context *row = copy->contexts.rows[number];
    CUstream stream = row->streams[worker->number % row->stream_count];
    if (!enter_copy_context(worker, (unsigned)number))
        return false;
    buffer->chunk = chunk;
    return fail(copy, issue_parts(copy, chunk, buffer->memory, stream), "copy") &&
           fail(copy, driver()->cuEventRecord(event_of(worker, buffer, number), stream), "event");
}

static bool wait_for_buffer(struct copy_worker *worker, struct buffer *buffer)
{
    uint64_t begin = now_nanoseconds();
    int row = copy_contexts_find(&worker->copy->contexts, buffer->chunk->device);
    bool is_done =
        enter_copy_context(worker, (unsigned)row) &&
        fail(worker->copy, driver()->cuEventSynchronize(event_of(worker, buffer, row)), "wait");
    worker->device_nanoseconds += now_nanoseconds() - begin;
    return is_done;
}

static bool exchange(struct copy_worker *worker, const struct buffer *buffer,
                     const struct copy_chunk *chunk)
{
    uint64_t begin = now_nanoseconds();
    int failure = worker->copy->direction == MOVER_OUT
                      ? segments_write(chunk->host_offset, buffer->memory, chunk->bytes)
                      : segments_read(chunk->host_offset, buffer->memory, chunk->bytes);
    worker->segment_nanoseconds += now_nanoseconds() - begin;
    return fail(worker->copy, -failure, "segment");
}

static void copy_out(struct copy_worker *worker)
{
    unsigned depth = worker->copy->depth, issued = 0, finished = 0;
    const struct copy_chunk *chunk = take_chunk(worker->copy);
    for (;;) {
        for (; chunk && issued - finished < depth; chunk = take_chunk(worker->copy))
            if (!issue(worker, &worker->buffers[issued++ % depth], chunk))
                return;
        if (issued == finished)
            return;
        struct buffer *buffer = &worker->buffers[finished++ % depth];
        if (!wait_for_buffer(worker, buffer) || !exchange(worker, buffer, buffer->chunk))
            return;
        publish_progress(worker->copy, buffer->chunk->bytes);
    }
}

static void copy_in(struct copy_worker *worker)
{
    unsigned used = 0;
    for (const struct copy_chunk *chunk; (chunk = take_chunk(worker->copy)) != NULL; used++) {
        struct buffer *buffer = &worker->buffers[used % worker->copy->depth];
        if (buffer->chunk && !wait_for_buffer(worker, buffer))
            return;
        if (buffer->chunk)
            publish_progress(worker->copy, buffer->chunk->bytes);
        if (!exchange(worker, buffer, chunk) || !issue(worker, buffer, chunk))
            return;
    }
}

static void *run(void *argument)
{
    struct copy_worker *worker = argument;
    struct copy *copy = worker->copy;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool has_mode = driver()->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    for (unsigned i = 0; i < copy->depth; i++)
        worker->buffers[i].memory =
            copy->ring.memory + (worker->number * copy->depth + i) * copy->buffer_bytes;
    if (copy->direction == MOVER_OUT)
        copy_out(worker);
    else
        copy_in(worker);
    __atomic_fetch_add(&copy->device_nanoseconds, worker->device_nanoseconds, __ATOMIC_RELAXED);
    __atomic_fetch_add(&copy->segment_nanoseconds, worker->segment_nanoseconds, __ATOMIC_RELAXED);
    if (has_mode)
        driver()->cuThreadExchangeStreamCaptureMode(&mode);
    return NULL;
}

static void *run_thread(void *argument)
{
    prctl(PR_SET_NAME, "aliquot-copy");
    return run(argument);
}

/* Start the other threads; worker 0 is the caller's. Returns the number of workers: fewer where
 * the system gives no more threads. */
static unsigned start_workers(struct copy *copy, struct copy_worker *workers)
{
    unsigned started = 1;
    sigset_t all, previous;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    while (started < copy->threads) {
        int failure =
            pthread_create(&workers[started].thread, &attributes, run_thread, &workers[started]);
        if (failure == EINVAL) /* the program's static TLS alone is larger */
            failure = pthread_create(&workers[started].thread, NULL, run_thread, &workers[started]);
        if (failure)
            break;
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static void copy_all_chunks(struct copy *copy, struct mover_timing *timing)
{
    struct copy_worker *workers = calloc(copy->threads, sizeof *workers);
    if (!workers) {
        fail(copy, -ENOMEM, "threads");
        return;
    }
    for (unsigned i = 0; i < copy->threads; i++)
        workers[i] = (struct copy_worker){.copy = copy, .number = i};
    uint64_t begin = now_nanoseconds();
    unsigned started = start_workers(copy, workers);
    run(&workers[0]);
    for (unsigned i = 1; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    fail(copy, copy_contexts_wait(&copy->contexts), "wait");
    timing->copy_nanoseconds = now_nanoseconds() - begin;
    timing->threads = started;
    free(workers);
}

static size_t count_cpus(void)
{
    cpu_set_t mask;
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? (size_t)CPU_COUNT(&mask) : 1;
}

static unsigned count_threads(void)
{
    const struct aliquot_agent_page *page = page_agent();
    /* read once: it is shared */
    uint32_t asked = page ? __atomic_load_n(&page->copy_threads, __ATOMIC_RELAXED) : 0;
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

/* Choose the number of threads, and the size of their buffers: short copies get small ones, so
 * that device and threads overlap. */
static bool lay_out(struct copy *copy, uint64_t bytes)
{
    size_t threads = count_threads();
    uint64_t most = largest_ring();
    copy->buffer_bytes = BUFFER_BYTES;
    while (copy->buffer_bytes > LEAST_BUFFER_BYTES &&
           bytes < copy->buffer_bytes * threads * DEPTH_MAX)
        copy->buffer_bytes /= 2;
    uint64_t wanted = copy->buffer_bytes * threads * DEPTH_MAX;
    copy->ring = ring_take(wanted < most ? wanted : most, 2 * LEAST_BUFFER_BYTES);
    if (!copy->ring.memory)
        return fail(copy, -ENOMEM, "ring");
    while (copy->buffer_bytes > LEAST_BUFFER_BYTES &&
           copy->ring.bytes / copy->buffer_bytes < 2 * threads)
        copy->buffer_bytes /= 2;
    size_t buffers = copy->ring.bytes / copy->buffer_bytes;
    copy->threads = (unsigned)(threads < buffers / 2 ? threads : buffers / 2);
    copy->depth =
        (unsigned)(buffers / copy->threads < DEPTH_MAX ? buffers / copy->threads : DEPTH_MAX);
    return true;
}

/* Use as many events as there are: fewer buffers where the device has no room for more. */
static void fit_events(struct copy *copy)
{
    unsigned events = copy->contexts.event_count;
    copy->depth = copy->depth < events ? copy->depth : events;
    copy->threads = copy->threads < events / copy->depth ? copy->threads : events / copy->depth;
}

static bool prepare(struct copy *copy, size_t count, uint64_t bytes)
{
    if (!may_go_on(copy) ||
        !fail(copy, copy_contexts_open(&copy->contexts, copy->extents, count), "context") ||
        !fail(copy, driver()->cuCtxSetCurrent(copy->contexts.rows[0]->context), "context") ||
        !lay_out(copy, bytes) ||
        !fail(copy,
              copy_contexts_fill(&copy->contexts, count_streams(), copy->threads * copy->depth),
              "stream or event"))
        return false;
    fit_events(copy);
    copy->chunks = copy_chunks_cut(copy->extents, count, copy->buffer_bytes, &copy->chunk_count);
    if (!copy->chunks)
        return fail(copy, -ENOMEM, "windows");
    if (copy->threads > copy->chunk_count)
        copy->threads = (unsigned)copy->chunk_count;
    return true;
}

int mover_copy(const struct extent *extents, size_t count, enum mover_direction direction,
               struct mover_timing *timing)
{
    struct copy copy = {.extents = extents, .direction = direction};
    CUcontext before = NULL;
    uint64_t begin = now_nanoseconds();
    *timing = (struct mover_timing){0};
    for (size_t i = 0; i < count; i++)
        timing->bytes += extents[i].bytes;
    if (timing->bytes == 0)
        return 0;
    bool has_before = driver()->cuCtxGetCurrent(&before) == CUDA_SUCCESS;
    if (prepare(&copy, count, timing->bytes)) {
        timing->prepare_nanoseconds = now_nanoseconds() - begin;
        copy_all_chunks(&copy, timing);
        if (!copy.failure) /* the result of the wait for the copy contexts */
            publish_progress(&copy, timing->bytes - copy.published_bytes);
    }
    timing->device_nanoseconds = copy.device_nanoseconds;
    timing->segment_nanoseconds = copy.segment_nanoseconds;
    timing->streams = copy.contexts.count ? copy.contexts.rows[0]->stream_count : 0;
    timing->is_pageable = !copy.ring.is_locked;
    timing->failed_step = copy.failed_step;
    copy_contexts_close(&copy.contexts);
    if (has_before)
        driver()->cuCtxSetCurrent(before);
    free(copy.chunks);
    return copy.failure;
}

/* With the context current. */
static CUresult prepare_in(CUcontext context, int device)
{
    /* other threads' captures do not mind */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool has_mode = driver()->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    CUresult result =
        copy_contexts_prepare(device, context, count_streams(), count_threads() * DEPTH_MAX);
    if (result == CUDA_SUCCESS) {
        uint64_t most = largest_ring();
        ring_take(most < FIRST_RING_BYTES ? most : FIRST_RING_BYTES, 2 * LEAST_BUFFER_BYTES);
    }
    if (has_mode)
        driver()->cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

/* The context is pushed, since the current one may have ended, and could not be set again. */
CUresult mover_prepare(int device)
{
    CUresult result = CUDA_SUCCESS;
    CUcontext popped;
    if (device < 0 || device >= (int)ALIQUOT_MAX_DEVICES || copy_contexts_are_prepared(device))
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
