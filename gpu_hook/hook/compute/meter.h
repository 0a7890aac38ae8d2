/* Occupied time of this process on one device: the union of the intervals in which work of its
 * streams was on the device. Pure; times are CLOCK_MONOTONIC, in nanoseconds. Knows neither events
 * nor pages. */
#ifndef ALIQUOT_METER_H
#define ALIQUOT_METER_H

#include <stdbool.h>
#include <stdint.h>

/* that are remembered, so that work which ends late is not counted twice */
#define METER_SPANS 32u
#define METER_PIECES 33u   /* of one interval, between those that were counted before */
/* a longest launch is remembered for one to two of these */
#define METER_LONGEST_NANOSECONDS 2500000000ull

struct meter_span {
    uint64_t start, end;
};

struct meter {
    uint64_t occupied;
    uint64_t floor;                       /* all time before it counts as counted */
    struct meter_span spans[METER_SPANS]; /* by ascending times, apart from each other */
    unsigned count;
    uint64_t longest[2]; /* of the present period, and of the one before */
    uint64_t period;
};

/* Adds an interval. Writes what was not counted yet to `pieces`, by ascending times; returns their
 * number. */
unsigned meter_add(struct meter *meter, uint64_t start, uint64_t end,
                   struct meter_span pieces[METER_PIECES]);

/* Add one launch that was measured alone. */
void meter_add_launch(struct meter *meter, uint64_t nanoseconds, uint64_t now);

/* Return the longest launch of the last 2.5 to 5 seconds. */
uint64_t meter_longest(struct meter *meter, uint64_t now);

/* Convert the driver's milliseconds to nanoseconds. False: no time that work can take (NaN,
 * negative, over an hour). */
bool meter_read(float milliseconds, uint64_t *nanoseconds);

#endif
