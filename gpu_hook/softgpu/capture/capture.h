/* Stream capture: while a stream is captured, what is put into it becomes nodes of a graph. Every function that puts work
 * into a stream asks capture_takes first; without a capture in the process that is one predictable branch. */
#ifndef SOFTGPU_CAPTURE_H
#define SOFTGPU_CAPTURE_H

#include <stdatomic.h>

#include "copies/copies.h"
#include "queue/streams.h"

struct graph;
struct event;

extern atomic_int capture_open; /* captures begun and not ended, in this process */

static inline int capture_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&capture_open, memory_order_relaxed) != 0, 0);
}

int capture_takes_slowly(struct stream *stream, CUresult *result);

/* 1: the stream is captured, the call becomes a node. 0: the call goes on, unless *result is an error. */
static inline int capture_takes(struct stream *stream, CUresult *result)
{
    *result = CUDA_SUCCESS;
    return capture_is_on() && capture_takes_slowly(stream, result);
}

/* The nodes that calls become. */
CUresult capture_launch(struct stream *stream, const CUlaunchConfig *config, CUfunction function, void **parameters,
                        void **extra, int is_cooperative);
CUresult capture_copy(struct stream *stream, struct place to, struct place from, struct shape shape);
CUresult capture_fill(struct stream *stream, struct place to, uint32_t value, unsigned element_bytes,
                      struct shape shape);
CUresult capture_host_call(struct stream *stream, CUhostFn function, void *data);
CUresult capture_allocation(struct stream *stream, CUdevice device, size_t bytes, CUdeviceptr *address);
CUresult capture_free(struct stream *stream, CUdeviceptr address);
CUresult capture_graph(struct stream *stream, struct graph *graph);
CUresult capture_external_event(struct stream *stream, CUevent event, int is_wait);
/* Marks the event with what the stream has captured so far. */
CUresult capture_event(struct stream *stream, struct event *event);
/* For a wait while captures are open: 1 when it was dealt with, *result says how. */
int capture_wait(struct stream *stream, struct event *event, unsigned flags, CUresult *result);

/* Forbidden calls: each invalidates the captures that it would disturb. */
CUresult capture_refuse(struct stream *stream);         /* what a captured stream cannot take */
CUresult capture_check_stream(struct stream *stream);   /* waiting for a stream, or asking it */
CUresult capture_check_context(struct context *context); /* the same for all that a context has */
CUresult capture_check_event(struct event *event);      /* asking an event */
/* What a capture cannot see, such as cuMemAlloc: by the thread's mode (cuThreadExchangeStreamCaptureMode). */
CUresult capture_check_unsafe_slowly(void);

static inline CUresult capture_check_unsafe(void)
{
    return capture_is_on() ? capture_check_unsafe_slowly() : CUDA_SUCCESS;
}

void capture_forget_stream(struct stream *stream);
void capture_forget_context(struct context *context);
void capture_forget_event(struct event *event);

#endif
