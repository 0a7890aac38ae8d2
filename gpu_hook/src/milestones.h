/* Events in one stream of the program's, between the launches: when the stream passed each, on CLOCK_MONOTONIC. Makes
 * events when they are first needed, in the current context, and keeps them for later milestones; waits for none. Not for
 * several threads at once.
 */
#ifndef ALIQUOT_MILESTONES_H
#define ALIQUOT_MILESTONES_H

#include "driver.h"

#include <stdbool.h>
#include <stdint.h>

#define MILESTONES_MOST 32u

/* What a milestone says of the launches before it, since the milestone before. Empty: it only begins something. */
struct timed_work {
    uint64_t expected;    /* nanoseconds */
    uint64_t at_most;     /* nanoseconds: the milestone came late, when the stream was through already; 0: it did not */
    const void *function; /* of the one launch, where it was alone; NULL: there were several */
    unsigned grid_class;
    uint32_t window;   /* the page's solo_window when it began */
    uint32_t launches; /* 0: empty */
    uint32_t was_unknown; /* launches of which nobody knew how long they take */
    bool has_overlapped;
};

struct milestone {
    CUevent event;         /* NULL: not made yet */
    uint64_t recorded_at;  /* just before the driver was asked */
    uint64_t passed_at;    /* as well as can be told */
    struct timed_work work;
    uint32_t ended_bursts; /* that are over when it is passed */
};

struct milestones {
    CUcontext context;
    CUstream stream; /* NULL: it has ended */
    struct milestone ring[MILESTONES_MOST];
    unsigned first, count; /* of those that are not passed */
    bool has_last;         /* ring[first - 1] was passed, and its event is still that */
};

/* A milestone that was passed. `nanoseconds` of device time from the one before. */
struct passed_milestone {
    const struct milestone *milestone; /* until the next milestone is recorded */
    uint64_t nanoseconds;
    bool is_measured; /* false: the driver's answer was no time */
};

enum milestones_outcome { MILESTONES_NONE, MILESTONES_PASSED, MILESTONES_BROKEN };

/* One more can be recorded. */
static inline bool milestones_have_room(const struct milestones *milestones)
{
    return milestones->count + 1 < MILESTONES_MOST;
}

/* The newest one that is not passed; NULL: there is none. */
struct milestone *milestones_newest(struct milestones *milestones);

/* When the newest one that is passed was; 0: none is. */
uint64_t milestones_last_passed(const struct milestones *milestones);

/* Records a milestone behind all that the stream was given; the caller knows that there is room, and that the stream does
 * not capture. The stream's context is current. */
CUresult milestones_record(struct milestones *milestones, const struct timed_work *work, uint64_t now);

/* Asks for the oldest one that is not passed. Its context is current. */
enum milestones_outcome milestones_next(struct milestones *milestones, struct passed_milestone *passed);

/* Forgets what is not passed. */
void milestones_drop(struct milestones *milestones);

/* Ends the events; their context is current. */
void milestones_end(struct milestones *milestones);

#endif
