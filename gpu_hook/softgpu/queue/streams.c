/* Queues and workers. One mutex guards every queue of the process: its sections are short, and
 * dependencies cross streams. A worker starts with the first work item of its stream, blocks all
 * signals, and ends with the stream. */
#include "queue/streams_state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "driver/handles.h"
#include "queue/captures.h"
#include "driver/checkpoint.h"
#include "device/machine.h"

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t done; /* a work item ended, or a stream did */
    unsigned long long next_id;
    /* work items that a stream may have outstanding; 0: any number. Written at cuInit alone */
    uint32_t most;
} queues = {.mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

void streams_lock(void)
{
    pthread_mutex_lock(&queues.mutex);
}

void streams_unlock(void)
{
    pthread_mutex_unlock(&queues.mutex);
}

/* Called under the mutex, which it releases while the work item runs. The item is the head of its
 * stream. */
static void execute(struct stream *stream, struct work_item *work)
{
    uint64_t clock = work->enqueued > stream->clock ? work->enqueued : stream->clock;
    for (const struct dependency *d = work->dependencies; d; d = d->next)
        if (d->work->clock > clock)
            clock = d->work->clock;
    int sticky = atomic_load(&stream->context->sticky);
    work->is_started = 1;
    stream_expect_next(stream);
    pthread_mutex_unlock(&queues.mutex);
    /* After a fatal error nothing more runs on the context, but all that waits is let go. */
    CUresult result = sticky && !work->runs_after_failure ? (CUresult)sticky : work->run(work, &clock);
    if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
        context_fail(stream->context, result);
    pthread_mutex_lock(&queues.mutex);
    stream_unexpect(stream, work);
    work->result = result;
    work->clock = stream->clock = clock;
    work->is_done = 1;
    checkpoint_count_work(-1);
    stream->outstanding--;
    stream->head = work->next;
    if (stream->head == NULL)
        stream->tail = NULL;
    work_forget_needs(work);
    pthread_cond_broadcast(&queues.done);
    work_drop(work);
}

static void unlink_and_free(struct stream *stream);

static void *serve(void *argument)
{
    struct stream *stream = argument;
    pthread_mutex_lock(&queues.mutex);
    for (;;) {
        struct work_item *work = stream->head;
        if (work && work->is_started)
            pthread_cond_wait(&queues.done, &queues.mutex); /* a caller runs it */
        else if (work && work_is_ready(work))
            execute(stream, work);
        else if (work)
            pthread_cond_wait(&queues.done, &queues.mutex);
        else if (stream->is_closing && stream->awaiting)
            pthread_cond_wait(&queues.done, &queues.mutex);
        else if (stream->is_closing)
            break;
        else
            pthread_cond_wait(&stream->has_work, &queues.mutex);
    }
    unlink_and_free(stream);
    pthread_cond_broadcast(&queues.done);
    pthread_mutex_unlock(&queues.mutex);
    return NULL;
}

/* Under the mutex. */
static int start_worker(struct stream *stream)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    if (stream->has_worker)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 20); /* host functions of the user run here */
    int failed = pthread_create(&thread, &attributes, serve, stream);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    stream->has_worker = !failed;
    return failed ? -1 : 0;
}

/* Under the mutex: the legacy stream waits for all blocking streams of its context, and they for
 * it. */
static int add_implicit_needs(struct stream *stream, struct work_item *work)
{
    struct stream *legacy = stream->context->legacy;
    if (stream->kind == STREAM_BLOCKING && legacy->last && !legacy->last->is_done)
        return work_needs(work, legacy->last);
    if (stream->kind == STREAM_LEGACY)
        for (struct stream *other = stream->context->streams; other; other = other->next)
            if (other->kind == STREAM_BLOCKING && other->last && !other->last->is_done &&
                work_needs(work, other->last) != 0)
                return -1;
    return 0;
}

/* Under the mutex. */
static CUresult append_plainly(struct stream *stream, struct work_item *work)
{
    work->stream = stream;
    work->enqueued = machine_now();
    checkpoint_count_work(1);
    if (stream->tail)
        stream->tail->next = work;
    else
        stream->head = work;
    stream->tail = work;
    stream->outstanding++;
    work_hold(work);
    work_drop(stream->last);
    stream->last = work;
    stream_expect_next(stream);
    return CUDA_SUCCESS;
}

/* Under the mutex. */
static CUresult append(struct stream *stream, struct work_item *work)
{
    return add_implicit_needs(stream, work) ? CUDA_ERROR_OUT_OF_MEMORY : append_plainly(stream, work);
}

void streams_set_queue(uint32_t items)
{
    queues.most = items;
}

CUresult stream_await_room(struct stream *stream)
{
    if (queues.most == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&queues.mutex);
    stream->awaiting++;
    while (stream->outstanding >= queues.most && !stream->is_closing)
        pthread_cond_wait(&queues.done, &queues.mutex);
    stream->awaiting--;
    int is_closing = stream->is_closing;
    if (is_closing) /* its worker waits for this thread to leave it */
        pthread_cond_broadcast(&queues.done);
    pthread_mutex_unlock(&queues.mutex);
    return is_closing ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult stream_enqueue(struct stream *stream, struct work_item *work)
{
    pthread_mutex_lock(&queues.mutex);
    CUresult result = start_worker(stream) ? CUDA_ERROR_OUT_OF_MEMORY : append(stream, work);
    if (result == CUDA_SUCCESS && stream->head == work)
        pthread_cond_signal(&stream->has_work);
    pthread_mutex_unlock(&queues.mutex);
    if (result != CUDA_SUCCESS)
        work_drop(work);
    return result;
}

CUresult streams_enqueue(struct stream *const *streams, struct work_item *const *items, size_t count)
{
    size_t queued = 0;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&queues.mutex);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = start_worker(streams[i]) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    /* Only the first can fail after that: the implicit needs of its stream are those of all that
     * follow there. */
    while (queued < count && result == CUDA_SUCCESS) {
        result = append(streams[queued], items[queued]);
        if (result && queued)
            result = append_plainly(streams[queued], items[queued]);
        if (result == CUDA_SUCCESS && streams[queued]->head == items[queued])
            pthread_cond_signal(&streams[queued]->has_work);
        queued += result == CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&queues.mutex);
    for (; queued < count; queued++)
        work_drop(items[queued]);
    return result;
}

/* Called under the mutex: runs the item as soon as it is first and may start, unless the worker was
 * quicker. */
static void execute_or_wait(struct stream *stream, struct work_item *work)
{
    while (!work->is_done) {
        if (stream->head == work && !work->is_started && work_is_ready(work))
            execute(stream, work);
        else
            pthread_cond_wait(&queues.done, &queues.mutex);
    }
    if (stream->head)
        pthread_cond_signal(&stream->has_work);
}

CUresult stream_run(struct stream *stream, struct work_item *work)
{
    pthread_mutex_lock(&queues.mutex);
    CUresult result = append(stream, work);
    if (result == CUDA_SUCCESS) {
        work_hold(work);
        execute_or_wait(stream, work);
        result = work->result;
    }
    pthread_mutex_unlock(&queues.mutex);
    work_drop(work);
    return result;
}

CUresult stream_enqueue_short(struct stream *stream, struct work_item *work)
{
    pthread_mutex_lock(&queues.mutex);
    int is_first = stream->head == NULL;
    CUresult result = append(stream, work);
    if (result == CUDA_SUCCESS && is_first && work_is_ready(work)) {
        work_hold(work);
        execute_or_wait(stream, work);
        result = work->result;
    } else if (result == CUDA_SUCCESS) {
        work_hold(work);
        if (start_worker(stream) != 0)
            execute_or_wait(stream, work); /* without a thread, the caller does it */
        pthread_cond_signal(&stream->has_work);
    }
    pthread_mutex_unlock(&queues.mutex);
    work_drop(work);
    return result;
}

CUresult work_wait(struct work_item *work)
{
    pthread_mutex_lock(&queues.mutex);
    while (!work->is_done)
        pthread_cond_wait(&queues.done, &queues.mutex);
    CUresult result = work->result;
    pthread_mutex_unlock(&queues.mutex);
    return result;
}

int work_is_done(struct work_item *work, uint64_t *clock)
{
    pthread_mutex_lock(&queues.mutex);
    int is_done = work->is_done;
    if (is_done && clock)
        *clock = work->clock;
    pthread_mutex_unlock(&queues.mutex);
    return is_done;
}

struct work_item *stream_last(struct stream *stream)
{
    pthread_mutex_lock(&queues.mutex);
    struct work_item *last = stream->last;
    if (last)
        work_hold(last);
    pthread_mutex_unlock(&queues.mutex);
    return last;
}

struct stream *stream_open(struct context *context, enum stream_kind kind, int priority, int is_handle)
{
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL || (is_handle && handles_add(HANDLE_STREAM, stream) != 0)) {
        free(stream);
        return NULL;
    }
    stream->context = context;
    stream->kind = kind;
    stream->priority = priority;
    pthread_cond_init(&stream->has_work, NULL);
    pthread_mutex_lock(&queues.mutex);
    stream->id = ++queues.next_id;
    stream->next = context->streams;
    context->streams = stream;
    pthread_mutex_unlock(&queues.mutex);
    return stream;
}

/* Under the mutex. */
static void unlink_and_free(struct stream *stream)
{
    struct stream **link = &stream->context->streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    if (stream->note)
        atomic_store(stream->note, NULL);
    work_drop(stream->last);
    pthread_cond_destroy(&stream->has_work);
    free(stream);
}

/* Under the mutex. */
static void begin_closing(struct stream *stream)
{
    if (stream->is_closing)
        return;
    stream->is_closing = 1;
    if (stream->awaiting)
        pthread_cond_broadcast(&queues.done);
    if (!stream->has_worker && stream->head == NULL && !stream->awaiting)
        unlink_and_free(stream);
    else if (start_worker(stream) == 0) /* else it stays until the context goes: a leak without memory for a thread */
        pthread_cond_signal(&stream->has_work);
}

void stream_close(struct stream *stream)
{
    if (capture_is_on())
        captures->forget_stream(stream);
    pthread_mutex_lock(&queues.mutex);
    begin_closing(stream);
    pthread_mutex_unlock(&queues.mutex);
}

void stream_keep(struct stream *stream, stream_note *note)
{
    pthread_mutex_lock(&queues.mutex);
    stream->note = note;
    atomic_store(note, stream);
    pthread_mutex_unlock(&queues.mutex);
}

void stream_close_kept(stream_note *note)
{
    pthread_mutex_lock(&queues.mutex);
    struct stream *stream = atomic_exchange(note, NULL);
    if (stream)
        stream->note = NULL;
    int is_ours = stream && handles_remove(HANDLE_STREAM, stream);
    pthread_mutex_unlock(&queues.mutex);
    if (is_ours)
        stream_close(stream);
}

void streams_close_all(struct context *context)
{
    if (capture_is_on())
        captures->forget_context(context);
    streams_drain(context);
    pthread_mutex_lock(&queues.mutex);
    for (struct stream *stream = context->streams, *next; stream; stream = next) {
        next = stream->next;
        handles_remove(HANDLE_STREAM, stream);
        begin_closing(stream);
    }
    while (context->streams)
        pthread_cond_wait(&queues.done, &queues.mutex);
    context->legacy = NULL;
    pthread_mutex_unlock(&queues.mutex);
}
