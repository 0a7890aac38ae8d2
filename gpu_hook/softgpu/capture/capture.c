/* The rules of capture. A call that is not allowed invalidates the captures that it would have
 * disturbed, as the driver does: they end with an error, never with a wrong graph. */
#include "capture/capture.h"

#include <stdlib.h>
#include <string.h>

#include "capture/capture_state.h"
#include "queue/events.h"
#include "driver/handles.h"
#include "implemented.h"

pthread_mutex_t capture_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct {
    struct capture *all; /* under the mutex */
    unsigned long long next_id;
} open_captures;

static __thread struct {
    CUstreamCaptureMode mode; /* 0 is GLOBAL, the default */
} thread;

const void *capture_thread(void)
{
    return &thread;
}

void front_free(struct front *front)
{
    free(front->nodes);
    free(front->data);
    *front = (struct front){0};
}

int front_add(struct front *front, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count)
{
    CUgraphNode *all = realloc(front->nodes, (front->count + count + 1) * sizeof *all);
    if (all)
        front->nodes = all;
    CUgraphEdgeData *edges = realloc(front->data, (front->count + count + 1) * sizeof *edges);
    if (edges)
        front->data = edges;
    if (all == NULL || edges == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < front->count && front->nodes[at] != nodes[i])
            at++;
        if (at < front->count)
            continue;
        front->nodes[front->count] = nodes[i];
        front->data[front->count++] = data ? data[i] : (CUgraphEdgeData){0};
    }
    return 0;
}

int front_set(struct front *front, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count)
{
    struct front fresh = {0};
    if (front_add(&fresh, nodes, data, count) != 0) {
        front_free(&fresh);
        return -1;
    }
    front_free(front);
    *front = fresh;
    return 0;
}

struct capture *capture_find(unsigned long long id)
{
    struct capture *capture = open_captures.all;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

struct captured *capture_join(struct capture *capture, struct stream *stream)
{
    struct captured *part = calloc(1, sizeof *part);
    if (part) {
        *part = (struct captured){.capture = capture, .stream = stream, .next = capture->members};
        capture->members = part;
        stream->captured = part;
    }
    return part;
}

struct capture *capture_begin(struct stream *stream, struct graph *graph, CUstreamCaptureMode mode)
{
    struct capture *capture = calloc(1, sizeof *capture);
    if (capture == NULL || capture_join(capture, stream) == NULL) {
        free(capture);
        return NULL;
    }
    capture->id = ++open_captures.next_id;
    capture->mode = mode;
    capture->thread = capture_thread();
    capture->origin = stream;
    capture->graph = graph;
    capture->next = open_captures.all;
    open_captures.all = capture;
    graph->captures++;
    atomic_fetch_add(&captures_open, 1);
    return capture;
}

void capture_end(struct capture *capture)
{
    struct capture **link = &open_captures.all;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    while (capture->members) {
        struct captured *part = capture->members;
        capture->members = part->next;
        part->stream->captured = NULL;
        front_free(&part->front);
        free(part);
    }
    front_free(&capture->forgotten);
    capture->graph->captures--;
    free(capture);
    atomic_fetch_sub(&captures_open, 1);
}

int capture_break_blocking(struct context *context, int invalidate)
{
    int found = 0;
    for (struct capture *capture = open_captures.all; capture; capture = capture->next)
        for (const struct captured *part = capture->members; part; part = part->next)
            if (part->stream->context == context && part->stream->kind == STREAM_BLOCKING) {
                found = 1;
                capture->is_invalid |= invalidate;
            }
    return found;
}

/* Marks all that lies before marked nodes. A captured node comes after older ones, save where the
 * program drew an edge of its own: one pass from the end is nearly always enough. */
static void mark_before(struct graph *graph)
{
    for (int again = 1; again;) {
        again = 0;
        for (size_t i = graph->count; i-- > 0;) {
            const struct edges *needs = &graph->nodes[i]->needs;
            for (size_t e = 0; graph->nodes[i]->mark && e < needs->count; e++) {
                again |= !needs->items[e].node->mark && needs->items[e].node->index > i;
                needs->items[e].node->mark = 1;
            }
        }
    }
}

static int is_marked(const struct front *front)
{
    for (size_t i = 0; i < front->count; i++)
        if (!((struct node *)front->nodes[i])->mark)
            return 0;
    return 1;
}

int capture_is_unjoined(struct capture *capture)
{
    const struct captured *origin = capture->origin->captured;
    for (size_t i = 0; i < capture->graph->count; i++)
        capture->graph->nodes[i]->mark = 0;
    for (size_t i = 0; i < origin->front.count; i++)
        ((struct node *)origin->front.nodes[i])->mark = 1;
    mark_before(capture->graph);
    for (const struct captured *part = capture->members; part; part = part->next)
        if (!is_marked(&part->front))
            return 1;
    return !is_marked(&capture->forgotten);
}

int capture_takes_part(struct stream *stream, CUresult *result)
{
    int takes = 0;
    *result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_mutex);
    if (stream->captured) {
        takes = !stream->captured->capture->is_invalid;
        *result = takes ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (stream->kind == STREAM_LEGACY && capture_break_blocking(stream->context, 1)) {
        *result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    pthread_mutex_unlock(&capture_mutex);
    return takes;
}

/* Under the mutex. */
static CUresult invalidate(struct capture *capture, CUresult error)
{
    if (capture->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    capture->is_invalid = 1;
    return error;
}

CUresult capture_refuse(struct stream *stream)
{
    pthread_mutex_lock(&capture_mutex);
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->captured)
        result = invalidate(stream->captured->capture, result);
    pthread_mutex_unlock(&capture_mutex);
    return result;
}

CUresult capture_check_stream(struct stream *stream)
{
    CUresult result;
    return capture_takes_part(stream, &result) ? capture_refuse(stream) : result;
}

CUresult capture_check_context(struct context *context)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_mutex);
    for (struct capture *capture = open_captures.all; capture; capture = capture->next)
        for (const struct captured *part = capture->members; part; part = part->next)
            if (part->stream->context == context) {
                capture->is_invalid = 1;
                result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
    pthread_mutex_unlock(&capture_mutex);
    return result;
}

CUresult capture_check_event(struct event *event)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_mutex);
    struct captured_event *captured = atomic_load(&event->captured);
    if (captured) {
        struct capture *capture = capture_find(captured->capture_id);
        if (capture)
            capture->is_invalid = 1;
        result = CUDA_ERROR_CAPTURED_EVENT;
    }
    pthread_mutex_unlock(&capture_mutex);
    return result ? result : capture_check_unsafe();
}

CUresult capture_check_by_mode(void)
{
    CUresult result = CUDA_SUCCESS;
    if (thread.mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return result;
    pthread_mutex_lock(&capture_mutex);
    for (struct capture *capture = open_captures.all; capture; capture = capture->next) {
        int is_own = capture->thread == capture_thread() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        int is_global = thread.mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                        capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (is_own || is_global) {
            capture->is_invalid = 1;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&capture_mutex);
    return result;
}

CUresult impl_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread.mode;
    thread.mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* Under the mutex: a stream goes. Without its origin a capture cannot be ended: it goes too. */
static void leave(struct captured *part)
{
    struct capture *capture = part->capture;
    if (capture->origin == part->stream) {
        struct graph *graph = capture->is_given ? NULL : capture->graph;
        capture_end(capture);
        graph_free(graph);
        return;
    }
    if (front_add(&capture->forgotten, part->front.nodes, part->front.data, part->front.count) != 0)
        capture->is_invalid = 1;
    struct captured **link = &capture->members;
    while (*link != part)
        link = &(*link)->next;
    *link = part->next;
    part->stream->captured = NULL;
    front_free(&part->front);
    free(part);
}

void capture_forget_stream(struct stream *stream)
{
    pthread_mutex_lock(&capture_mutex);
    if (stream->captured)
        leave(stream->captured);
    pthread_mutex_unlock(&capture_mutex);
}

void capture_forget_context(struct context *context)
{
    pthread_mutex_lock(&capture_mutex);
    for (struct capture *capture = open_captures.all, *next; capture; capture = next) {
        int has_any = 0;
        next = capture->next;
        for (const struct captured *part = capture->members; part; part = part->next)
            has_any |= part->stream->context == context;
        if (has_any) {
            struct graph *graph = capture->is_given ? NULL : capture->graph;
            capture_end(capture);
            graph_free(graph);
        }
    }
    pthread_mutex_unlock(&capture_mutex);
}

const struct captures capture_answers = {
    .takes = capture_takes_part,
    .launch = capture_launch,
    .copy = capture_copy,
    .fill = capture_fill,
    .host_call = capture_host_call,
    .allocation = capture_allocation,
    .free = capture_free,
    .graph = capture_graph,
    .external_event = capture_external_event,
    .event = capture_event,
    .wait = capture_wait,
    .refuse = capture_refuse,
    .check_stream = capture_check_stream,
    .check_context = capture_check_context,
    .check_event = capture_check_event,
    .check_unsafe = capture_check_by_mode,
    .forget_stream = capture_forget_stream,
    .forget_context = capture_forget_context,
    .forget_event = capture_forget_event,
};
