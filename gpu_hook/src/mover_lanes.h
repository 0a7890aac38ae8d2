/* The ways between the ring and each device for the length of one copy: a live context of the device, and streams of our
 * own in it, which neither wait for the user's streams nor are waited for. */
#ifndef ALIQUOT_MOVER_LANES_H
#define ALIQUOT_MOVER_LANES_H

#include "aliquot_protocol.h"
#include "driver.h"
#include "pieces.h"

#include <stdbool.h>

#define LANE_STREAMS_MAX 8u

struct lane {
    int device;
    CUcontext context;
    bool is_borrowed; /* the device had none: its primary one, for the length of the copy */
    CUstream streams[LANE_STREAMS_MAX];
};

struct lanes {
    struct lane rows[ALIQUOT_MAX_DEVICES];
    unsigned count;
    unsigned stream_count; /* of each */
};

/* A lane for each device of the pieces, without streams; also where no context is left, for handles outlive contexts.
 * With contexts_hold, until lanes_close. */
CUresult lanes_open(struct lanes *lanes, const struct piece *pieces, size_t count);
CUresult lanes_make_streams(struct lanes *lanes, unsigned stream_count);

/* For all that was issued. The first failure of all. */
CUresult lanes_wait(const struct lanes *lanes);
void lanes_close(struct lanes *lanes);

/* -1: none. */
int lanes_find(const struct lanes *lanes, int device);

#endif
