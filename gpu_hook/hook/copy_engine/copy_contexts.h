/* The ways between the ring and each device: a live context of the device, and streams and events of our own in it, which
 * neither wait for the user's streams nor are waited for. They are made before the first memory that can leave is
 * allocated, for a full device has no room for them, and are kept as long as their context. */
#ifndef ALIQUOT_COPY_CONTEXTS_H
#define ALIQUOT_COPY_CONTEXTS_H

#include "aliquot_protocol.h"
#include "interpose/driver.h"
#include "copy_engine/extent.h"

#include <stdbool.h>

#define LANE_STREAMS_MAX 8u
#define LANE_EVENTS_MAX 64u

/* Of one device. Guarded by contexts_hold, save that `context` is read without. */
struct lane {
    int device;
    CUcontext context; /* NULL: none is prepared */
    bool is_borrowed;  /* the device had none: its primary one, for the length of the copy */
    CUstream streams[LANE_STREAMS_MAX];
    CUevent events[LANE_EVENTS_MAX];
    unsigned stream_count, event_count;
};

/* Those of one copy. */
struct lanes {
    struct lane *rows[ALIQUOT_MAX_DEVICES];
    unsigned count;
    unsigned event_count; /* that each of them has, at least */
};

/* A lane for each device of the pieces; also where no context is left, for handles outlive contexts. With contexts_hold,
 * until lanes_close. */
CUresult lanes_open(struct lanes *lanes, const struct piece *pieces, size_t count);

/* Makes what is lacking of so many streams and events in each lane. The first failure that leaves a lane without any. */
CUresult lanes_fill(struct lanes *lanes, unsigned streams, unsigned events);

/* Waits for all that was issued. The first failure of all. */
CUresult lanes_wait(const struct lanes *lanes);

/* Ends the use of borrowed contexts, and forgets lanes that could not be filled, so that they are prepared when there is
 * room; the others stay for the next copy. */
void lanes_close(struct lanes *lanes);

/* -1: none. */
int lanes_find(const struct lanes *lanes, int device);

/* Whether the device's lane is prepared; takes no lock. */
bool lanes_are_prepared(int device);

/* Makes the lane of a device in the current context, with all of its streams and events or none. With contexts_hold. */
CUresult lanes_prepare(int device, CUcontext context, unsigned streams, unsigned events);

/* The context ended, and what was made in it. With contexts_hold. */
void lanes_forget_context(CUcontext context);

/* In the child of a fork. */
void lanes_reset(void);

#endif
