/* Captures from the inside; all of it under the captures' mutex. */
#ifndef SOFTGPU_CAPTURE_STATE_H
#define SOFTGPU_CAPTURE_STATE_H

#include "capture/capture.h"
#include "graphs/graph_state.h"

/* What the next captured node comes after. */
struct front {
    CUgraphNode *nodes;
    CUgraphEdgeData *data;
    size_t count;
};

/* One sequence: from cuStreamBeginCapture to cuStreamEndCapture. */
struct capture {
    unsigned long long id;
    CUstreamCaptureMode mode;
    const void *thread; /* that began it: the address of something of its own */
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
/* Takes all streams out of it and frees it; its graph is the caller's. */
void capture_end(struct capture *capture);
struct capture *capture_find(unsigned long long id); /* NULL: it has ended */
struct captured *capture_join(struct capture *capture, struct stream *stream); /* NULL without memory */
/* The legacy stream stands for every blocking stream of its context: invalidates their captures; 1 if there were any. */
int capture_break_blocking(struct context *context, int invalidate);
/* A fork that the origin never waited for. */
int capture_is_unjoined(struct capture *capture);
const void *capture_thread(void);
/* 0, or -1 without memory. */
int front_set(struct front *front, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count);
int front_add(struct front *front, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count);
void front_free(struct front *front);

#endif
