/* The time that launches of one pair of function and grid class take without opportunistic peers,
 * by its last solo samples. Pure: knows neither tables nor clocks; time is CLOCK_MONOTONIC, in
 * nanoseconds.
 *
 * A baseline is the median of the last samples. It does not outlive its subject: functions come and
 * go, and their handles with them; arguments change the work of a function, and clocks its speed.
 * So a baseline is void
 *   - when its newest sample is old;
 *   - when later launches beside peers take less, several times in a row: no launch is faster
 *     beside peers than alone;
 * and begins anew where several solo samples in a row lie on one side of it. A pair whose solo
 * samples lie far apart has no baseline: its launches do different things. */
#ifndef ALIQUOT_BASELINES_H
#define ALIQUOT_BASELINES_H

#include <stdbool.h>
#include <stdint.h>

#define BASELINE_SAMPLES 8u
#define BASELINE_LIFE_NANOSECONDS 120000000000ull

struct baseline {
    uint64_t samples[BASELINE_SAMPLES]; /* the last ones, oldest first */
    uint64_t newest;                    /* when the last one was taken */
    uint64_t median;
    uint32_t count;
    int32_t side;     /* of the median, on which the last samples lay: -1, 0, 1 */
    uint32_t on_side; /* so many in a row */
    uint32_t faster;  /* launches beside peers in a row that took less */
    bool is_spread;
};

void baseline_add_solo(struct baseline *baseline, uint64_t nanoseconds, uint64_t now);

/* Take a launch beside peers. */
void baseline_add_shared(struct baseline *baseline, uint64_t nanoseconds);

/* True: there are valid solo samples, or samples that would be valid if they were alike. */
bool baseline_is_known(const struct baseline *baseline, uint64_t now);

/* Return the baseline in nanoseconds; 0: there is none. */
uint64_t baseline_value(const struct baseline *baseline, uint64_t now);

#endif
