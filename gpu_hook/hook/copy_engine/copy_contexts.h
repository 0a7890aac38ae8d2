/* One copy context for each device: a live context of the device, and streams and events of the
 * hook's own in it. These neither wait for the user's streams nor make them wait. They are made
 * before the first memory that can leave is allocated, because a full device has no room for them,
 * and are kept as long as their context. */
#ifndef ALIQUOT_COPY_CONTEXTS_H
#define ALIQUOT_COPY_CONTEXTS_H

#include "aliquot_protocol.h"
#include "interpose/driver.h"
#include "copy_engine/extent.h"

#include <stdbool.h>

#define COPY_CONTEXT_STREAMS_MAX 8u
#define COPY_CONTEXT_EVENTS_MAX 64u

/* The copy context of one device. Guarded by contexts_hold, except that `context` is read
 * without. */
struct copy_context {
    int device;
    CUcontext context; /* NULL: none is prepared */
    /* the device had no context: its primary one is used for the length of the copy */
    bool is_borrowed;
    CUstream streams[COPY_CONTEXT_STREAMS_MAX];
    CUevent events[COPY_CONTEXT_EVENTS_MAX];
    unsigned stream_count, event_count;
};

/* The copy contexts of one copy. */
struct copy_contexts {
    struct copy_context *rows[ALIQUOT_MAX_DEVICES];
    unsigned count;
    unsigned event_count; /* that each of them has, at least */
};

/* Open the copy context of each device of the extents, also where no context is left, because
 * handles outlive contexts. Called with contexts_hold, until copy_contexts_close. */
CUresult copy_contexts_open(struct copy_contexts *contexts, const struct extent *extents,
                            size_t count);

/* Make the streams and events that each copy context lacks of these numbers. Returns the first
 * failure that leaves a copy context without any. */
CUresult copy_contexts_fill(struct copy_contexts *contexts, unsigned streams, unsigned events);

/* Wait for all that was issued. Returns the first failure. */
CUresult copy_contexts_wait(const struct copy_contexts *contexts);

/* End the use of borrowed contexts. Copy contexts that could not be filled are forgotten, so that
 * they are prepared when there is room; the others stay for the next copy. */
void copy_contexts_close(struct copy_contexts *contexts);

/* Return the row of the device; -1: none. */
int copy_contexts_find(const struct copy_contexts *contexts, int device);

/* Return whether the device's copy context is prepared; takes no lock. */
bool copy_contexts_are_prepared(int device);

/* Make the copy context of a device in the current context, with all of its streams and events or
 * none. Called with contexts_hold. */
CUresult copy_contexts_prepare(int device, CUcontext context, unsigned streams, unsigned events);

/* Forget what was made in a context that ended. Called with contexts_hold. */
void copy_contexts_forget_context(CUcontext context);

/* Called in the child of a fork. */
void copy_contexts_reset(void);

#endif
