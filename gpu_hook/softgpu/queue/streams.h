/* Streams: queues of work, each with a worker thread and a clock of its own. Simulated time lives here: work starts at the
 * latest of its enqueue time, its stream's clock and what it depends on; events read these times. */
#ifndef SOFTGPU_STREAMS_H
#define SOFTGPU_STREAMS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/contexts.h"

#define STREAM_HIGHEST_PRIORITY (-5)

enum stream_kind { STREAM_LEGACY, STREAM_BLOCKING, STREAM_NON_BLOCKING };

/* What a work does to the time of its stream. */
enum work_pace { WORK_OF_ITS_OWN, WORK_AT_ONCE, WORK_ON_ENGINE };

/* One queued operation. `run` works outside all locks and sets *clock, which comes in as the earliest start. */
struct work {
    CUresult (*run)(struct work *work, uint64_t *clock);
    struct stream *stream;
    struct work *next;
    struct dependency *dependencies;
    uint64_t enqueued;
    uint64_t clock; /* when it ended; valid once done */
    atomic_int references;
    uint32_t payload_bytes;
    CUresult result;
    int runs_after_failure;  /* gives something back, whatever became of the context */
    int is_started, is_done; /* under the streams' mutex */
    enum work_pace pace;
    int is_expected; /* the engine was told of it; under the mutex until it has started */
    _Alignas(16) unsigned char payload[];
};

/* A work that another comes after. */
struct dependency {
    struct work *work;
    struct dependency *next;
};

/* A stream that somebody keeps without a handle of it: NULL as soon as it goes with its context. Its address may be
 * another stream's then. */
typedef _Atomic(struct stream *) stream_note;

/* A CUstream is a pointer to this. */
struct stream {
    struct context *context;
    enum stream_kind kind;
    int priority;
    unsigned long long id;
    struct green *green;      /* whose multiprocessors it runs on; NULL: the whole device's */
    struct stream *next; /* of the same context */
    struct work *head, *tail; /* not yet done; under the streams' mutex */
    struct work *last;        /* the latest enqueued, done or not: a reference */
    uint64_t clock;
    int has_worker, is_closing;
    uint32_t outstanding; /* works in the queue; under the streams' mutex */
    uint32_t awaiting;    /* threads that wait for room in it; under the streams' mutex */
    int is_charged; /* its context was charged for it (resources.h) */
    pthread_cond_t has_work;
    struct captured *captured; /* its part in a capture, or NULL; under the captures' mutex */
    stream_note *note;         /* where a thread keeps it, or NULL; under the streams' mutex */
};

/* How many works a stream may have outstanding; 0: any number. Called once, before there are streams. */
void streams_set_queue(uint32_t works);
struct stream *stream_open(struct context *context, enum stream_kind kind, int priority, int is_handle);
/* Returns at once; the stream goes when its work is done. */
void stream_close(struct stream *stream);
void stream_keep(struct stream *stream, stream_note *note);
/* Closes the stream that is kept there, if there is one still. */
void stream_close_kept(stream_note *note);
/* What a CUstream argument means: the handle, or the default stream of the current context. Sets *context. */
CUresult stream_resolve(CUstream handle, struct stream **stream, struct context **context);
CUresult stream_check(CUstream handle); /* as stream_resolve, for those who need neither */

/* A work with room for a payload; NULL without memory. Held by its creator until work_drop. */
struct work *work_new(CUresult (*run)(struct work *, uint64_t *), size_t payload_bytes);
void work_hold(struct work *work);
void work_drop(struct work *work);
/* 0, or -1 without memory: `work` shall not start before `earlier` is done. Takes a reference. */
int work_needs(struct work *work, struct work *earlier);
void work_forget_needs(struct work *work);
/* Waits while the queue is full. Called with no lock held, before a call puts work there; what the driver puts there by
 * itself finds room always. Two threads that find room for one work both go on. */
CUresult stream_await_room(struct stream *stream);
/* Puts it in the queue; takes the creator's reference. */
CUresult stream_enqueue(struct stream *stream, struct work *work);
/* All of them, in this order, each in the stream of the same index, or none: takes the creator's references. */
CUresult streams_enqueue(struct stream *const *streams, struct work *const *works, size_t count);
/* As stream_enqueue, and waits; runs it in the calling thread when nothing is before it. */
CUresult stream_run(struct stream *stream, struct work *work);
/* For work that takes no time: run here when nothing is before it, else queued. */
CUresult stream_enqueue_short(struct stream *stream, struct work *work);
CUresult work_wait(struct work *work);
int work_is_done(struct work *work, uint64_t *clock);
/* The latest work of a stream, held; NULL when there was none. */
struct work *stream_last(struct stream *stream);
/* Called by cuInit, once: what is told that the host has waited for a stream, an event or a context. */
void streams_on_wait(void (*listener)(void));
void streams_tell_wait(void);
/* Waits for all that the stream, or every stream of a context, has been given. */
CUresult stream_drain(struct stream *stream);
CUresult streams_drain(struct context *context);
/* The same for what the legacy stream waits for. */
CUresult streams_drain_blocking(struct context *context);
void streams_close_all(struct context *context);

#endif
