/* Events: marks in a stream, with the stream's clock when it passed them. */
#ifndef SOFTGPU_EVENTS_H
#define SOFTGPU_EVENTS_H

#include "streams.h"

/* A CUevent is a pointer to this. */
struct event {
    struct context *context;
    unsigned flags;
    _Atomic(struct captured_event *) captured; /* its latest record was captured; under the captures' mutex */
    struct work *mark; /* NULL: never recorded; under the events' mutex, which holds a reference */
};

CUresult event_record(struct event *event, struct stream *stream);
/* The latest mark, held; NULL when never recorded. */
struct work *event_hold_mark(struct event *event);
void event_set_mark(struct event *event, struct work *mark);

#endif
