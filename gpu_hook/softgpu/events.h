/* Events: marks in a stream, with the stream's clock when it passed them. */
#ifndef SOFTGPU_EVENTS_H
#define SOFTGPU_EVENTS_H

#include "streams.h"

/* A CUevent is a pointer to this. */
struct event {
    struct context *context;
    unsigned flags;
    struct work *mark; /* NULL: never recorded; under the events' mutex, which holds a reference */
};

CUresult event_record(struct event *event, struct stream *stream);

#endif
