/* Events in one stream of the program's, between the launches: when the stream passed each, on CLOCK_MONOTONIC. Makes
 * events when they are first needed, in the current context, and keeps them for later milestones; waits for none.
 *
 * A driver's record waits while the stream's queue is full, so it is made with no lock held, in three steps: reserve takes
 * a place in the ring, record calls the driver, commit says what came of it. So is a question: begin, ask, end. Begin,
 * end, reserve and commit, and all else here, want the caller's lock; ask and record must not have it. One thread may
 * record while another asks.
 */
#ifndef ALIQUOT_TIMING_EVENTS_H
#define ALIQUOT_TIMING_EVENTS_H

#include "interpose/driver.h"

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
    bool is_recorded;      /* false: reserved alone */
    uint64_t recorded_at;  /* just before the driver was asked */
    uint64_t passed_at;    /* as well as can be told */
    struct timed_work work;
    uint32_t ended_bursts; /* that are over when it is passed */
    uint64_t unseen; /* nanoseconds of work right behind it, as expected, behind which nothing will be recorded */
};

struct milestones {
    CUcontext context;
    CUstream stream; /* NULL: it has ended */
    struct milestone ring[MILESTONES_MOST];
    unsigned first, count; /* of those that are not passed */
    bool has_last;         /* ring[first - 1] was passed, and its event is still that */
    uint32_t drops;        /* times that all was forgotten: what was reserved or asked before is not true any more */
};

/* A record on its way to the driver. */
struct milestone_record {
    CUcontext context;
    CUstream stream;
    CUevent event; /* NULL: to be made */
    unsigned place;
    uint32_t drops;
    CUresult result;
};

/* A question on its way to the driver: whether the stream passed `event`, and how long after `last`. */
struct milestone_question {
    CUevent event, last; /* `last` is NULL where there is none to measure from */
    uint32_t drops;
    CUresult result;
    uint64_t now, nanoseconds;
    bool is_measured;
};

/* A milestone that was passed. `nanoseconds` of device time from the one before. */
struct passed_milestone {
    const struct milestone *milestone; /* until the next place is reserved */
    uint64_t nanoseconds;
    bool is_measured; /* false: the driver's answer was no time */
};

enum milestones_outcome { MILESTONES_NONE, MILESTONES_PASSED, MILESTONES_BROKEN };

/* So many more can be recorded. */
static inline bool milestones_have_room(const struct milestones *milestones, unsigned places)
{
    return milestones->count + places < MILESTONES_MOST;
}

/* The newest one that is not passed; NULL: there is none. */
struct milestone *milestones_newest(struct milestones *milestones);

/* When the newest one that is passed was; 0: none is. */
uint64_t milestones_last_passed(const struct milestones *milestones);

/* A milestone behind all that the stream was given; the caller knows that there is room, that no other is on its way, and
 * that the stream does not capture. It counts as the newest from now on. */
void milestones_reserve(struct milestones *milestones, const struct timed_work *work, uint64_t now,
                        struct milestone_record *record);

/* Where there is no room: records the newest anew, so that it is behind `work`, too. It is at the end of work itself. */
void milestones_move_newest(struct milestones *milestones, const struct timed_work *work, uint64_t now,
                            struct milestone_record *record);

/* The stream's context is current. */
void milestone_record(struct milestone_record *record);

/* Returns the record's result; CUDA_SUCCESS where what it stood for was forgotten meanwhile. */
CUresult milestones_commit(struct milestones *milestones, const struct milestone_record *record);

/* About the oldest one that is not passed. False: there is none that is recorded. */
bool milestones_begin_question(const struct milestones *milestones, struct milestone_question *question);

/* Its context is current. Waits for nothing. */
void milestone_ask(struct milestone_question *question);

enum milestones_outcome milestones_end_question(struct milestones *milestones, const struct milestone_question *question,
                                                struct passed_milestone *passed);

/* Forgets what is not passed. */
void milestones_drop(struct milestones *milestones);

/* Forgets the stream, its context and the events, which are in `events` then; returns how many. */
unsigned milestones_forget(struct milestones *milestones, CUevent events[MILESTONES_MOST]);

#endif
