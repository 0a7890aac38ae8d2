/* Events: marks in a stream, with the stream's clock when it passed them. */
#ifndef SOFTGPU_EVENTS_H
#define SOFTGPU_EVENTS_H

#include "queue/event_shares.h"
#include "queue/streams.h"

/* A CUevent is a pointer to this. */
struct event {
    struct context *context;
    unsigned flags;
    /* its latest record was captured; under the captures' mutex */
    _Atomic(struct captured_event *) captured;
    /* NULL: never recorded; under the events' mutex, which holds a reference */
    struct work_item *mark;
    struct event_share *share; /* NULL: of this process alone */
    struct event_place place;  /* of the share, where it was made; descriptor -1 elsewhere */
    uint64_t mark_number;      /* of `mark` among the share's records; under the events' mutex */
};

/* `share`, which it keeps, may be NULL. NULL without memory. */
struct event *event_new(struct context *context, unsigned flags, struct event_share *share);

CUresult event_record(struct event *event, struct stream *stream);
/* The latest mark, held; NULL when never recorded, or done in another process. */
struct work_item *event_hold_mark(struct event *event);
/* Sets the mark that another file put into a stream. */
void event_set_mark(struct event *event, struct work_item *mark);

#endif
