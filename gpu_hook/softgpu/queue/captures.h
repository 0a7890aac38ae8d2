/* The effect of a call while its stream is captured. Every function that puts work into a stream
 * asks capture_takes first; without a capture in the process that is one predictable branch.
 * capture/, which knows graphs, gives the answers. */
#ifndef SOFTGPU_CAPTURES_H
#define SOFTGPU_CAPTURES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

struct context;
struct event;
struct graph;
struct place;
struct shape;
struct stream;

struct captures {
    int (*takes)(struct stream *stream, CUresult *result);
    /* The nodes that calls become. */
    CUresult (*launch)(struct stream *stream, const CUlaunchConfig *config, CUfunction function,
                       void **parameters, void **extra, int is_cooperative);
    CUresult (*copy)(struct stream *stream, struct place to, struct place from, struct shape shape);
    CUresult (*fill)(struct stream *stream, struct place to, uint32_t value, unsigned element_bytes,
                     struct shape shape);
    CUresult (*host_call)(struct stream *stream, CUhostFn function, void *data);
    CUresult (*allocation)(struct stream *stream, CUdevice device, size_t bytes, CUdeviceptr *address);
    CUresult (*free)(struct stream *stream, CUdeviceptr address);
    CUresult (*graph)(struct stream *stream, struct graph *graph);
    CUresult (*external_event)(struct stream *stream, CUevent event, int is_wait);
    /* Marks the event with what the stream has captured so far. */
    CUresult (*event)(struct stream *stream, struct event *event);
    /* For a wait while captures are open. 1: the capture dealt with it, *result says how. */
    int (*wait)(struct stream *stream, struct event *event, unsigned flags, CUresult *result);

    /* Forbidden calls: each invalidates the captures that it would disturb. */
    /* a call that a captured stream cannot take */
    CUresult (*refuse)(struct stream *stream);
    CUresult (*check_stream)(struct stream *stream);   /* waiting for a stream, or asking it */
    CUresult (*check_context)(struct context *context); /* the same for all that a context has */
    CUresult (*check_event)(struct event *event);      /* asking an event */
    /* A call that a capture cannot see, such as cuMemAlloc: by the thread's mode
     * (cuThreadExchangeStreamCaptureMode). */
    CUresult (*check_unsafe)(void);

    void (*forget_stream)(struct stream *stream);
    void (*forget_context)(struct context *context);
    void (*forget_event)(struct event *event);
};

extern const struct captures *captures; /* written at cuInit alone */
extern atomic_int captures_open; /* captures begun and not ended, in this process */

/* Called by cuInit, once. */
void captures_answer_with(const struct captures *answers);

static inline int capture_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&captures_open, memory_order_relaxed) != 0, 0);
}

/* 1: the stream is captured, the call becomes a node. 0: the call goes on, unless *result is an
 * error. */
static inline int capture_takes(struct stream *stream, CUresult *result)
{
    *result = CUDA_SUCCESS;
    return capture_is_on() && captures->takes(stream, result);
}

static inline CUresult capture_check_unsafe(void)
{
    return capture_is_on() ? captures->check_unsafe() : CUDA_SUCCESS;
}

#endif
