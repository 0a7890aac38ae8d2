/* The inside of captures. The captures' mutex guards all of it. */
#ifndef SOFTGPU_CAPTURE_STATE_H
#define SOFTGPU_CAPTURE_STATE_H

#include "copies/copies.h"
#include "graphs/graph_state.h"
#include "queue/captures.h"

/* The nodes that the next captured node comes after. */
struct front {
    CUgraphNode *nodes;
    CUgraphEdgeData *data;
    size_t count;
};

/* One sequence: from cuStreamBeginCapture to cuStreamEndCapture. */
struct capture {
    unsigned long long id;
    CUstreamCaptureMode mode;
    const void *thread; /* the thread that began it, by the address of a variable of its own */
    struct stream *origin;
    struct graph *graph;
    int is_given;   /* the graph was there before: cuStreamBeginCaptureToGraph */
    int is_invalid;
    struct captured *members;
    struct front forgotten; /* of streams that were destroyed meanwhile: must be joined too */
    struct capture *next;
};

/* A stream's part in a capture. */
struct captured {
    struct capture *capture;
    struct stream *stream;
    struct front front;
    struct captured *next;
};

/* An event that was last recorded in a captured stream. */
struct captured_event {
    unsigned long long capture_id;
    struct front front;
};

extern pthread_mutex_t capture_mutex;

struct capture *capture_begin(struct stream *stream, struct graph *graph, CUstreamCaptureMode mode);
/* Removes all streams from a capture and frees it. Its graph is the caller's. */
void capture_end(struct capture *capture);
struct capture *capture_find(unsigned long long id); /* NULL: it has ended */
/* NULL without memory */
struct captured *capture_join(struct capture *capture, struct stream *stream);
/* The legacy stream stands for every blocking stream of its context: with `invalidate`, invalidates
 * their captures. 1 if there were any. */
int capture_break_blocking(struct context *context, int invalidate);
/* Whether the origin never waited for a fork. */
int capture_is_unjoined(struct capture *capture);
const void *capture_thread(void);
/* 0, or -1 without memory. */
int front_set(struct front *front, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count);
int front_add(struct front *front, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count);
void front_free(struct front *front);

/* The answers, as struct captures names them. */
int capture_takes_part(struct stream *stream, CUresult *result);
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
/* For a wait while captures are open. 1: the capture dealt with it, *result says how. */
int capture_wait(struct stream *stream, struct event *event, unsigned flags, CUresult *result);

/* Forbidden calls: each invalidates the captures that it would disturb. */
/* a call that a captured stream cannot take */
CUresult capture_refuse(struct stream *stream);
CUresult capture_check_stream(struct stream *stream);   /* waiting for a stream, or asking it */
CUresult capture_check_context(struct context *context); /* the same for all that a context has */
CUresult capture_check_event(struct event *event);      /* asking an event */
/* A call that a capture cannot see, such as cuMemAlloc: by the thread's mode
 * (cuThreadExchangeStreamCaptureMode). */
CUresult capture_check_by_mode(void);

void capture_forget_stream(struct stream *stream);
void capture_forget_context(struct context *context);
void capture_forget_event(struct event *event);

#endif
