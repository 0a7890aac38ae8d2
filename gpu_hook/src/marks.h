/* Events in one stream of the program's, between the launches: when the stream passed each, on CLOCK_MONOTONIC. Makes
 * events when they are first needed, in the current context, and keeps them for later marks; waits for none. Not for
 * several threads at once.
 */
#ifndef ALIQUOT_MARKS_H
#define ALIQUOT_MARKS_H

#include "driver.h"

#include <stdbool.h>
#include <stdint.h>

#define MARKS_MOST 32u

/* What a mark says of the launches before it, since the mark before. Empty: it only begins something. */
struct marked_work {
    uint64_t expected;    /* nanoseconds */
    uint64_t at_most;     /* nanoseconds: the mark came late, when the stream was through already; 0: it did not */
    const void *function; /* of the one launch, where it was alone; NULL: there were several */
    unsigned grid_class;
    uint32_t window;   /* the page's solo_window when it began */
    uint32_t launches; /* 0: empty */
    uint32_t was_unknown; /* launches of which nobody knew how long they take */
    bool has_overlapped;
};

struct mark {
    CUevent event;         /* NULL: not made yet */
    uint64_t recorded_at;  /* just before the driver was asked */
    uint64_t passed_at;    /* as well as can be told */
    struct marked_work work;
    uint32_t ended_bursts; /* that are over when it is passed */
};

struct marks {
    CUcontext context;
    CUstream stream; /* NULL: it has ended */
    struct mark ring[MARKS_MOST];
    unsigned first, count; /* of those that are not passed */
    bool has_last;         /* ring[first - 1] was passed, and its event is still that */
};

/* A mark that was passed. `nanoseconds` of device time from the one before. */
struct passed_mark {
    const struct mark *mark; /* until the next mark is recorded */
    uint64_t nanoseconds;
    bool is_measured; /* false: the driver's answer was no time */
};

enum marks_outcome { MARKS_NONE, MARKS_PASSED, MARKS_BROKEN };

/* One more can be recorded. */
static inline bool marks_have_room(const struct marks *marks)
{
    return marks->count + 1 < MARKS_MOST;
}

/* The newest one that is not passed; NULL: there is none. */
struct mark *marks_newest(struct marks *marks);

/* Records a mark behind all that the stream was given; the caller knows that there is room, and that the stream does
 * not capture. The stream's context is current. */
CUresult marks_record(struct marks *marks, const struct marked_work *work, uint64_t now);

/* Asks for the oldest one that is not passed. Its context is current. */
enum marks_outcome marks_next(struct marks *marks, struct passed_mark *passed);

/* Forgets what is not passed. */
void marks_drop(struct marks *marks);

/* Ends the events; their context is current. */
void marks_end(struct marks *marks);

#endif
