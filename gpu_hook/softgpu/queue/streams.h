/* Streams: queues of work items, each with a worker thread and a clock of its own. Simulated time
 * lives here. A work item starts at the latest of three times: when it was queued, its stream's
 * clock, and the end of what it depends on. Events read these times. */
#ifndef SOFTGPU_STREAMS_H
#define SOFTGPU_STREAMS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/contexts.h"

#define STREAM_HIGHEST_PRIORITY (-5)

enum stream_kind { STREAM_LEGACY, STREAM_BLOCKING, STREAM_NON_BLOCKING };

/* The effect of a work item on the time of its stream. */
enum work_pace { WORK_OF_ITS_OWN, WORK_AT_ONCE, WORK_ON_ENGINE };

/* One queued operation. `run` is called outside all locks; *clock comes in as the earliest start,
 * and `run` sets it to the end. */
struct work_item {
    CUresult (*run)(struct work_item *work, uint64_t *clock);
    struct stream *stream;
    struct work_item *next;
    struct dependency *dependencies;
    uint64_t enqueued;
    uint64_t clock; /* when it ended; valid once is_done */
    atomic_int references;
    uint32_t payload_bytes;
    CUresult result;
    int runs_after_failure;  /* it gives something back, so it runs even after the context failed */
    int is_started, is_done; /* under the streams' mutex */
    enum work_pace pace;
    int is_expected; /* it was announced to the engine; under the mutex until it has started */
    _Alignas(16) unsigned char payload[];
};

/* A work item that must end before another starts. */
struct dependency {
    struct work_item *work;
    struct dependency *next;
};

/* A stream that a thread keeps without its handle. NULL as soon as the stream goes with its
 * context: its address may be another stream's then. */
typedef _Atomic(struct stream *) stream_note;

/* A CUstream is a pointer to this. */
struct stream {
    struct context *context;
    enum stream_kind kind;
    int priority;
    unsigned long long id;
    /* the green context on whose multiprocessors it runs; NULL: the whole device */
    struct green *green;
    struct stream *next; /* of the same context */
    struct work_item *head, *tail; /* not yet done; under the streams' mutex */
    struct work_item *last;        /* the latest enqueued, done or not: a reference */
    uint64_t clock;
    int has_worker, is_closing;
    uint32_t outstanding; /* work items in the queue; under the streams' mutex */
    uint32_t awaiting;    /* threads that wait for room in it; under the streams' mutex */
    int is_charged; /* its context was charged for it (resources.h) */
    pthread_cond_t has_work;
    struct captured *captured; /* its part in a capture, or NULL; under the captures' mutex */
    /* the place where a thread keeps it, or NULL; under the streams' mutex */
    stream_note *note;
};

/* How many work items a stream may have outstanding; 0: any number. Called once, before there are
 * streams. */
void streams_set_queue(uint32_t items);
struct stream *stream_open(struct context *context, enum stream_kind kind, int priority, int is_handle);
/* Returns at once. The stream ends when its work items are done. */
void stream_close(struct stream *stream);
void stream_keep(struct stream *stream, stream_note *note);
/* Closes the kept stream, unless it is gone already. */
void stream_close_kept(stream_note *note);
/* Resolves a CUstream argument: the handle, or the default stream of the current context. Sets
 * *context. */
CUresult stream_resolve(CUstream handle, struct stream **stream, struct context **context);
CUresult stream_check(CUstream handle); /* the checks of stream_resolve alone */

/* A work item with room for a payload; NULL without memory. The creator holds it until
 * work_drop. */
struct work_item *work_new(CUresult (*run)(struct work_item *, uint64_t *), size_t payload_bytes);
void work_hold(struct work_item *work);
void work_drop(struct work_item *work);
/* Makes `work` wait until `earlier` is done, which it holds. 0, or -1 without memory. */
int work_needs(struct work_item *work, struct work_item *earlier);
void work_forget_needs(struct work_item *work);
/* Waits while the queue is full. A call does so, with no lock held, before it puts a work item
 * there; what the driver puts there by itself always finds room. Two threads that find room for one
 * item both go on. */
CUresult stream_await_room(struct stream *stream);
/* Queues a work item, and takes the creator's reference. */
CUresult stream_enqueue(struct stream *stream, struct work_item *work);
/* Queues all of them in this order, each in the stream of the same index, or none. Takes the
 * creator's references. */
CUresult streams_enqueue(struct stream *const *streams, struct work_item *const *items, size_t count);
/* Queues and waits. The calling thread runs the item when nothing is before it. */
CUresult stream_run(struct stream *stream, struct work_item *work);
/* For an item that takes no time: the calling thread runs it when nothing is before it, else it is
 * queued. */
CUresult stream_enqueue_short(struct stream *stream, struct work_item *work);
CUresult work_wait(struct work_item *work);
int work_is_done(struct work_item *work, uint64_t *clock);
/* The latest work item of a stream, held; NULL when there was none. */
struct work_item *stream_last(struct stream *stream);
/* Called by cuInit, once. The listener is told each time that the host has waited for a stream, an
 * event or a context. */
void streams_on_wait(void (*listener)(void));
void streams_tell_wait(void);
/* Waits for all that the stream, or every stream of a context, has been given. */
CUresult stream_drain(struct stream *stream);
CUresult streams_drain(struct context *context);
/* The same for what the legacy stream waits for. */
CUresult streams_drain_blocking(struct context *context);
void streams_close_all(struct context *context);

#endif
