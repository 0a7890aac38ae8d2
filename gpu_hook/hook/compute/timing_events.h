/* Events in one stream of the program, between the launches: when the stream passed each, on
 * CLOCK_MONOTONIC. This module makes events when they are first needed, in the current context, and
 * keeps them for later timing events; it waits for none.
 *
 * A driver's record waits while the stream's queue is full, so it is made with no lock held, in
 * three steps: reserve takes a place in the ring, record calls the driver, commit takes the
 * result. A query has three steps, too: begin, ask, end. Begin, end, reserve and commit, and all
 * other functions here, need the caller's lock; ask and record must not have it. One thread may
 * record while another asks. */
#ifndef ALIQUOT_TIMING_EVENTS_H
#define ALIQUOT_TIMING_EVENTS_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stdint.h>

#define TIMING_EVENTS_MAX 32u

/* The launches between a timing event and the one before it. Empty: the event only begins
 * something. */
struct timed_work {
    uint64_t expected;    /* nanoseconds */
    /* nanoseconds before and between its launches, in which the stream was idle as far as the hook
     * expects; 0 where the timing events alone tell */
    uint64_t idle;
    bool is_sampled; /* few timing events: it may have idle time in it */
    const void *function; /* of the one launch, where it was alone; NULL: there were several */
    unsigned grid_class;
    uint32_t window;   /* the page's solo_window when it began */
    uint32_t launches; /* 0: empty */
    uint32_t was_unknown; /* launches whose length was not known */
    bool has_overlapped;
};

struct timing_event {
    CUevent event;         /* NULL: not made yet */
    bool is_recorded;      /* false: reserved alone */
    uint64_t recorded_at;  /* just before the query to the driver */
    uint64_t passed_at;    /* as precisely as the hook can tell */
    struct timed_work work;
    uint32_t ended_batches; /* that are over when it is passed */
    /* nanoseconds of work right behind it, as expected, behind which nothing will be recorded */
    uint64_t unseen;
};

struct timing_events {
    CUcontext context;
    CUstream stream; /* NULL: it has ended */
    struct timing_event ring[TIMING_EVENTS_MAX];
    unsigned first, count; /* of those that are not passed */
    bool has_last;         /* ring[first - 1] was passed, and its event is still that */
    /* number of times that all events were forgotten: earlier reservations and queries are void */
    uint32_t drops;
};

/* A record that a thread is about to make. */
struct timing_event_record {
    CUcontext context;
    CUstream stream;
    CUevent event; /* NULL: to be made */
    unsigned place;
    uint32_t drops;
    CUresult result;
};

/* A query that a thread is about to make: whether the stream passed `event`, and how long after
 * `last`. */
struct timing_event_question {
    CUevent event, last; /* `last` is NULL where there is none to measure from */
    uint32_t drops;
    CUresult result;
    uint64_t now, nanoseconds;
    bool is_measured;
};

/* A timing event that the stream has passed, `nanoseconds` of device time after the one before. */
struct passed_timing_event {
    const struct timing_event *event; /* until the next place is reserved */
    uint64_t nanoseconds;
    bool is_measured; /* false: the driver's answer was no time */
};

enum timing_events_outcome { TIMING_EVENTS_NONE, TIMING_EVENTS_PASSED, TIMING_EVENTS_BROKEN };

/* Return whether the ring has so many free places. */
static inline bool timing_events_have_room(const struct timing_events *events, unsigned places)
{
    return events->count + places < TIMING_EVENTS_MAX;
}

/* Return the newest timing event that is not passed; NULL: there is none. */
struct timing_event *timing_events_newest(struct timing_events *events);

/* Return when the stream passed the newest passed one; 0: none is. */
uint64_t timing_events_last_passed(const struct timing_events *events);

/* Return when the newest one of all was recorded; 0: there is none to measure from. */
uint64_t timing_events_last_recorded(struct timing_events *events);

/* Reserve a timing event behind all work that the stream was given. It counts as the newest from
 * now on. The caller knows that there is room, that no other is on its way, and that the stream
 * does not capture. */
void timing_events_reserve(struct timing_events *events, const struct timed_work *work,
                           uint64_t now, struct timing_event_record *record);

/* Record the newest one anew, so that it is behind `work`, too: for a ring without room. The event
 * is at the end of work itself. */
void timing_events_move_newest(struct timing_events *events, const struct timed_work *work,
                               uint64_t now, struct timing_event_record *record);

/* Make the record. The stream's context is current. */
void timing_event_record(struct timing_event_record *record);

/* Return the record's result; CUDA_SUCCESS where the reservation was forgotten meanwhile. */
CUresult timing_events_commit(struct timing_events *events,
                              const struct timing_event_record *record);

/* Prepare a query about the oldest event that is not passed. False: none is recorded. */
bool timing_events_begin_question(const struct timing_events *events,
                                  struct timing_event_question *question);

/* Ask the driver. The stream's context is current. Waits for nothing. */
void timing_event_ask(struct timing_event_question *question);

enum timing_events_outcome timing_events_end_question(struct timing_events *events,
                                                      const struct timing_event_question *question,
                                                      struct passed_timing_event *passed);

/* Forget the timing events that are not passed. */
void timing_events_drop(struct timing_events *events);

/* Forget the stream, its context and the events, which are moved to `forgotten`; returns how
 * many. */
unsigned timing_events_forget(struct timing_events *events, CUevent forgotten[TIMING_EVENTS_MAX]);

#endif
